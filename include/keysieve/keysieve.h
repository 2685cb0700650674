/* keysieve.h: every operation of keysieve for C, and for whatever links C (Rust, Go, Python).
 *
 * Tensors are DLPack's DLTensor, read and never kept: strides count elements, NULL strides mean compact
 * row-major, byte_offset is added to data. A NULL tensor pointer is an optional argument that was not given.
 *
 *   dtypes   float32, bfloat16, int32, int64, uint8, uint32; float8_e4m3fn and float8_e8m0fnu (DLPack's codes
 *            10 and 14) count as uint8. Other float8 formats are refused: their bytes mean something else.
 *   devices  kDLCPU, kDLCUDAHost (host memory to keysieve), kDLCUDA
 *
 * Structs start with struct_size: set it to sizeof and the rest to zero, then fill in what you need. Zero, or
 * NULL, in any field is that field's default, so code that was compiled against an older and smaller struct
 * keeps its meaning; a struct of a newer header is taken while all that this library does not know is zero.
 *
 *   keysieve_topk_args args = {.struct_size = sizeof args, .scores = &scores, .bounds = &bounds, .k = 512,
 *                              .out = &out};
 *   keysieve_error error = {.struct_size = sizeof error};
 *   if (keysieve_topk(&args, NULL, workspace, workspace_bytes, &error) != KEYSIEVE_OK) puts(error.text);
 *
 * Each operation has four functions; `options` and `error` may be NULL everywhere.
 *
 *   keysieve_OP                  works or, on a device, enqueues on options->stream. The workspace starts on 64
 *                                bytes and has at least the bytes that the next function names; its content means
 *                                nothing before and after. If it is NULL and options name an allocator, that lends
 *                                one for the call. Returns a keysieve_code.
 *   keysieve_OP_workspace_bytes  what a call with these shapes and these options needs; data may be NULL
 *   keysieve_OP_supports         1: a kernel takes these arguments; 0: *error says why not; data may be NULL
 *   keysieve_OP_explain          writes a line for every kernel: chosen, or why it was not. Like snprintf it cuts the
 *                                text to the buffer, ends it with 0 and returns the length of the whole; data may
 *                                be NULL
 *
 * Errors. Nothing has been written when one of these comes back:
 *
 *   KEYSIEVE_INVALID_ARGUMENT     a struct, shape, dtype, stride, address, device or option breaks a rule; error names
 *                                 the argument, the rule (docs/contracts has them all) and what was seen
 *   KEYSIEVE_UNSUPPORTED          no enabled kernel that the options allow takes it; error has each kernel's words
 *   KEYSIEVE_WORKSPACE_TOO_SMALL  or none was given; error has the bytes that are needed
 *   KEYSIEVE_OUT_OF_MEMORY        the allocator had nothing to give
 *
 * Lengths, ends, indices, candidates and page tables are data: any value is legal and out-of-range ones are
 * ignored or clamped. Below, a tensor's axes may have any stride unless "contiguous" stands beside them; gaps keep
 * their bytes. "out" tensors are written in every place, also for empty rows (scores: as `tail` says); all others
 * are only read.
 *
 * All functions may be called from any thread at any time. None throws, prints, or reads the environment, and
 * but for explain(), the thread pool and the reference backend none allocates.
 */
#ifndef KEYSIEVE_KEYSIEVE_H_
#define KEYSIEVE_KEYSIEVE_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define KEYSIEVE_API
#else
#define KEYSIEVE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

typedef enum keysieve_code {
  KEYSIEVE_OK = 0,
  KEYSIEVE_INVALID_ARGUMENT = 1,    /* an argument breaks a rule of docs/contracts */
  KEYSIEVE_UNSUPPORTED = 2,         /* legal, but no enabled kernel takes it */
  KEYSIEVE_WORKSPACE_TOO_SMALL = 3, /* nothing was written */
  KEYSIEVE_BAD_FILE = 4,            /* the C++ and command line interfaces only */
  KEYSIEVE_IO_ERROR = 5,            /* likewise */
  KEYSIEVE_DEVICE_ERROR = 6,        /* a device or its driver refused a launch */
  KEYSIEVE_OUT_OF_MEMORY = 7,       /* an allocator had nothing to give */
  KEYSIEVE_INTERNAL_ERROR = 8       /* a callback threw, or a defect of keysieve */
} keysieve_code;

/* Filled in by a call that fails; a call that succeeds sets code to KEYSIEVE_OK and text to "". The pointers
 * name constants of the library. */
typedef struct keysieve_error {
  size_t struct_size;
  int32_t code; /* keysieve_code */
  int32_t reserved;
  const char* operation; /* "topk" */
  const char* argument;  /* "scores" */
  const char* rule;      /* "TOP-02 scores is [rows, width]" */
  char text[512];        /* all of it in one line, with the value that was seen */
} keysieve_error;

/* One sentence for a code. */
KEYSIEVE_API const char* keysieve_code_sentence(int code);

/* ---- what this library has ---- */

KEYSIEVE_API const char* keysieve_version(void);              /* "0.1.0" */
KEYSIEVE_API size_t keysieve_backend_count(void);             /* in the order in which they are asked */
KEYSIEVE_API const char* keysieve_backend_name(size_t index); /* "cpu"; NULL past the last */
KEYSIEVE_API size_t keysieve_kernel_count(const char* backend);
KEYSIEVE_API const char* keysieve_kernel_name(const char* backend, size_t index); /* "cpu.topk.filter" */

/* ---- how a call runs ---- */

/* Where host work runs. for_each calls body(context, task) once for every task in [0, tasks), in any order,
 * on any threads, and returns after the last one has returned. Running them one after the other is always
 * right. concurrency is the most tasks that one call hands out; workspaces grow with it. */
typedef struct keysieve_executor {
  size_t struct_size;
  void* self;
  void (*for_each)(void* self, int64_t tasks, void (*body)(void* context, int64_t task), void* context);
  int32_t concurrency;
  int32_t reserved;
} keysieve_executor;

/* Lends the workspace of calls that bring none. On a device the memory is device memory, and release() is
 * called as soon as the work is enqueued: give and take it back in the order of options->stream. */
typedef struct keysieve_allocator {
  size_t struct_size;
  void* self;
  void* (*allocate)(void* self, size_t bytes, size_t alignment); /* NULL: nothing left */
  void (*release)(void* self, void* memory, size_t bytes);
} keysieve_allocator;

typedef struct keysieve_options {
  size_t struct_size;
  const char* backend;       /* "cpu", "reference", "cuda"; NULL: the fast one for the tensors' device */
  const char* kernel;        /* the only kernel allowed, by name; NULL: any */
  const char* const* forbid; /* kernels not allowed, by name */
  size_t forbid_count;
  const keysieve_executor* executor; /* NULL: the calling thread */
  const keysieve_allocator* allocator;
  void* stream; /* cudaStream_t */
} keysieve_options;

/* Threads for those who have none of their own (oneTBB); 0: as many as this process may use. NULL: no memory.
 * The executor lives as long as its pool. */
typedef struct keysieve_thread_pool keysieve_thread_pool;
KEYSIEVE_API keysieve_thread_pool* keysieve_thread_pool_create(int threads);
KEYSIEVE_API const keysieve_executor* keysieve_thread_pool_executor(const keysieve_thread_pool* pool);
KEYSIEVE_API void keysieve_thread_pool_destroy(keysieve_thread_pool* pool);

/* ---- arguments that several operations share ---- */

/* Which half-open range of columns [start, end) each row may see. Data, not shapes: every value is legal, and
 * too long or negative ones give clamped or empty rows. */
enum {
  KEYSIEVE_BOUNDS_ENDS = 0,   /* end[r / row_repeat], and start likewise where it is given */
  KEYSIEVE_BOUNDS_LENGTHS = 1 /* end is [B]: row b*next_n + j ends at length[b] - next_n + j + 1;
                                 or [B, next_n]: at length[b][j] */
};
enum {
  KEYSIEVE_UNIT_TOKENS = 0,    /* lengths are divided by ratio, rounding down */
  KEYSIEVE_UNIT_COMPRESSED = 1 /* lengths count columns already */
};
typedef struct keysieve_bounds {
  size_t struct_size;
  int32_t form;          /* KEYSIEVE_BOUNDS_... */
  int32_t unit;          /* KEYSIEVE_UNIT_..., of lengths */
  const DLTensor* start; /* i32|i64 [ceil(rows / row_repeat)], with ends only; NULL: 0 */
  const DLTensor* end;   /* i32|i64 [ceil(rows / row_repeat)], or lengths [B] or [B, next_n]; required */
  int64_t row_repeat;    /* rows per entry of ends; 0: 1 */
  int64_t next_n;        /* rows per request; 0: 1 */
  int64_t ratio;         /* tokens per column; 0: 1 */
} keysieve_bounds;

/* From a request's own position to a slot of the shared cache:
 * slot = page_table[request][position / page_size] * page_size + position % page_size. A request or column
 * outside the table and a page id outside the pool have no slot. */
typedef struct keysieve_page_map {
  size_t struct_size;
  const DLTensor* page_table;     /* i32 [requests, columns]; required */
  const DLTensor* row_to_request; /* i32 [rows]; NULL: row / next_n */
  const DLTensor* table_start;    /* i32|i64 [rows]: position of local index 0; NULL: 0 */
  int64_t page_size;              /* positions of a page; 0: 64 */
  int64_t pool_pages;             /* 0 or -1: unknown, so that only negative ids have no slot */
  int64_t next_n;                 /* rows per request, where row_to_request is NULL; 0: 1 */
} keysieve_page_map;

/* How an attention row's log of the sum of exponentials is written. All zero: natural, -inf for a row without
 * keys, without a sink; the rest is for engines that expect something else. */
enum { KEYSIEVE_LSE_NATURAL = 0, KEYSIEVE_LSE_BASE_TWO = 1 };
enum { KEYSIEVE_LSE_EMPTY_MINUS_INFINITY = 0, KEYSIEVE_LSE_EMPTY_PLUS_INFINITY = 1 };
typedef struct keysieve_lse_form {
  int32_t base;      /* KEYSIEVE_LSE_NATURAL or _BASE_TWO */
  int32_t empty;     /* KEYSIEVE_LSE_EMPTY_..., for rows without keys */
  int32_t with_sink; /* 1: log(exp(lse) + exp(sink)) */
  int32_t reserved;
} keysieve_lse_form;

/* ---- index_store: quantises index keys into the pages of a cache ---- */
enum {
  KEYSIEVE_KEYS_FP8 = 0,  /* page_tokens * dim e4m3fn codes, then page_tokens f32 scales */
  KEYSIEVE_KEYS_MXFP4 = 1 /* page_tokens * dim / 2 bytes, the even element in the low four bits, then
                             page_tokens * dim / 32 UE8M0 scales */
};
enum {
  KEYSIEVE_SCALE_EXACT = 0, /* max(greatest magnitude, 1e-4) / 448 */
  KEYSIEVE_SCALE_UE8M0 = 1  /* the least power of two that is not less; fp8 only */
};
typedef struct keysieve_index_store_args {
  size_t struct_size;
  const DLTensor* keys; /* f32|bf16 [tokens, dim], dim 32, 64 or 128, contiguous */
  const DLTensor*
      slots; /* i32|i64 [tokens]: page * page_tokens + place; negative or past the cache: skipped */
  const DLTensor* cache; /* inout: u8 [pages, bytes], bytes contiguous; only named slots change */
  int64_t page_tokens;   /* 1 to 128; 0: 64 */
  int32_t format;        /* KEYSIEVE_KEYS_... */
  int32_t scale;         /* KEYSIEVE_SCALE_... */
  int32_t reciprocal;    /* 1: x * (1 / s) instead of x / s; fp8 only */
  int32_t ties_down; /* 1: midpoints to the smaller magnitude, greatest magnitude at least 1e-4; mxfp4 only */
} keysieve_index_store_args;

KEYSIEVE_API int keysieve_index_store(const keysieve_index_store_args* args, const keysieve_options* options,
                                      void* workspace, size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_index_store_workspace_bytes(const keysieve_index_store_args* args,
                                                      const keysieve_options* options, size_t* bytes,
                                                      keysieve_error* error);
KEYSIEVE_API int keysieve_index_store_supports(const keysieve_index_store_args* args,
                                               const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_index_store_explain(const keysieve_index_store_args* args,
                                                 const keysieve_options* options, char* text,
                                                 size_t text_bytes);

/* ---- index_gather: index keys of several requests from the pages of a cache, one after the other ----
 *
 * Rows of no request stay as they are; a row without a page becomes zeros. */
typedef struct keysieve_index_gather_args {
  size_t struct_size;
  const DLTensor* cache; /* u8 [pages, bytes], bytes contiguous, as keysieve_index_store writes it */
  int64_t page_tokens;   /* 1 to 128; 0: 64 */
  int32_t format;        /* KEYSIEVE_KEYS_... */
  int32_t reserved;
  const DLTensor* page_table;    /* i32 [requests, columns]; with table_offsets i32 [entries] */
  const DLTensor* table_offsets; /* i32|i64 [requests + 1]: a request's entries of the table; NULL: none */
  const DLTensor* row_offsets;   /* i32|i64 [requests + 1]: a request's rows of keys and scales */
  const DLTensor* start;         /* i32|i64 [requests]: position of a request's first row; NULL: 0 */
  const DLTensor* keys;          /* inout: u8 [rows, dim], mxfp4 [rows, dim / 2], last axis contiguous */
  const DLTensor* scales;        /* inout: f32 [rows], mxfp4 u8 [rows, dim / 32], last axis contiguous */
} keysieve_index_gather_args;

KEYSIEVE_API int keysieve_index_gather(const keysieve_index_gather_args* args,
                                       const keysieve_options* options, void* workspace,
                                       size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_index_gather_workspace_bytes(const keysieve_index_gather_args* args,
                                                       const keysieve_options* options, size_t* bytes,
                                                       keysieve_error* error);
KEYSIEVE_API int keysieve_index_gather_supports(const keysieve_index_gather_args* args,
                                                const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_index_gather_explain(const keysieve_index_gather_args* args,
                                                  const keysieve_options* options, char* text,
                                                  size_t text_bytes);

/* ---- prepare_queries: index queries rotated, transformed and quantised, their scales folded into the weights ---- */
enum {
  KEYSIEVE_ROPE_HALVES = 0,  /* pairs (i, i + 32) of the 64 rotated elements */
  KEYSIEVE_ROPE_ADJACENT = 1 /* pairs (2 i, 2 i + 1) */
};
enum { KEYSIEVE_ROPE_FIRST = 0, KEYSIEVE_ROPE_LAST = 1 }; /* which 64 elements of a head are rotated */
typedef struct keysieve_prepare_queries_args {
  size_t struct_size;
  const DLTensor* q;         /* f32|bf16 [rows, heads, dim], 1 to 128 heads of 32, 64 or 128, contiguous */
  const DLTensor* weights;   /* f32|bf16 [rows, heads] */
  const DLTensor* cos_sin;   /* f32 [positions, 64]: 32 cosines, then 32 sines; NULL: no rotation */
  const DLTensor* positions; /* i32|i64 [rows], with cos_sin; not in the table: not rotated */
  int32_t pairing;           /* KEYSIEVE_ROPE_HALVES or _ADJACENT */
  int32_t place;             /* KEYSIEVE_ROPE_FIRST or _LAST */
  int32_t hadamard;          /* 1: Walsh-Hadamard transform over 128^0.5; dim 128 only */
  int32_t format;            /* KEYSIEVE_KEYS_... */
  int32_t scale;             /* KEYSIEVE_SCALE_... */
  int32_t reciprocal;        /* 1: x * (1 / s); fp8 only */
  int32_t ties_down;         /* 1: midpoints to the smaller magnitude; mxfp4 only */
  int32_t tiny_floor;        /* 1: greatest magnitudes are at least 1e-10 instead of 1e-4; fp8 only */
  float softmax_scale;       /* required, hence 0 is refused */
  float head_scale;          /* required, hence 0 is refused */
  const DLTensor* codes;     /* out: u8 [rows, heads, dim], mxfp4 [rows, heads, dim / 2], contiguous */
  const DLTensor* scales;    /* out: u8 [rows, heads, dim / 32], mxfp4 only, contiguous */
  const DLTensor* folded; /* out: f32 [rows, heads]: ((weight * s) * softmax_scale) * head_scale, fp8's s */
} keysieve_prepare_queries_args;

KEYSIEVE_API int keysieve_prepare_queries(const keysieve_prepare_queries_args* args,
                                          const keysieve_options* options, void* workspace,
                                          size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_prepare_queries_workspace_bytes(const keysieve_prepare_queries_args* args,
                                                          const keysieve_options* options, size_t* bytes,
                                                          keysieve_error* error);
KEYSIEVE_API int keysieve_prepare_queries_supports(const keysieve_prepare_queries_args* args,
                                                   const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_prepare_queries_explain(const keysieve_prepare_queries_args* args,
                                                     const keysieve_options* options, char* text,
                                                     size_t text_bytes);

/* ---- mqa_logits: score[r, c] = sum over heads h of weights[r, h] * max(0, q[r, h] . key[c]) ----
 *
 * 1 to 128 heads of dim 32, 64 or 128. Give keys (ragged), or cache and page_table (paged). The last axis of q,
 * keys, cache and scores is contiguous. A page id outside the cache makes its keys -inf; NaN keys give NaN. */
enum {
  KEYSIEVE_TAIL_UNTOUCHED = 0, /* only [start, end) is written */
  KEYSIEVE_TAIL_NEG_INF = 1    /* the rest of the row becomes -inf */
};
typedef struct keysieve_mqa_logits_args {
  size_t struct_size;
  const DLTensor* q;          /* bf16|u8 [rows, heads, dim]; u8: e4m3fn, its scale folded into weights */
  const DLTensor* weights;    /* f32|bf16 [rows, heads] */
  const DLTensor* keys;       /* ragged: bf16|u8 [keys, dim], column c is key c */
  const DLTensor* key_scales; /* ragged, u8: f32 [keys], multiplies the whole sum, last */
  const DLTensor* cache; /* paged: bf16 [pages, page_tokens, dim], or u8 [pages, bytes]: page_tokens * dim
                            codes, then page_tokens f32 scales. Pages may lie further apart than their size */
  const DLTensor* page_table;    /* paged: i32 [requests, columns]; rows / requests rows of each, in order */
  int64_t page_tokens;           /* tokens of a page; 0: 64 */
  const keysieve_bounds* bounds; /* required */
  int32_t tail;                  /* KEYSIEVE_TAIL_... */
  int32_t reserved;
  const DLTensor* scores; /* out: f32|bf16 [rows, width]; bf16 is the f32 score, rounded */
} keysieve_mqa_logits_args;

KEYSIEVE_API int keysieve_mqa_logits(const keysieve_mqa_logits_args* args, const keysieve_options* options,
                                     void* workspace, size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_mqa_logits_workspace_bytes(const keysieve_mqa_logits_args* args,
                                                     const keysieve_options* options, size_t* bytes,
                                                     keysieve_error* error);
KEYSIEVE_API int keysieve_mqa_logits_supports(const keysieve_mqa_logits_args* args,
                                              const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_mqa_logits_explain(const keysieve_mqa_logits_args* args,
                                                const keysieve_options* options, char* text,
                                                size_t text_bytes);

/* ---- candidate_blocks: per row, the best blocks of keys ----
 *
 * A block's score is the greatest of its visible scores. The newest block is always kept; others at -inf
 * never are. Equal scores: the smaller id. Block b covers columns [start + b*block_size, start +
 * (b+1)*block_size). */
enum {
  KEYSIEVE_NAN_KEEP = 0,  /* a block with a NaN ranks first */
  KEYSIEVE_NAN_DROP = 1,  /* it is left out */
  KEYSIEVE_NAN_IGNORE = 2 /* its NaN entries do not count */
};
enum {
  KEYSIEVE_ORDER_ASCENDING = 0, /* by id, or by column */
  KEYSIEVE_ORDER_BY_SCORE = 1
};
typedef struct keysieve_candidate_blocks_args {
  size_t struct_size;
  const DLTensor* scores;        /* f32|bf16 [rows, width] */
  const keysieve_bounds* bounds; /* required */
  int64_t block_size;            /* columns of a block; 0: 8 */
  int32_t nan;                   /* KEYSIEVE_NAN_... */
  int32_t order;                 /* KEYSIEVE_ORDER_... */
  const DLTensor* candidates;    /* out: i32 [rows, candidates], block ids, -1 in unused places */
} keysieve_candidate_blocks_args;

KEYSIEVE_API int keysieve_candidate_blocks(const keysieve_candidate_blocks_args* args,
                                           const keysieve_options* options, void* workspace,
                                           size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_candidate_blocks_workspace_bytes(const keysieve_candidate_blocks_args* args,
                                                           const keysieve_options* options, size_t* bytes,
                                                           keysieve_error* error);
KEYSIEVE_API int keysieve_candidate_blocks_supports(const keysieve_candidate_blocks_args* args,
                                                    const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_candidate_blocks_explain(const keysieve_candidate_blocks_args* args,
                                                      const keysieve_options* options, char* text,
                                                      size_t text_bytes);

/* ---- candidate_mask: in place, -inf over every score whose block is not listed ---- */
enum {
  KEYSIEVE_WRITE_LIVE = 0,  /* a row owns [0, end), and not one column more */
  KEYSIEVE_WRITE_FULL = 1,  /* [0, width) */
  KEYSIEVE_WRITE_WINDOW = 2 /* [start, end) */
};
typedef struct keysieve_candidate_mask_args {
  size_t struct_size;
  const DLTensor* scores;        /* in and out: f32|bf16 [rows, width]; kept scores keep their bits */
  const keysieve_bounds* bounds; /* required */
  const DLTensor* candidates;    /* i32 [rows, candidates]: block ids from the row's start, in any order */
  int64_t block_size;            /* columns of a block; 0: 8 */
  int32_t write_range;           /* KEYSIEVE_WRITE_... */
  int32_t edge; /* 1: a listed block at or past the width keeps column width - 1, if the row may see it */
} keysieve_candidate_mask_args;

KEYSIEVE_API int keysieve_candidate_mask(const keysieve_candidate_mask_args* args,
                                         const keysieve_options* options, void* workspace,
                                         size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_candidate_mask_workspace_bytes(const keysieve_candidate_mask_args* args,
                                                         const keysieve_options* options, size_t* bytes,
                                                         keysieve_error* error);
KEYSIEVE_API int keysieve_candidate_mask_supports(const keysieve_candidate_mask_args* args,
                                                  const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_candidate_mask_explain(const keysieve_candidate_mask_args* args,
                                                    const keysieve_options* options, char* text,
                                                    size_t text_bytes);

/* ---- topk: per row, the k greatest scores inside the row's bounds ----
 *
 * Exact. Equal scores: the smaller column. -0 equals +0. NaN above +inf. */
enum {
  KEYSIEVE_SPACE_LOCAL = 0,    /* columns from the row's start */
  KEYSIEVE_SPACE_ABSOLUTE = 1, /* columns of the matrix */
  KEYSIEVE_SPACE_OFFSET = 2,   /* offset[row] + local */
  KEYSIEVE_SPACE_PAGED = 3     /* slots, through `pages` */
};
enum {
  KEYSIEVE_LAYOUT_DENSE = 0,
  KEYSIEVE_LAYOUT_COMPACT =
      1 /* scores[r][j*block_size + o] is column start + candidates[r][j]*block_size + o */
};
typedef struct keysieve_topk_args {
  size_t struct_size;
  const DLTensor* scores;        /* f32|bf16 [rows, width], columns contiguous */
  const keysieve_bounds* bounds; /* required */
  int64_t k;                     /* at least 0; the columns of out, values and raw */
  int32_t order;                 /* KEYSIEVE_ORDER_... */
  int32_t keep_neg_inf;          /* 1: columns that hold -inf may be returned */
  const DLTensor* candidates; /* i32 [rows, candidates]: block ids from the row's start; NULL: every column */
  int64_t block_size;         /* columns of a block; 0: 8 */
  int32_t layout;             /* KEYSIEVE_LAYOUT_... */
  int32_t space;              /* KEYSIEVE_SPACE_...: what out holds */
  const DLTensor* offset;     /* offset space: i32|i64 [rows] */
  const keysieve_page_map* pages; /* paged space */
  const DLTensor* out;            /* out: i32 [rows, k], in the paged space also i64; -1 in unused places */
  const DLTensor* values; /* out: f32 [rows, k]: their scores, -inf in unused places; NULL: not wanted */
  const DLTensor* counts; /* out: i32 [rows]: places used; NULL: not wanted */
  const DLTensor* raw;    /* out: i32 [rows, k], paged space: the local columns; NULL: not wanted */
} keysieve_topk_args;

KEYSIEVE_API int keysieve_topk(const keysieve_topk_args* args, const keysieve_options* options,
                               void* workspace, size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_topk_workspace_bytes(const keysieve_topk_args* args,
                                               const keysieve_options* options, size_t* bytes,
                                               keysieve_error* error);
KEYSIEVE_API int keysieve_topk_supports(const keysieve_topk_args* args, const keysieve_options* options,
                                        keysieve_error* error);
KEYSIEVE_API size_t keysieve_topk_explain(const keysieve_topk_args* args, const keysieve_options* options,
                                          char* text, size_t text_bytes);

/* ---- translate: a selection's local indices to cache slots ---- */
enum {
  KEYSIEVE_TRANSLATE_COMPACT = 0, /* found slots first, in order, then -1 */
  KEYSIEVE_TRANSLATE_KEEP = 1     /* slots[r][t] belongs to indices[r][t] */
};
typedef struct keysieve_translate_args {
  size_t struct_size;
  const DLTensor* indices;        /* i32 [rows, k]: positions in the row's request; negative: unused */
  const keysieve_page_map* pages; /* required */
  int32_t mode;                   /* KEYSIEVE_TRANSLATE_... */
  int32_t reserved;
  const DLTensor* slots;  /* out: i32|i64 [rows, k], -1 in unused places */
  const DLTensor* counts; /* out: i32 [rows]; NULL: not wanted */
  const DLTensor* raw;    /* out: i32 [rows, k], the index behind each slot, else -1; NULL: not wanted */
} keysieve_translate_args;

KEYSIEVE_API int keysieve_translate(const keysieve_translate_args* args, const keysieve_options* options,
                                    void* workspace, size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_translate_workspace_bytes(const keysieve_translate_args* args,
                                                    const keysieve_options* options, size_t* bytes,
                                                    keysieve_error* error);
KEYSIEVE_API int keysieve_translate_supports(const keysieve_translate_args* args,
                                             const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_translate_explain(const keysieve_translate_args* args,
                                               const keysieve_options* options, char* text,
                                               size_t text_bytes);

/* ---- packed_mask: one bit a key; key j of a row is bit j % 32 of word j / 32, and 1 keeps it ----
 *
 * Every word of every padded row is written. One of indices, candidates and scores says what is kept. */
typedef struct keysieve_packed_mask_args {
  size_t struct_size;
  const DLTensor* q_start;    /* i32|i64 [requests + 1]: request b owns rows [q_start[b], q_start[b+1]) */
  const DLTensor* key_first;  /* i32|i64 [requests]: bit j stands for local key key_first[b] + j; NULL: 0 */
  const DLTensor* key_count;  /* i32|i64 [requests]: bits that mean something; the others are 0 */
  const DLTensor* indices;    /* i32 [tokens, k]: topk's local columns */
  const DLTensor* candidates; /* i32 [tokens, candidates]: every key of the listed blocks */
  int64_t block_size;         /* keys of a block; 0: 8 */
  const DLTensor* scores;     /* f32|bf16 [tokens, width]: score >= threshold, or NaN */
  const DLTensor* thresholds; /* f32 [tokens], with scores */
  const keysieve_bounds* bounds; /* with candidates or scores: only keys inside; NULL: all */
  const DLTensor* mask; /* out: u32|i32 [requests, rows, words], as keysieve_packed_mask_shape says; words
                           contiguous, rows and requests whole 16 bytes apart */
  const DLTensor* any; /* out: u32|i32 [requests, ceil(rows / 128), ceil(words / 128)], bit t = 128-key tile t
                          keeps a key; NULL: not wanted */
  const DLTensor* all; /* out: likewise, the tile keeps every key; NULL: not wanted */
} keysieve_packed_mask_args;

/* Writes {requests, padded rows, words} to shape. row_multiple: 0 pads rows to 128 up to 128 queries and to
 * 256 above; 64 or 128 always to that. reserve_word: one more word per row before rounding up to 4. */
KEYSIEVE_API void keysieve_packed_mask_shape(int64_t requests, int64_t max_queries, int64_t max_keys,
                                             int64_t row_multiple, int32_t reserve_word, int64_t shape[3]);
KEYSIEVE_API int keysieve_packed_mask(const keysieve_packed_mask_args* args, const keysieve_options* options,
                                      void* workspace, size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_packed_mask_workspace_bytes(const keysieve_packed_mask_args* args,
                                                      const keysieve_options* options, size_t* bytes,
                                                      keysieve_error* error);
KEYSIEVE_API int keysieve_packed_mask_supports(const keysieve_packed_mask_args* args,
                                               const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_packed_mask_explain(const keysieve_packed_mask_args* args,
                                                 const keysieve_options* options, char* text,
                                                 size_t text_bytes);

/* ---- mask_indices: the inverse of packed_mask ---- */
typedef struct keysieve_mask_indices_args {
  size_t struct_size;
  const DLTensor* q_start;   /* i32|i64 [requests + 1], this and the next two as in packed_mask */
  const DLTensor* key_first; /* i32|i64 [requests]; NULL: 0 */
  const DLTensor* key_count; /* i32|i64 [requests] */
  const DLTensor* mask;      /* u32|i32 [requests, rows, words]; words contiguous, whole 16 bytes apart */
  const DLTensor* out;       /* i32 [tokens, k]: kept local keys, ascending, -1 behind them */
  const DLTensor* counts;    /* i32 [tokens]: kept keys, also where they are more than k; NULL: not wanted */
} keysieve_mask_indices_args;

KEYSIEVE_API int keysieve_mask_indices(const keysieve_mask_indices_args* args,
                                       const keysieve_options* options, void* workspace,
                                       size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_mask_indices_workspace_bytes(const keysieve_mask_indices_args* args,
                                                       const keysieve_options* options, size_t* bytes,
                                                       keysieve_error* error);
KEYSIEVE_API int keysieve_mask_indices_supports(const keysieve_mask_indices_args* args,
                                                const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_mask_indices_explain(const keysieve_mask_indices_args* args,
                                                  const keysieve_options* options, char* text,
                                                  size_t text_bytes);

/* ---- masked_mha: prefill attention over the keys that a packed mask keeps ----
 *
 * (dqk, dv) is (192, 128), (128, 128) or (256, 256). The last axis of q, k, v, out and mask is contiguous; the mask's
 * others may have stride 0. lse is of the scaled scores; a row without keys gives 0 and -inf. */
typedef struct keysieve_masked_mha_args {
  size_t struct_size;
  const DLTensor* q;          /* bf16 [tokens, H, dqk] */
  const DLTensor* k;          /* bf16 [keys, H, dqk] */
  const DLTensor* v;          /* bf16 [keys, H, dv] */
  const DLTensor* q_start;    /* i32|i64 [requests + 1]: request b owns queries [q_start[b], q_start[b+1]) */
  const DLTensor* k_start;    /* i32|i64 [requests + 1]: and keys [k_start[b], k_start[b+1]) */
  const DLTensor* mask;       /* u32|i32 [requests or 1, rows, words]; NULL: every key is kept */
  const DLTensor* key_offset; /* i32|i64 [requests]: key j is bit key_offset[b] + j; NULL: 0 */
  const DLTensor* q_offset;   /* i32|i64 [requests]: query i is row q_offset[b] + i of the request; NULL: 0 */
  int32_t causal;             /* 1: also only keys <= query + k_total - q_total, counted in the request */
  float softmax_scale;        /* required, hence 0 is refused */
  const DLTensor* out;        /* out: bf16|f32 [tokens, H, dv] */
  const DLTensor* lse;        /* out: f32 [tokens, H]; NULL: not wanted */
  const DLTensor* q_total; /* i32|i64 [requests]: the whole request's queries; NULL: q_offset + this call's */
  const DLTensor* k_total; /* i32|i64 [requests]: the whole request's keys; NULL: key_offset + this call's */
  const DLTensor* sink;    /* f32 [H]: scales out by 1 / (1 + exp(sink - lse)); NULL: none */
  keysieve_lse_form lse_form;
} keysieve_masked_mha_args;

KEYSIEVE_API int keysieve_masked_mha(const keysieve_masked_mha_args* args, const keysieve_options* options,
                                     void* workspace, size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_masked_mha_workspace_bytes(const keysieve_masked_mha_args* args,
                                                     const keysieve_options* options, size_t* bytes,
                                                     keysieve_error* error);
KEYSIEVE_API int keysieve_masked_mha_supports(const keysieve_masked_mha_args* args,
                                              const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_masked_mha_explain(const keysieve_masked_mha_args* args,
                                                const keysieve_options* options, char* text,
                                                size_t text_bytes);

/* ---- sparse_mla: multi-head latent attention over selected cache slots ----
 *
 * H is 1 to 128, d is 576 or 512, V is the first 512. The last axis of q, the caches and out is contiguous. Slots
 * outside the pool are ignored; a slot listed twice counts twice. A row without keys gives 0 and an lse of -inf. */
typedef struct keysieve_sparse_mla_args {
  size_t struct_size;
  const DLTensor* q;           /* bf16 [rows, H, d] */
  const DLTensor* cache;       /* bf16 [pages, page_tokens, d]: slot s is token s % page_tokens of its page */
  const DLTensor* indices;     /* i32|i64 [rows, k]: slots */
  const DLTensor* lengths;     /* i32|i64 [rows]: only the first lengths[r] indices count; NULL: all */
  const DLTensor* extra_cache; /* bf16 [pages, page_tokens, d]: a second pool, any sizes; NULL: none */
  const DLTensor* extra_indices; /* i32|i64 [rows, k]: its slots, with a k of their own; with extra_cache */
  const DLTensor* extra_lengths; /* i32|i64 [rows]: as lengths; NULL: all */
  const DLTensor* sink;          /* f32 [H]: scales out by 1 / (1 + exp(sink - lse)); NULL: none */
  float softmax_scale;           /* required, hence 0 is refused */
  int32_t reserved;
  const DLTensor* out; /* out: bf16|f32 [rows, H, 512] */
  const DLTensor* lse; /* out: f32 [rows, H], of the scaled scores; NULL: not wanted */
  keysieve_lse_form lse_form;
} keysieve_sparse_mla_args;

KEYSIEVE_API int keysieve_sparse_mla(const keysieve_sparse_mla_args* args, const keysieve_options* options,
                                     void* workspace, size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_sparse_mla_workspace_bytes(const keysieve_sparse_mla_args* args,
                                                     const keysieve_options* options, size_t* bytes,
                                                     keysieve_error* error);
KEYSIEVE_API int keysieve_sparse_mla_supports(const keysieve_sparse_mla_args* args,
                                              const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_sparse_mla_explain(const keysieve_sparse_mla_args* args,
                                                const keysieve_options* options, char* text,
                                                size_t text_bytes);

/* ---- merge_states: n partial attention results over disjoint keys into one ----
 *
 * The last axis of outs and out is contiguous. All parts empty: output 0 and an lse of -inf. */
typedef struct keysieve_merge_states_args {
  size_t struct_size;
  const DLTensor* outs;        /* bf16|f32 [n, rows, H, dv] */
  const DLTensor* lses;        /* f32 [n, rows, H]; -inf: no keys, its outs are not looked at */
  const DLTensor* sink;        /* f32 [H], applied once after the merge; NULL: none */
  const DLTensor* out;         /* out: bf16|f32 [rows, H, dv] */
  const DLTensor* lse;         /* out: f32 [rows, H], of all parts; NULL: not wanted */
  keysieve_lse_form lses_form; /* how lses are written; they carry no sink */
  keysieve_lse_form lse_form;
} keysieve_merge_states_args;

KEYSIEVE_API int keysieve_merge_states(const keysieve_merge_states_args* args,
                                       const keysieve_options* options, void* workspace,
                                       size_t workspace_bytes, keysieve_error* error);
KEYSIEVE_API int keysieve_merge_states_workspace_bytes(const keysieve_merge_states_args* args,
                                                       const keysieve_options* options, size_t* bytes,
                                                       keysieve_error* error);
KEYSIEVE_API int keysieve_merge_states_supports(const keysieve_merge_states_args* args,
                                                const keysieve_options* options, keysieve_error* error);
KEYSIEVE_API size_t keysieve_merge_states_explain(const keysieve_merge_states_args* args,
                                                  const keysieve_options* options, char* text,
                                                  size_t text_bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KEYSIEVE_KEYSIEVE_H_ */

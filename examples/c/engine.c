/* An inference engine in C selects the keys of a decode step: its own threads, its own memory, slots of its
 * own paged cache.
 *
 * Four requests with two draft rows each; scores as an indexer might leave them. Per row the 512 best
 * positions become cache slots. The call runs once on the calling thread and once on the engine's pool; the
 * bytes must be the same. */
#define _POSIX_C_SOURCE 200112L
#include <keysieve/keysieve.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the engine's thread pool: workers wait for a batch and take its tasks by a counter ---- */

enum { kWorkers = 2 };

typedef struct Pool {
  pthread_t threads[kWorkers];
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  void (*body)(void* context, int64_t task);
  void* context;
  int64_t tasks;
  atomic_llong next;
  int round, working, closing;
} Pool;

static void* worker(void* argument) {
  Pool* pool = argument;
  int seen = 0;
  pthread_mutex_lock(&pool->mutex);
  for (;;) {
    while (pool->round == seen && !pool->closing) pthread_cond_wait(&pool->changed, &pool->mutex);
    if (pool->closing) break;
    seen = pool->round;
    pthread_mutex_unlock(&pool->mutex);
    for (int64_t task = pool->next++; task < pool->tasks; task = pool->next++)
      pool->body(pool->context, task);
    pthread_mutex_lock(&pool->mutex);
    if (--pool->working == 0) pthread_cond_broadcast(&pool->changed);
  }
  pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

static void pool_for_each(void* self, int64_t tasks, void (*body)(void*, int64_t), void* context) {
  Pool* pool = self;
  pthread_mutex_lock(&pool->mutex);
  pool->body = body;
  pool->context = context;
  pool->tasks = tasks;
  pool->next = 0;
  pool->working = kWorkers;
  ++pool->round;
  pthread_cond_broadcast(&pool->changed);
  while (pool->working > 0) pthread_cond_wait(&pool->changed, &pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
}

static void pool_open(Pool* pool) {
  memset(pool, 0, sizeof *pool);
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->changed, NULL);
  for (int i = 0; i < kWorkers; ++i) pthread_create(&pool->threads[i], NULL, worker, pool);
}

static void pool_close(Pool* pool) {
  pthread_mutex_lock(&pool->mutex);
  pool->closing = 1;
  pthread_cond_broadcast(&pool->changed);
  pthread_mutex_unlock(&pool->mutex);
  for (int i = 0; i < kWorkers; ++i) pthread_join(pool->threads[i], NULL);
}

/* ---- the engine's memory: one arena, taken from and given back like a stack ---- */

typedef struct Arena {
  unsigned char* memory;
  size_t capacity, used, most_used;
} Arena;

static void* arena_allocate(void* self, size_t bytes, size_t alignment) {
  Arena* arena = self;
  size_t start = (arena->used + alignment - 1) / alignment * alignment;
  if (start + bytes > arena->capacity) return NULL;
  arena->used = start + bytes;
  if (arena->used > arena->most_used) arena->most_used = arena->used;
  return arena->memory + start;
}

static void arena_release(void* self, void* memory, size_t bytes) {
  (void)bytes;
  Arena* arena = self;
  arena->used = (size_t)((unsigned char*)memory - arena->memory);
}

/* ---- the step ---- */

enum { kRequests = 4, kDrafts = 2, kRows = kRequests * kDrafts, kWidth = 65536, kTop = 512, kPage = 64 };
enum { kPagesEach = kWidth / kPage, kPoolPages = kRequests * kPagesEach };

static DLTensor tensor(void* data, DLDataType type, int rank, int64_t* shape) {
  DLTensor t = {data, {kDLCPU, 0}, rank, type, shape, NULL, 0};
  return t;
}

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void check(int code, const keysieve_error* error) {
  if (code == KEYSIEVE_OK) return;
  fprintf(stderr, "%s\n", error->text);
  exit(1);
}

int main(void) {
  const DLDataType f32 = {kDLFloat, 32, 1}, i32 = {kDLInt, 32, 1}, i64 = {kDLInt, 64, 1};
  float* scores = malloc(sizeof(float) * kRows * kWidth);
  int32_t lengths[kRequests] = {65536, 40000, 300, 12345}, counts[kRows];
  int32_t* table = malloc(sizeof(int32_t) * kPoolPages);
  int64_t *alone = malloc(sizeof(int64_t) * kRows * kTop), *pooled = malloc(sizeof(int64_t) * kRows * kTop);
  unsigned seed = 7;
  for (int i = 0; i < kRows * kWidth; ++i) {
    seed = seed * 1664525u + 1013904223u;
    scores[i] = (float)(seed >> 8) / 16777216.f;
    scores[i] *= scores[i];
  }
  for (int i = 0; i < kPoolPages; ++i) table[i] = (i * 37) % kPoolPages; /* pages lie anywhere in the pool */

  int64_t matrix[2] = {kRows, kWidth}, requests[1] = {kRequests}, pages[2] = {kRequests, kPagesEach};
  int64_t selection[2] = {kRows, kTop}, rows[1] = {kRows};
  DLTensor t_scores = tensor(scores, f32, 2, matrix), t_lengths = tensor(lengths, i32, 1, requests);
  DLTensor t_table = tensor(table, i32, 2, pages), t_slots = tensor(alone, i64, 2, selection);
  DLTensor t_counts = tensor(counts, i32, 1, rows);
  keysieve_bounds bounds = {
      .struct_size = sizeof bounds, .form = KEYSIEVE_BOUNDS_LENGTHS, .end = &t_lengths, .next_n = kDrafts};
  keysieve_page_map map = {.struct_size = sizeof map,
                           .page_table = &t_table,
                           .page_size = kPage,
                           .pool_pages = kPoolPages,
                           .next_n = kDrafts};
  keysieve_topk_args args = {.struct_size = sizeof args,
                             .scores = &t_scores,
                             .bounds = &bounds,
                             .k = kTop,
                             .space = KEYSIEVE_SPACE_PAGED,
                             .pages = &map,
                             .out = &t_slots,
                             .counts = &t_counts};

  Pool pool;
  pool_open(&pool);
  Arena arena = {aligned_alloc(64, 1 << 26), 1 << 26, 0, 0};
  keysieve_executor executor = {
      .struct_size = sizeof executor, .self = &pool, .for_each = pool_for_each, .concurrency = kWorkers};
  keysieve_allocator allocator = {
      .struct_size = sizeof allocator, .self = &arena, .allocate = arena_allocate, .release = arena_release};
  keysieve_options one_thread = {.struct_size = sizeof one_thread, .allocator = &allocator};
  keysieve_options threads = {.struct_size = sizeof threads, .executor = &executor, .allocator = &allocator};
  keysieve_error error = {.struct_size = sizeof error};

  char why[2048];
  keysieve_topk_explain(&args, &threads, why, sizeof why);
  printf("keysieve %s, top %d of up to %d keys, %d rows\n%s", keysieve_version(), kTop, kWidth, kRows, why);

  double began = milliseconds();
  check(keysieve_topk(&args, &one_thread, NULL, 0, &error), &error);
  double time_alone = milliseconds() - began;
  t_slots.data = pooled;
  began = milliseconds();
  check(keysieve_topk(&args, &threads, NULL, 0, &error), &error);
  double time_pooled = milliseconds() - began;
  printf("calling thread %.2f ms, pool of %d threads %.2f ms, scratch %zu bytes of the arena\n", time_alone,
         kWorkers, time_pooled, arena.most_used);

  int wrong = memcmp(alone, pooled, sizeof(int64_t) * kRows * kTop) != 0;
  for (int row = 0; row < kRows; ++row) {
    int visible = lengths[row / kDrafts] - kDrafts + row % kDrafts + 1;
    int expected = visible < kTop ? visible : kTop;
    wrong |= counts[row] != expected;
    printf("row %d: request %d, draft %d, sees %5d keys, keeps %3d, first slots %lld %lld %lld\n", row,
           row / kDrafts, row % kDrafts, visible, counts[row], (long long)pooled[row * kTop],
           (long long)pooled[row * kTop + 1], (long long)pooled[row * kTop + 2]);
  }

  /* What an engineer sees who gets a shape wrong. */
  args.k = kTop + 1;
  if (keysieve_topk_supports(&args, NULL, &error)) wrong = 1;
  printf("a mistake, on purpose: %s\n", error.text);

  pool_close(&pool);
  free(arena.memory);
  free(scores);
  free(table);
  free(alone);
  free(pooled);
  puts(wrong ? "WRONG" : "both runs gave the same slots");
  return wrong;
}

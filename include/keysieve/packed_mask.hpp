// packed_mask: one bit a key. Key j of a row is bit j % 32 of word j / 32; 1 keeps it. Rows start
// on 16 bytes.
//
//   q_start     i32|i64 [requests + 1]       request b owns query rows [q_start[b], q_start[b + 1])
//   key_first   optional i32|i64 [requests]  bit j of request b stands for local key key_first[b] + j
//   key_count   i32|i64 [requests]           bits of request b that mean something; the others are 0
//   one of:     indices    i32 [tokens, k]               topk's local columns; any order, duplicates, -1
//               candidates i32 [tokens, candidates]      every key of the listed blocks
//               scores     f32|bf16 [tokens, width], thresholds f32 [tokens]: score >= threshold, or NaN
//   bounds      optional, for candidates and scores: only local keys inside the row's bounds
//   mask        u32|i32 [requests, padded rows, words]  see packed_mask_shape
//   any, all    optional u32|i32 [requests, ceil(padded rows / 128), ceil(words / 128)]: bit t is the tile of
//               128 rows and keys 128 * t ..: some key is kept; no key is missing
//
// Result.  Every word of every padded row is written. Indices outside the key range are ignored. Rows
//          without a token and keys past the count are 0, and `all` does not look at them.
// Cost.    The source, and each word of the mask once.
// Streams. run() only enqueues: no allocation, no synchronisation.
#pragma once

#include "keysieve/bounds.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

struct PackedMaskShape {
  std::int64_t requests = 0;
  std::int64_t rows = 0;   // queries, padded
  std::int64_t words = 0;  // words per row, a multiple of 4
};

struct PackedMaskShapeOptions {
  std::int64_t row_multiple = 0;  // 0: 128 up to 128 queries, else 256; engines also pad to 64 or 128
  bool reserve_word = false;      // one more word per row before rounding
};

[[nodiscard]] PackedMaskShape packed_mask_shape(std::int64_t requests, std::int64_t max_queries,
                                                std::int64_t max_keys,
                                                const PackedMaskShapeOptions& options = {});

struct PackedMaskArgs {
  Tensor q_start;
  Tensor key_first;
  Tensor key_count;
  Tensor indices;
  Tensor candidates;
  std::int64_t block_size = 8;
  Tensor scores;
  Tensor thresholds;
  Bounds bounds;
  Tensor mask;
  Tensor any;
  Tensor all;
};

using PackedMaskPlan = Plan<PackedMaskArgs>;

// mask_indices: the inverse. out i32 [tokens, k]: the kept local keys of each query row, ascending, -1 behind
// them; counts i32 [tokens], optional: kept keys of the row, also where they are more than k.
struct MaskIndicesArgs {
  Tensor q_start;
  Tensor key_first;
  Tensor key_count;
  Tensor mask;
  Tensor out;
  Tensor counts;
};

using MaskIndicesPlan = Plan<MaskIndicesArgs>;

}  // namespace keysieve

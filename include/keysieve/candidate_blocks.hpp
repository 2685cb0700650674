// candidate_blocks: per row, the best blocks of keys, for layers that select only among published blocks.
//
//   scores      f32|bf16 [rows, width]   any strides
//   bounds      see bounds.hpp           block b of a row covers columns [start + b*B, start + (b+1)*B)
//   candidates  i32 [rows, candidates]   block ids, -1 in unused places
//
// Result.  A block's score is the greatest of its visible scores. The newest block, which holds column
//          end - 1, is always kept, before all others; blocks whose score is -inf are otherwise never kept.
//          Equal scores: the smaller id. Ascending ids, or by score: NaN blocks, then the newest, then the
//          rest.
// Cost.    Reads each visible score once.
// Streams. run() only enqueues: no allocation, no synchronisation.
//
// Definition: the candidate publisher of DeepSeek-V4.1.
#pragma once

#include "keysieve/bounds.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

// keep: a block with a NaN ranks first. drop: it is left out. ignore: its NaN entries do not count.
enum class NanPolicy : std::uint8_t { keep, drop, ignore };
enum class CandidateOrder : std::uint8_t { ascending_id, by_score };

struct CandidateBlocksArgs {
  Tensor scores;
  Bounds bounds;
  std::int64_t block_size = 8;
  NanPolicy nan = NanPolicy::keep;
  CandidateOrder order = CandidateOrder::ascending_id;
  Tensor candidates;
};

using CandidateBlocksPlan = Plan<CandidateBlocksArgs>;

}  // namespace keysieve

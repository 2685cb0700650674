// topk: per row, the k greatest scores inside the row's bounds.
//
//   scores      f32|bf16 [rows, width]   row stride free, columns contiguous
//   bounds      see bounds.hpp           half-open column range of each row; empty is legal
//   candidates  i32 [rows, candidates]   optional: only columns of these blocks take part, as
//                                        candidate_blocks.hpp counts them; any order, duplicates, -1 and
//                                        ids past the row's end allowed
//   offset      i32|i64 [rows]           `offset` only: added to the local column
//   pages       see page_map.hpp         `paged` only
//   out         i32 [rows, k]            see `space`; unused places hold -1. `paged` also takes i64
//   values      f32 [rows, k]            optional: the scores of `out`; unused places hold -inf
//   counts      i32 [rows]               optional: how many places of `out` are used
//   raw         i32 [rows, k]            optional, `paged` only: the local columns behind the slots of `out`
//
// Result.  Exact. Equal scores: the smaller column. -0 equals +0. NaN, of either sign, above +inf.
//          -inf is never returned while skip_neg_inf holds. Ascending columns, or by score.
// Cost.    Reads each score inside the bounds (or inside the listed blocks) once.
// Streams. run() only enqueues: no allocation, no synchronisation, safe under graph capture.
//
// Definition: the index selection of DeepSeek-V3.2 (DSA); block candidates as in DeepSeek-V4.1.
#pragma once

#include "keysieve/bounds.hpp"
#include "keysieve/page_map.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

enum class TopkOrder : std::uint8_t { ascending_column, by_score };

// What an entry of `out` counts: columns from the row's start, columns of the matrix, offset[row] + local,
// slots.
enum class TopkSpace : std::uint8_t { local, absolute, offset, paged };

// dense: scores[row][column]. compact: scores[row][j * block_size + o] belongs to column
// start + candidates[row][j] * block_size + o, so width = candidates * block_size.
enum class ScoreLayout : std::uint8_t { dense, compact };

struct TopkArgs {
  Tensor scores;
  Bounds bounds;
  std::int64_t k = 0;
  TopkOrder order = TopkOrder::ascending_column;
  bool skip_neg_inf = true;

  Tensor candidates;
  std::int64_t block_size = 8;
  ScoreLayout layout = ScoreLayout::dense;

  TopkSpace space = TopkSpace::local;
  Tensor offset;  // space offset: i32|i64 [rows]
  PageMap pages;  // space paged

  Tensor out;
  Tensor values;
  Tensor counts;
  Tensor raw;
};

using TopkPlan = Plan<TopkArgs>;

}  // namespace keysieve

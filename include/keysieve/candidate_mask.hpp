// candidate_mask: in place, -inf over every score whose block is not a candidate.
//
//   scores      f32|bf16 [rows, width]   any strides; kept scores keep their bits
//   bounds      see bounds.hpp           a row's blocks are counted from its start
//   candidates  i32 [rows, candidates]   any strides and order; duplicates, -1 and ids past the end allowed
//
// Result.  Column c stays if it is inside [start, end) and (c - start) / block_size is listed; every other
//          column of the write range becomes -inf. Nothing outside the write range is touched.
// Cost.    Follows the write range and the list.
// Streams. run() only enqueues: no allocation, no synchronisation.
#pragma once

#include "keysieve/bounds.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

// Columns that a row owns: [0, width), [0, end) or [start, end).
enum class WriteRange : std::uint8_t { full, live, window };

struct CandidateMaskArgs {
  Tensor scores;
  Bounds bounds;
  Tensor candidates;
  std::int64_t block_size = 8;
  WriteRange write_range = WriteRange::live;
  // As engines that clamp columns do: a listed block that starts at or past the width keeps column width - 1
  // if the row may see it.
  bool edge = false;
};

using CandidateMaskPlan = Plan<CandidateMaskArgs>;

}  // namespace keysieve

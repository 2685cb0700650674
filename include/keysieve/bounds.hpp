// bounds: which half-open column range [start, end) each row may see. Data, not shapes: every value is legal;
// end is clamped to [0, width] and start to [0, end], so negative, zero and too long values give empty or
// clamped rows.
//
//   form ends     end[r / row_repeat] and start[r / row_repeat] (start optional, 0 without it)
//   form lengths  length [B], rows = B * next_n: row b*next_n + j ends at length[b] - next_n + j + 1
//                 length [B, next_n]: row b*next_n + j ends at length[b][j]
//
// The two length forms take a unit: with `tokens` the value above is divided by `ratio`, rounding down
// (values below zero give empty rows); with `compressed` it already counts compressed positions.
#pragma once

#include "keysieve/tensor.hpp"

namespace keysieve {

enum class BoundsForm : std::uint8_t { ends, lengths };
enum class LengthUnit : std::uint8_t { tokens, compressed };

struct Bounds {
  BoundsForm form = BoundsForm::ends;
  Tensor start;  // ends: optional i32|i64 [ceil(rows / row_repeat)], any stride
  Tensor end;    // ends: i32|i64 [ceil(rows / row_repeat)]; lengths: i32|i64 [B] or [B, next_n]
  std::int64_t row_repeat = 1;  // ends: rows per entry
  std::int64_t next_n = 1;      // lengths: rows per request
  std::int64_t ratio = 1;       // lengths: tokens per compressed position
  LengthUnit unit = LengthUnit::tokens;
};

}  // namespace keysieve

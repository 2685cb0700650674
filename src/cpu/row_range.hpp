// row_range: resolves Bounds for one row, in 64 bits and without ever trusting the data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "keysieve/bounds.hpp"

namespace keysieve::cpu {

struct RowRange {
  std::int64_t start;
  std::int64_t end;
  [[nodiscard]] std::int64_t size() const { return end - start; }
};

// Element i (and j) of an i32 or i64 tensor of one or two axes.
inline std::int64_t load_int(const Tensor& t, std::int64_t i, std::int64_t j = 0) {
  const std::int64_t at = i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0);
  return t.dtype == DType::i64 ? static_cast<const std::int64_t*>(t.data)[at]
                               : static_cast<const std::int32_t*>(t.data)[at];
}

inline RowRange row_range(const Bounds& b, std::int64_t row, std::int64_t width) {
  std::int64_t start = 0, end = 0;
  if (b.form == BoundsForm::ends) {
    end = load_int(b.end, row / b.row_repeat);
    if (b.start.given()) start = load_int(b.start, row / b.row_repeat);
  } else {
    const std::int64_t request = row / b.next_n, draft = row % b.next_n;
    end = load_int(b.end, request, draft);
    // An int64 length near the lowest value must not wrap around to a long row.
    if (b.end.rank == 1) end = end < 0 ? end : end - b.next_n + draft + 1;
    if (b.unit == LengthUnit::tokens) end = end < 0 ? 0 : end / b.ratio;
  }
  end = std::clamp<std::int64_t>(end, 0, width);
  return {std::clamp<std::int64_t>(start, 0, end), end};
}

}  // namespace keysieve::cpu

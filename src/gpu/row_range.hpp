// row_range: resolves Bounds for one row on the device, in 64 bits and without trusting the data. The host
// folds the tensors into a small struct first, since every thread block reads it before anything else.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpu/vendor.hpp"
#include "keysieve/bounds.hpp"

namespace keysieve::gpu {

inline constexpr std::int64_t kMaxInt32 = 0x7fffffff;

// One axis of i32 or i64 values.
struct IntList {
  const void* data = nullptr;
  std::int64_t stride = 0;
  bool wide = false;  // i64
};

inline IntList int_list(const Tensor& t, int axis = 0) {
  return {t.data, t.rank > axis ? t.stride[axis] : 0, t.dtype == DType::i64};
}

struct RowBounds {
  IntList start;            // data is null: every row starts at 0
  IntList end;              // ends or lengths
  std::int64_t end_step;    // lengths per row: distance of two draft rows
  std::int64_t ratio;       // 1: nothing to divide
  std::uint32_t per_entry;  // rows that share an entry
  bool staggered;           // draft row j ends next_n - 1 - j before the length
};

// Rows are fewer than 2^31, so a larger repeat means what 2^31 - 1 means.
inline RowBounds row_bounds(const Bounds& b) {
  RowBounds r{};
  const bool ends = b.form == BoundsForm::ends;
  r.end = int_list(b.end);
  if (ends && b.start.given()) r.start = int_list(b.start);
  r.end_step = b.end.rank == 2 ? b.end.stride[1] : 0;
  r.ratio = !ends && b.unit == LengthUnit::tokens ? b.ratio : 1;
  r.per_entry = static_cast<std::uint32_t>(std::min(ends ? b.row_repeat : b.next_n, kMaxInt32));
  r.staggered = !ends && b.end.rank == 1 && b.next_n > 1;
  return r;
}

struct RowRange {
  std::int64_t start;
  std::int64_t end;
};

#if defined(__CUDACC__) || defined(__HIPCC__)

__device__ inline std::int64_t load_int(const IntList& list, std::int64_t at) {
  return list.wide ? static_cast<const std::int64_t*>(list.data)[at]
                   : static_cast<const std::int32_t*>(list.data)[at];
}

__device__ inline std::int64_t clamp_int(std::int64_t value, std::int64_t low, std::int64_t high) {
  return value < low ? low : (value > high ? high : value);
}

__device__ inline RowRange row_range(const RowBounds& b, std::uint32_t row, std::int64_t width) {
  const std::uint32_t entry = b.per_entry == 1 ? row : row / b.per_entry;
  const std::uint32_t draft = row - entry * b.per_entry;
  std::int64_t start = b.start.data == nullptr ? 0 : load_int(b.start, entry * b.start.stride);
  std::int64_t end = load_int(b.end, entry * b.end.stride + draft * b.end_step);
  // A length near the lowest i64 must not wrap around to a long row.
  if (b.staggered) end = end < 0 ? 0 : end - (b.per_entry - 1 - draft);
  if (b.ratio != 1) end = end < 0 ? 0 : end / b.ratio;
  end = clamp_int(end, 0, width);
  start = clamp_int(start, 0, end);
  return {start, end};
}

#endif

}  // namespace keysieve::gpu

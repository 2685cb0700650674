// access: reads and writes single elements and resolves row bounds, the plain way. Shares nothing with the
// kernels that it judges.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "keysieve/bounds.hpp"
#include "keysieve/tensor.hpp"

namespace keysieve::reference {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The element at the given index along each axis.
template <class T, class... Index>
T& at(const Tensor& t, Index... index) {
  std::int64_t offset = 0;
  int axis = 0;
  ((offset += static_cast<std::int64_t>(index) * t.stride[axis++]), ...);
  return static_cast<T*>(t.data)[offset];
}

inline float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// To the nearest bf16, ties to even; NaN stays NaN.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class... Index>
float real_at(const Tensor& t, Index... index) {
  return t.dtype == DType::bf16 ? bf16_to_float(at<std::uint16_t>(t, index...)) : at<float>(t, index...);
}

template <class... Index>
void set_real(const Tensor& t, float value, Index... index) {
  if (t.dtype == DType::bf16)
    at<std::uint16_t>(t, index...) = float_to_bf16(value);
  else
    at<float>(t, index...) = value;
}

template <class... Index>
std::int64_t integer_at(const Tensor& t, Index... index) {
  return t.dtype == DType::i64 ? at<std::int64_t>(t, index...) : at<std::int32_t>(t, index...);
}

template <class... Index>
void set_integer(const Tensor& t, std::int64_t value, Index... index) {
  if (t.dtype == DType::i64)
    at<std::int64_t>(t, index...) = value;
  else
    at<std::int32_t>(t, index...) = static_cast<std::int32_t>(value);
}

struct Range {
  std::int64_t start = 0;
  std::int64_t end = 0;
};

inline Range visible_columns(const Bounds& b, std::int64_t row, std::int64_t width) {
  Range range;
  if (b.form == BoundsForm::ends) {
    range.end = integer_at(b.end, row / b.row_repeat);
    if (b.start.given()) range.start = integer_at(b.start, row / b.row_repeat);
  } else {
    const std::int64_t request = row / b.next_n;
    const std::int64_t draft = row - request * b.next_n;
    if (b.end.rank == 2) {
      range.end = integer_at(b.end, request, draft);
    } else {
      const std::int64_t later_drafts = b.next_n - 1 - draft;
      const std::int64_t length = integer_at(b.end, request);
      range.end = length > later_drafts ? length - later_drafts : 0;
    }
    if (range.end < 0) range.end = 0;
    if (b.unit == LengthUnit::tokens) range.end /= b.ratio;
  }
  if (range.end < 0) range.end = 0;
  if (range.end > width) range.end = width;
  if (range.start < 0) range.start = 0;
  if (range.start > range.end) range.start = range.end;
  return range;
}

}  // namespace keysieve::reference

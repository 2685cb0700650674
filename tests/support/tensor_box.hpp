// tensor_box: a tensor in memory of its own, with guard words on both sides and poison in every gap, so that
// a kernel that writes or trusts what it should not is caught.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <vector>

#include "keysieve/tensor.hpp"

namespace keysieve::test {

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

class TensorBox {
 public:
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr unsigned char kPoison = 0xA7;

  TensorBox() = default;

  // Row-major; `padding` elements between neighbours along axis 0 and `column_stride` along the last; `shift`
  // elements move the start away from its alignment.
  TensorBox(DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t padding = 0,
            std::int64_t column_stride = 1, std::int64_t shift = 0)
      : TensorBox(dtype, std::vector<std::int64_t>(shape), padding, column_stride, shift) {}
  TensorBox(DType dtype, const std::vector<std::int64_t>& shape, std::int64_t padding = 0,
            std::int64_t column_stride = 1, std::int64_t shift = 0) {
    tensor_.dtype = dtype;
    tensor_.rank = static_cast<std::int32_t>(shape.size());
    std::int64_t step = column_stride;
    for (int axis = tensor_.rank - 1; axis >= 0; --axis) {
      tensor_.shape[axis] = shape[static_cast<std::size_t>(axis)];
      if (axis == 0 && tensor_.rank > 1) step += padding;
      tensor_.stride[axis] = step;
      step *= tensor_.shape[axis];
    }
    const auto span =
        static_cast<std::size_t>(step + shift + padding) * static_cast<std::size_t>(dtype_bytes(dtype));
    shift_bytes_ = static_cast<std::size_t>(shift) * static_cast<std::size_t>(dtype_bytes(dtype));
    bytes_.assign(span + 2 * kGuardBytes, kPoison);
  }

  // The view; taken anew after every move or copy of the box. An empty tensor has no address, and an axis of
  // one element has the most absurd stride that DLPack allows: whoever steps there does something undefined.
  [[nodiscard]] Tensor tensor() {
    Tensor t = tensor_;
    for (int axis = 0; axis < t.rank; ++axis)
      if (t.shape[axis] == 1) t.stride[axis] = std::numeric_limits<std::int64_t>::max();
    if (t.elements() > 0) t.data = bytes_.data() + kGuardBytes + shift_bytes_;
    return t;
  }

  template <class... Index>
  [[nodiscard]] std::int64_t offset(Index... index) const {
    std::int64_t at = 0;
    int axis = 0;
    ((at += static_cast<std::int64_t>(index) * tensor_.stride[axis++]), ...);
    return at;
  }
  template <class T, class... Index>
  [[nodiscard]] T& at(Index... index) {
    return reinterpret_cast<T*>(bytes_.data() + kGuardBytes + shift_bytes_)[offset(index...)];
  }
  template <class... Index>
  void set(double value, Index... index) {
    switch (tensor_.dtype) {
      case DType::f32:
        at<float>(index...) = static_cast<float>(value);
        break;
      case DType::bf16:
        at<std::uint16_t>(index...) = to_bf16(static_cast<float>(value));
        break;
      case DType::i32:
        at<std::int32_t>(index...) = static_cast<std::int32_t>(value);
        break;
      case DType::u32:
        at<std::uint32_t>(index...) = static_cast<std::uint32_t>(value);
        break;
      case DType::i64:
        at<std::int64_t>(index...) = static_cast<std::int64_t>(value);
        break;
      case DType::u8:
        at<std::uint8_t>(index...) = static_cast<std::uint8_t>(value);
        break;
      case DType::none:
        break;
    }
  }
  template <class... Index>
  [[nodiscard]] double get(Index... index) {
    switch (tensor_.dtype) {
      case DType::f32:
        return at<float>(index...);
      case DType::bf16:
        return from_bf16(at<std::uint16_t>(index...));
      case DType::i32:
        return at<std::int32_t>(index...);
      case DType::u32:
        return at<std::uint32_t>(index...);
      case DType::i64:
        return static_cast<double>(at<std::int64_t>(index...));
      case DType::u8:
        return at<std::uint8_t>(index...);
      case DType::none:
        break;
    }
    return 0;
  }
  // Calls f(i, j) for every element of a matrix, or f(i) for a vector through f(i, 0).
  template <class F>
  void fill(F&& f) {
    if (tensor_.rank == 1) {
      for (std::int64_t i = 0; i < tensor_.shape[0]; ++i) set(static_cast<double>(f(i, std::int64_t{0})), i);
    } else {
      for (std::int64_t i = 0; i < tensor_.shape[0]; ++i)
        for (std::int64_t j = 0; j < tensor_.shape[1]; ++j) set(static_cast<double>(f(i, j)), i, j);
    }
  }
  template <class T>
  static TensorBox of(DType dtype, const std::vector<T>& values) {
    TensorBox box(dtype, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i)
      box.set(static_cast<double>(values[i]), static_cast<std::int64_t>(i));
    return box;
  }

  // Everything: elements, gaps and guards.
  [[nodiscard]] const std::vector<unsigned char>& bytes() const { return bytes_; }
  [[nodiscard]] unsigned char* raw_bytes() { return bytes_.data(); }

 private:
  Tensor tensor_;
  std::size_t shift_bytes_ = 0;
  std::vector<unsigned char> bytes_;
};

}  // namespace keysieve::test

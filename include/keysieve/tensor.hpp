// tensor: a view of memory that the caller owns. Strides count elements, as in DLPack.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace keysieve {

// f8 formats and packed nibbles travel as u8; the operation's arguments say how to read them.
enum class DType : std::uint8_t { none = 0, f32, bf16, i32, i64, u32, u8 };

[[nodiscard]] constexpr int dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
    case DType::none:
      break;
  }
  return 0;
}

[[nodiscard]] constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u32:
      return "u32";
    case DType::u8:
      return "u8";
    case DType::none:
      break;
  }
  return "none";
}

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  std::int32_t index = 0;
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::none;  // none: an optional argument that was not given
  std::int32_t rank = 0;
  std::int64_t shape[kMaxRank] = {0, 0, 0, 0};
  std::int64_t stride[kMaxRank] = {0, 0, 0, 0};
  Device device{};

  [[nodiscard]] constexpr bool given() const { return dtype != DType::none; }

  // The product of the sizes; the greatest number where it does not fit.
  [[nodiscard]] constexpr std::int64_t elements() const {
    const std::int32_t axes = rank < kMaxRank ? rank : kMaxRank;
    std::int64_t count = given() ? 1 : 0;
    for (int axis = 0; axis < axes; ++axis)
      if (shape[axis] == 0) count = 0;
    for (int axis = 0; axis < axes && count > 0; ++axis)
      if (__builtin_mul_overflow(count, shape[axis], &count))
        count = std::numeric_limits<std::int64_t>::max();
    return count;
  }

  // A dense row-major view. More axes than kMaxRank give a tensor that every operation refuses.
  static constexpr Tensor dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                                Device device = {}) {
    Tensor t;
    t.data = data;
    t.dtype = dtype;
    t.device = device;
    for (const std::int64_t extent : shape) {
      if (t.rank < kMaxRank) t.shape[t.rank] = extent;
      ++t.rank;
    }
    std::int64_t step = 1;
    for (int axis = (t.rank < kMaxRank ? t.rank : kMaxRank) - 1; axis >= 0; --axis) {
      t.stride[axis] = step;
      // Sizes whose product does not fit have no memory anyway.
      if (__builtin_mul_overflow(step, t.shape[axis], &step)) step = std::numeric_limits<std::int64_t>::max();
    }
    return t;
  }
};

}  // namespace keysieve

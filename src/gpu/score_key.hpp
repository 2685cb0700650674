// score_key: scores as integers of the same order.
#pragma once

#include <cstdint>

#include "gpu/vendor.hpp"

namespace keysieve::gpu {

// Above every number: NaN. Below -inf, whose key is 0x007fffff: nothing.
inline constexpr std::uint32_t kNanKey = ~std::uint32_t{0};
inline constexpr std::uint32_t kMinusInfinityKey = 0x007fffffu;

#if defined(__CUDACC__) || defined(__HIPCC__)

// -0 and +0 share a key; NaN is the caller's business.
__device__ inline std::uint32_t score_key(float score) {
  const std::uint32_t bits = __float_as_uint(score + 0.f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ inline float bf16_as_float(std::uint32_t bits) { return __uint_as_float(bits << 16); }

// One element of a score matrix.
struct F32Score {
  using Word = std::uint32_t;
  static constexpr int kPerVector = 4;
  __device__ static float value(Word word) { return __uint_as_float(word); }
  // Element i of a 16-byte vector.
  __device__ static float value(const uint4& vector, int i) {
    return __uint_as_float(i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w);
  }
};
struct Bf16Score {
  using Word = std::uint16_t;
  static constexpr int kPerVector = 8;
  __device__ static float value(Word word) { return bf16_as_float(word); }
  __device__ static float value(const uint4& vector, int i) {
    const std::uint32_t word = i < 2 ? vector.x : i < 4 ? vector.y : i < 6 ? vector.z : vector.w;
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
};

#endif

}  // namespace keysieve::gpu

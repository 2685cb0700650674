// key_codes: floats as e4m3fn and e2m1 codes, in integer arithmetic on their bits, without a branch on the value.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace keysieve::cpu {

// Ties to even, saturating; NaN becomes the positive NaN code.
inline std::uint8_t to_e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return 0x7f;
  // At 2^-6 and above: the fraction keeps its upper 3 bits, rounded, and a carry moves into the exponent.
  const std::uint32_t normal = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1)) >> 20) - (120u << 3);
  // Below: adding 2^14 leaves multiples of 2^-9 in the lowest bits, rounded by the addition itself.
  const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1p14f);
  const std::uint32_t code = magnitude < 0x3c800000u ? subnormal : magnitude > 0x43e00000u ? 0x7eu : normal;
  return static_cast<std::uint8_t>(code | sign);
}

// A magnitude of up to 6 that is no NaN. The midpoints are 0.25, 0.75, 1.25, 1.75, 2.5, 3.5 and 5: of a tie, every
// other one goes up to the even code.
inline std::uint32_t to_e2m1(float magnitude, bool ties_down) {
  const auto above = [&](float middle, bool up) -> std::uint32_t {
    return magnitude > middle || (up && !ties_down && magnitude == middle) ? 1u : 0u;
  };
  return above(0.25f, false) + above(0.75f, true) + above(1.25f, false) + above(1.75f, true) +
         above(2.5f, false) + above(3.5f, true) + above(5.f, false);
}

// The exponent of the least power of two that is not less than a positive number; subnormals count as 2^-126.
inline int power_not_less(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<int>(bits >> 23) - 127 + ((bits & 0x7fffffu) != 0 ? 1 : 0);
}
inline float power_of_two(int exponent) {  // -126 to 127
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

}  // namespace keysieve::cpu

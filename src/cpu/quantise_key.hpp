// quantise_key: a head or key of 32, 64 or 128 floats as fp8 or MXFP4 codes; what index_store and prepare_queries share.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "contract/mutant.hpp"
#include "cpu/key_codes.hpp"
#include "keysieve/tensor.hpp"

namespace keysieve::cpu {

inline constexpr std::int64_t kMostKeyDim = 128, kScaleGroup = 32;

// IXS-18: of numbers; an infinity counts as the greatest float.
inline float greatest_magnitude(const float* key, std::int64_t count) {
  float greatest = 0;
  for (std::int64_t d = 0; d < count; ++d) {
    const float x = std::fabs(key[d]);
    greatest = x > greatest ? x : greatest;  // false for NaN
  }
  return std::min(greatest, std::numeric_limits<float>::max());
}

// Writes dim codes and returns their scale.
inline float quantise_fp8(const float* key, std::int64_t dim, float floor, bool power_of_two_scale,
                          bool reciprocal, unsigned char* codes) {
  float scale = std::max(greatest_magnitude(key, dim), floor) / 448.f;
  if (power_of_two_scale && !mutant("index_store.scale_mode")) scale = power_of_two(power_not_less(scale));
  if (reciprocal && !mutant("index_store.reciprocal")) {
    const float factor = 1.f / scale;
    for (std::int64_t d = 0; d < dim; ++d) codes[d] = to_e4m3(key[d] * factor);
  } else {
    for (std::int64_t d = 0; d < dim; ++d) codes[d] = to_e4m3(key[d] / scale);
  }
  return scale;
}

// Writes dim / 2 bytes of codes and dim / 32 scales.
inline void quantise_mxfp4(const float* key, std::int64_t dim, bool peers_ties, unsigned char* codes,
                           unsigned char* scales) {
  const bool ties_down = peers_ties || mutant("index_store.ties");
  for (std::int64_t g = 0; g < dim / kScaleGroup; ++g) {
    const float* group = key + g * kScaleGroup;
    const float greatest = std::max(greatest_magnitude(group, kScaleGroup), peers_ties ? 1e-4f : 0.f);
    const int exponent = std::max(power_not_less(greatest / 6.f), -126);
    const double factor = std::ldexp(1.0, -exponent);  // up to 2^126, and exact
    bool nan = false;
    std::uint32_t pair = 0;
    for (std::int64_t d = 0; d < kScaleGroup; ++d) {
      const float x = group[d];
      const auto sign = std::bit_cast<std::uint32_t>(x) >> 31 << 3;
      nan = nan || x != x;
      const auto scaled = static_cast<float>(std::min(std::fabs(static_cast<double>(x)) * factor, 6.0));
      const std::uint32_t code = x != x ? 0 : to_e2m1(scaled, ties_down) | sign;
      if (d % 2 == 0)
        pair = code;
      else
        codes[(g * kScaleGroup + d) / 2] = static_cast<unsigned char>(pair | code << 4);
    }
    scales[g] = static_cast<unsigned char>(nan && !mutant("index_store.nan") ? 255 : exponent + 127);
  }
}

// `dim` elements from element `at` of a tensor on.
inline void load_floats(const Tensor& t, std::int64_t at, std::int64_t dim, float* key) {
  if (t.dtype == DType::f32) {
    const float* words = static_cast<const float*>(t.data) + at;
    std::copy(words, words + dim, key);
    return;
  }
  const std::uint16_t* words = static_cast<const std::uint16_t*>(t.data) + at;
  for (std::int64_t d = 0; d < dim; ++d) key[d] = std::bit_cast<float>(std::uint32_t{words[d]} << 16);
}

}  // namespace keysieve::cpu

// quantise: fp8 and MXFP4 codes as defined, each by trying all of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace keysieve::reference {

inline constexpr double kE4m3Greatest = 448, kE2m1Greatest = 6;

inline double e4m3_value(int code) {  // without its sign
  const int exponent = code >> 3, fraction = code & 7;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}
inline double e2m1_value(int code) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return kValues[code];
}

// The code of 0 to `last` whose value is nearest; of two, the even one, or the smaller.
template <class Value>
int nearest_code(double magnitude, int last, Value&& value, bool ties_down) {
  int best = 0;
  for (int code = 1; code <= last; ++code) {
    const double now = std::fabs(value(code) - magnitude), before = std::fabs(value(best) - magnitude);
    if (now < before || (now == before && !ties_down && code % 2 == 0)) best = code;
  }
  return best;
}

// Of numbers; an infinity counts as the greatest float.
inline float greatest_magnitude(const std::vector<float>& x, std::size_t from, std::size_t count) {
  float greatest = 0;
  for (std::size_t d = from; d < from + count; ++d)
    if (!std::isnan(x[d]))
      greatest = std::max(greatest, std::min(std::fabs(x[d]), std::numeric_limits<float>::max()));
  return greatest;
}

// The exponent of the least power of two that is not less.
inline int power_not_less(float x) {
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);  // in [0.5, 1)
  return fraction == 0.5F ? exponent - 1 : exponent;
}

// The codes of a key, a byte each, and its scale.
struct Fp8Key {
  std::vector<int> codes;
  float scale = 0;
};

inline Fp8Key quantise_fp8(const std::vector<float>& x, float floor, bool power_of_two_scale,
                           bool reciprocal) {
  Fp8Key key;
  key.scale = std::max(greatest_magnitude(x, 0, x.size()), floor) / 448.0F;
  if (power_of_two_scale) key.scale = std::ldexp(1.0F, power_not_less(key.scale));
  for (const float value : x) {
    const float scaled = reciprocal ? value * (1.0F / key.scale) : value / key.scale;
    int code = 0x7f;
    if (!std::isnan(value)) {
      const double magnitude = std::min<double>(std::fabs(scaled), kE4m3Greatest);
      code = nearest_code(magnitude, 0x7e, e4m3_value, false) | (std::signbit(scaled) ? 0x80 : 0);
    }
    key.codes.push_back(code);
  }
  return key;
}

// The codes of a key, four bits each, and a scale for each 32.
struct Mxfp4Key {
  std::vector<int> codes;
  std::vector<int> scales;
};

inline Mxfp4Key quantise_mxfp4(const std::vector<float>& x, bool ties_down) {
  constexpr std::size_t kGroup = 32;
  Mxfp4Key key;
  for (std::size_t from = 0; from < x.size(); from += kGroup) {
    float greatest = greatest_magnitude(x, from, kGroup);
    if (ties_down) greatest = std::max(greatest, 1e-4F);
    const float wanted = greatest / 6.0F;
    const int exponent = wanted > 0 ? std::max(power_not_less(wanted), -126) : -126;
    bool nan = false;
    for (std::size_t d = from; d < from + kGroup; ++d) {
      nan = nan || std::isnan(x[d]);
      int code = 0;
      if (!std::isnan(x[d])) {
        const double magnitude =
            std::min(std::ldexp(std::fabs(static_cast<double>(x[d])), -exponent), kE2m1Greatest);
        code = nearest_code(magnitude, 7, e2m1_value, ties_down) | (std::signbit(x[d]) ? 8 : 0);
      }
      key.codes.push_back(code);
    }
    key.scales.push_back(nan ? 255 : exponent + 127);
  }
  return key;
}

}  // namespace keysieve::reference

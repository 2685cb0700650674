// index_store, as defined: every code by trying all of them.
#include "keysieve/index_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/access.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

constexpr double kE4m3Greatest = 448, kE2m1Greatest = 6;

double e4m3_value(int code) {  // without its sign
  const int exponent = code >> 3, fraction = code & 7;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}
double e2m1_value(int code) {
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
float greatest_magnitude(const Tensor& keys, std::int64_t token, std::int64_t from, std::int64_t count) {
  float greatest = 0;
  for (std::int64_t d = from; d < from + count; ++d) {
    const float x = std::fabs(real_at(keys, token, d));
    if (!std::isnan(x)) greatest = std::max(greatest, std::min(x, std::numeric_limits<float>::max()));
  }
  return greatest;
}

// The exponent of the least power of two that is not less.
int power_not_less(float x) {
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);  // in [0.5, 1)
  return fraction == 0.5F ? exponent - 1 : exponent;
}

void store_fp8(const IndexStoreArgs& a, std::int64_t token, unsigned char* page, std::int64_t place) {
  const std::int64_t dim = a.keys.shape[1];
  float scale = std::max(greatest_magnitude(a.keys, token, 0, dim), 1e-4F) / 448.0F;
  if (a.scale == KeyScale::ue8m0) scale = std::ldexp(1.0F, power_not_less(scale));
  for (std::int64_t d = 0; d < dim; ++d) {
    const float x = real_at(a.keys, token, d);
    const float scaled = a.reciprocal ? x * (1.0F / scale) : x / scale;
    int code = 0x7f;
    if (!std::isnan(x)) {
      const double magnitude = std::min<double>(std::fabs(scaled), kE4m3Greatest);
      code = nearest_code(magnitude, 0x7e, e4m3_value, false) | (std::signbit(scaled) ? 0x80 : 0);
    }
    page[place * dim + d] = static_cast<unsigned char>(code);
  }
  std::memcpy(page + a.page_tokens * dim + place * 4, &scale, sizeof(scale));
}

void store_mxfp4(const IndexStoreArgs& a, std::int64_t token, unsigned char* page, std::int64_t place) {
  constexpr std::int64_t kGroup = 32;
  const std::int64_t dim = a.keys.shape[1], groups = dim / kGroup;
  for (std::int64_t g = 0; g < groups; ++g) {
    float greatest = greatest_magnitude(a.keys, token, g * kGroup, kGroup);
    if (a.ties_down) greatest = std::max(greatest, 1e-4F);
    const float wanted = greatest / 6.0F;
    const int exponent = wanted > 0 ? std::max(power_not_less(wanted), -126) : -126;
    bool nan = false;
    for (std::int64_t d = 0; d < kGroup; ++d) {
      const float x = real_at(a.keys, token, g * kGroup + d);
      nan = nan || std::isnan(x);
      int code = 0;
      if (!std::isnan(x)) {
        const double magnitude =
            std::min(std::ldexp(std::fabs(static_cast<double>(x)), -exponent), kE2m1Greatest);
        code = nearest_code(magnitude, 7, e2m1_value, a.ties_down) | (std::signbit(x) ? 8 : 0);
      }
      unsigned char& pair = page[place * dim / 2 + (g * kGroup + d) / 2];
      pair = static_cast<unsigned char>(d % 2 == 0 ? (pair & 0xf0) | code : (pair & 0x0f) | code << 4);
    }
    page[a.page_tokens * dim / 2 + place * groups + g] =
        static_cast<unsigned char>(nan ? 255 : exponent + 127);
  }
}

Status run(const IndexStoreArgs& a, const Launch&) {
  for (std::int64_t token = 0; token < a.keys.shape[0]; ++token) {
    const std::int64_t slot = integer_at(a.slots, token);
    if (slot < 0 || slot / a.page_tokens >= a.cache.shape[0]) continue;
    auto* page = static_cast<unsigned char*>(a.cache.data) + slot / a.page_tokens * a.cache.stride[0];
    if (a.format == KeyFormat::fp8)
      store_fp8(a, token, page, slot % a.page_tokens);
    else
      store_mxfp4(a, token, page, slot % a.page_tokens);
  }
  return {};
}

}  // namespace

extern const Kernel<IndexStoreArgs> kIndexStoreKernels[] = {
    {"reference.index_store", [](const IndexStoreArgs&) -> const char* { return nullptr; },
     [](const IndexStoreArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

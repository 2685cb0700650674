// cpu.index_store.slots: each task owns every n-th page and takes all tokens in order, so that of tokens that name one
// slot the last stays, whoever runs the tasks (IXS-16). Each token writes its own bytes and no others (IXS-15).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "contract/mutant.hpp"
#include "cpu/denormals.hpp"
#include "cpu/key_codes.hpp"
#include "cpu/parallel.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/index_store.hpp"

namespace keysieve::cpu {
namespace {

constexpr std::int64_t kMostDim = 128, kGroup = 32;

void load_key(const Tensor& keys, std::int64_t token, float* key) {
  const std::int64_t dim = keys.shape[1], at = token * keys.stride[0];
  if (keys.dtype == DType::f32) {
    std::memcpy(key, static_cast<const float*>(keys.data) + at,
                static_cast<std::size_t>(dim) * sizeof(float));
    return;
  }
  const std::uint16_t* words = static_cast<const std::uint16_t*>(keys.data) + at;
  for (std::int64_t d = 0; d < dim; ++d) key[d] = std::bit_cast<float>(std::uint32_t{words[d]} << 16);
}

// IXS-18: of numbers; an infinity counts as the greatest float.
float greatest_magnitude(const float* key, std::int64_t count) {
  float greatest = 0;
  for (std::int64_t d = 0; d < count; ++d) {
    const float x = std::fabs(key[d]);
    greatest = x > greatest ? x : greatest;  // false for NaN
  }
  return std::min(greatest, std::numeric_limits<float>::max());
}

void store_fp8(const IndexStoreArgs& a, const float* key, unsigned char* page, std::int64_t place) {
  const std::int64_t dim = a.keys.shape[1];
  float scale = std::max(greatest_magnitude(key, dim), 1e-4f) / 448.f;
  if (a.scale == KeyScale::ue8m0 && !mutant("index_store.scale_mode"))
    scale = power_of_two(power_not_less(scale));
  unsigned char* codes = page + place * dim;
  if (a.reciprocal && !mutant("index_store.reciprocal")) {
    const float factor = 1.f / scale;
    for (std::int64_t d = 0; d < dim; ++d) codes[d] = to_e4m3(key[d] * factor);
  } else {
    for (std::int64_t d = 0; d < dim; ++d) codes[d] = to_e4m3(key[d] / scale);
  }
  std::memcpy(page + a.page_tokens * dim + place * 4, &scale, sizeof(scale));
}

void store_mxfp4(const IndexStoreArgs& a, const float* key, unsigned char* page, std::int64_t place) {
  const std::int64_t dim = a.keys.shape[1], groups = dim / kGroup;
  unsigned char* codes = page + place * dim / 2;
  unsigned char* scales = page + a.page_tokens * dim / 2 + place * groups;
  const bool ties_down = a.ties_down || mutant("index_store.ties");
  for (std::int64_t g = 0; g < groups; ++g) {
    const float* group = key + g * kGroup;
    const float greatest = std::max(greatest_magnitude(group, kGroup), a.ties_down ? 1e-4f : 0.f);
    const int exponent = std::max(power_not_less(greatest / 6.f), -126);
    const double factor = std::ldexp(1.0, -exponent);  // up to 2^126, and exact
    bool nan = false;
    std::uint32_t pair = 0;
    for (std::int64_t d = 0; d < kGroup; ++d) {
      const float x = group[d];
      const auto sign = std::bit_cast<std::uint32_t>(x) >> 31 << 3;
      nan = nan || x != x;
      const auto scaled = static_cast<float>(std::min(std::fabs(static_cast<double>(x)) * factor, 6.0));
      const std::uint32_t code = x != x ? 0 : to_e2m1(scaled, ties_down) | sign;
      if (d % 2 == 0)
        pair = code;
      else
        codes[(g * kGroup + d) / 2] = static_cast<unsigned char>(pair | code << 4);
    }
    scales[g] = static_cast<unsigned char>(nan && !mutant("index_store.nan") ? 255 : exponent + 127);
  }
}

const char* refuses(const IndexStoreArgs&) { return nullptr; }

std::size_t workspace_bytes(const IndexStoreArgs&, std::int32_t) { return 0; }

Status run(const IndexStoreArgs& a, const Launch& launch) {
  const std::int64_t tokens = a.keys.shape[0], pages = a.cache.shape[0];
  const std::int64_t tasks =
      std::clamp<std::int64_t>(launch.concurrency, 1, std::max<std::int64_t>(tokens / 16, 1));
  for_each_task(launch, tasks, [&](std::int64_t task, int) {
    const KeepDenormals keep_denormals;
    float key[kMostDim];
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int64_t slot = load_int(a.slots, token);
      if (slot < 0) continue;  // IXS-17
      const std::int64_t page = slot / a.page_tokens;
      if (page >= pages || page % tasks != task) continue;
      load_key(a.keys, token, key);
      auto* bytes = static_cast<unsigned char*>(a.cache.data) + page * a.cache.stride[0];
      const std::int64_t place = slot - page * a.page_tokens;
      if (a.format == KeyFormat::fp8)
        store_fp8(a, key, bytes, place);
      else
        store_mxfp4(a, key, bytes, place);
    }
  });
  return {};
}

}  // namespace

extern const Kernel<IndexStoreArgs> kIndexStoreKernels[] = {
    {"cpu.index_store.slots", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu

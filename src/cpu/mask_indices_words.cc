// cpu.mask_indices.words: one task a token; the row's words in order, the set bits of each from the lowest.
#include <bit>

#include "contract/mutant.hpp"
#include "cpu/mask_requests.hpp"
#include "cpu/parallel.hpp"
#include "keysieve/packed_mask.hpp"

namespace keysieve::cpu {
namespace {

// The first request with a row for the token, or -1 (PKM-34).
std::int64_t request_of(const MaskIndicesArgs& a, std::int64_t token) {
  for (std::int64_t request = 0; request < a.mask.shape[0]; ++request) {
    const std::int64_t row = token - load_int(a.q_start, request);
    if (row >= 0 && row < a.mask.shape[1] && mask_token(a, request, row, a.out.shape[0]) == token)
      return request;
  }
  return -1;
}

// PKM-39: ascending keys, -1 behind them, and the row's own count even where the list is shorter.
void list_token(const MaskIndicesArgs& a, std::int64_t token) {
  auto* out = static_cast<std::int32_t*>(a.out.data) + token * a.out.stride[0];
  const std::int64_t places = a.out.shape[1], stride = a.out.stride[1];
  std::int64_t kept = 0;
  if (const std::int64_t request = request_of(a, token); request >= 0) {
    const MaskKeys keys = mask_keys(a, request);
    const std::int64_t row = token - load_int(a.q_start, request);
    const auto* words =
        static_cast<const std::uint32_t*>(a.mask.data) + request * a.mask.stride[0] + row * a.mask.stride[1];
    const std::int64_t first = mutant("mask_indices.first") ? 0 : keys.first;
    const std::int64_t low = keys.low - keys.first;
    const std::int64_t high = mutant("mask_indices.count") ? a.mask.shape[2] * 32 : keys.high - keys.first;
    for (std::int64_t word = low / 32; word * 32 < high; ++word) {
      std::uint32_t bits = words[word];
      if (word * 32 < low) bits &= ~std::uint32_t{0} << (low - word * 32);
      if (high - word * 32 < 32) bits &= (std::uint32_t{1} << (high - word * 32)) - 1;
      std::int64_t place = kept;
      kept += std::popcount(bits);
      for (; bits != 0 && place < places; bits &= bits - 1, ++place)
        out[place * stride] = static_cast<std::int32_t>(first + word * 32 + std::countr_zero(bits));
    }
  }
  for (std::int64_t place = kept; place < places; ++place) out[place * stride] = -1;
  if (!a.counts.given()) return;
  if (mutant("mask_indices.cut_count")) kept = std::min(kept, places);
  static_cast<std::int32_t*>(a.counts.data)[token * a.counts.stride[0]] = static_cast<std::int32_t>(kept);
}

const char* refuses(const MaskIndicesArgs&) { return nullptr; }

std::size_t workspace_bytes(const MaskIndicesArgs&, std::int32_t) { return 0; }

Status run(const MaskIndicesArgs& a, const Launch& launch) {
  for_each_task(launch, a.out.shape[0], [&](std::int64_t token, int) { list_token(a, token); });
  return {};
}

}  // namespace

extern const Kernel<MaskIndicesArgs> kMaskIndicesKernels[] = {
    {"cpu.mask_indices.words", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu

// cpu.mask_indices.words: one task a token; the row's words in order, the set bits of each from the lowest.
// Compiled per target for its bit instructions: counting bits without one costs 10 times as much.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mask_indices_words.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>

#include "contract/mutant.hpp"
#include "cpu/bits.hpp"
#include "cpu/mask_requests.hpp"
#include "cpu/parallel.hpp"
#include "keysieve/packed_mask.hpp"

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::mask_indices_words::HWY_NAMESPACE {

// The first request with a row for the token, or -1 (PKM-34).
std::int64_t request_of(const MaskIndicesArgs& a, std::int64_t token) {
  for (std::int64_t request = 0; request < a.mask.shape[0]; ++request) {
    const std::int64_t row = token - first_token(a, request);
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
    const std::int64_t row = token - first_token(a, request);
    const auto* words =
        static_cast<const std::uint32_t*>(a.mask.data) + request * a.mask.stride[0] + row * a.mask.stride[1];
    const std::int64_t first = mutant("mask_indices.first") ? 0 : keys.first;
    const std::int64_t low = keys.low - keys.first;
    const std::int64_t high = mutant("mask_indices.count") ? a.mask.shape[2] * 32 : keys.high - keys.first;
    // PKM-34: keys that all lie below 0 leave no range, and `low` may then be past the row.
    for (std::int64_t word = low / 32; low < high && word * 32 < high; ++word) {
      std::uint32_t bits = words[word];
      if (word * 32 < low) bits &= ~std::uint32_t{0} << (low - word * 32);
      if (high - word * 32 < 32) bits &= (std::uint32_t{1} << (high - word * 32)) - 1;
      std::int64_t place = kept;
      // append_bits writes four places at least and no branch; rows' last places are written one by one.
      if (stride == 1 && place + 32 <= places) {
        kept += append_bits(out + place, bits, static_cast<std::int32_t>(first + word * 32));
        continue;
      }
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

void list_tokens(const MaskIndicesArgs& a, const Launch& launch) {
  for_each_task(launch, a.out.shape[0], [&](std::int64_t token, int) { list_token(a, token); });
}

}  // namespace keysieve::cpu::mask_indices_words::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {
namespace mask_indices_words {
namespace {

HWY_EXPORT(list_tokens);

const char* refuses(const MaskIndicesArgs&) { return nullptr; }

std::size_t workspace_bytes(const MaskIndicesArgs&, std::int32_t) { return 0; }

Status run(const MaskIndicesArgs& a, const Launch& launch) {
  HWY_DYNAMIC_DISPATCH(list_tokens)(a, launch);
  return {};
}

}  // namespace
}  // namespace mask_indices_words

extern const Kernel<MaskIndicesArgs> kMaskIndicesKernels[] = {
    {"cpu.mask_indices.words", mask_indices_words::refuses, mask_indices_words::workspace_bytes,
     mask_indices_words::run}};

}  // namespace keysieve::cpu
#endif

// packed_mask and its inverse, as defined: ask for every bit of every row whether its key is kept.
#include "keysieve/packed_mask.hpp"

#include <algorithm>
#include <vector>

#include "reference/access.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

struct Request {
  std::int64_t first_token = 0;
  std::int64_t last_token = 0;
  std::int64_t first_key = 0;
  std::int64_t keys = 0;  // bits that mean something
};

template <class Args>
Request request_of(const Args& a, std::int64_t index) {
  Request request;
  // No tensor has 2^60 tokens, so starts farther away mean the same and rows can be added to them.
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  request.first_token = std::clamp(integer_at(a.q_start, index), -kFar, kFar);
  request.last_token = std::clamp(integer_at(a.q_start, index + 1), -kFar, kFar);
  if (a.key_first.given()) request.first_key = integer_at(a.key_first, index);
  request.keys = std::clamp<std::int64_t>(integer_at(a.key_count, index), 0, a.mask.shape[2] * 32);
  return request;
}

// The token of a mask row, or -1 if it is padding. Nothing is assumed of the starts.
std::int64_t token_of(const Request& request, std::int64_t row, std::int64_t tokens) {
  const std::int64_t token = request.first_token + row;
  return token >= 0 && token < request.last_token && token < tokens ? token : -1;
}

// The local keys that a token keeps, whatever its request's key range.
class KeptKeys {
 public:
  KeptKeys(const PackedMaskArgs& a, std::int64_t token) : a_(a), token_(token) {
    constexpr std::int64_t kWidest = std::int64_t{1} << 31;
    visible_ = {0, a.scores.given() ? a.scores.shape[1] : kWidest};
    if (a.bounds.end.given()) visible_ = visible_columns(a.bounds, token, visible_.end);
    const Tensor& list = a.indices.given() ? a.indices : a.candidates;
    if (!list.given()) return;
    for (std::int64_t j = 0; j < list.shape[1]; ++j) listed_.push_back(at<std::int32_t>(list, token, j));
    std::sort(listed_.begin(), listed_.end());
  }
  [[nodiscard]] bool has(std::int64_t key) const {
    if (key < 0 || key >= visible_.end - visible_.start) return false;
    if (a_.scores.given()) {
      const float score = real_at(a_.scores, token_, visible_.start + key);
      return std::isnan(score) || score >= at<float>(a_.thresholds, token_);
    }
    const std::int64_t wanted = a_.indices.given() ? key : key / a_.block_size;
    return std::binary_search(listed_.begin(), listed_.end(), wanted);
  }

 private:
  const PackedMaskArgs& a_;
  std::int64_t token_;
  Range visible_;
  std::vector<std::int64_t> listed_;
};

void clear(const Tensor& t, std::int64_t request) {
  for (std::int64_t i = 0; i < t.shape[1]; ++i)
    for (std::int64_t j = 0; j < t.shape[2]; ++j) at<std::uint32_t>(t, request, i, j) = 0;
}

bool is_set(const Tensor& mask, std::int64_t request, std::int64_t row, std::int64_t bit) {
  return (at<std::uint32_t>(mask, request, row, bit / 32) >> (bit % 32) & 1) != 0;
}

// Tiles of 128 x 128 with a kept cell, and tiles without a missing one. Only cells that belong to a token and
// to a key count, so a tile without any misses none.
void summarise(const PackedMaskArgs& a, std::int64_t index, const Request& request, std::int64_t tokens) {
  if (a.any.given()) clear(a.any, index);
  if (a.all.given()) clear(a.all, index);
  for (std::int64_t strip = 0; strip < (a.mask.shape[1] + 127) / 128; ++strip)
    for (std::int64_t tile = 0; tile < (a.mask.shape[2] + 3) / 4; ++tile) {
      bool any = false, all = true;
      for (std::int64_t row = strip * 128; row < std::min(strip * 128 + 128, a.mask.shape[1]); ++row)
        for (std::int64_t bit = tile * 128; bit < std::min(tile * 128 + 128, request.keys); ++bit) {
          if (token_of(request, row, tokens) < 0) continue;
          const bool kept = is_set(a.mask, index, row, bit);
          any = any || kept;
          all = all && kept;
        }
      if (any && a.any.given()) at<std::uint32_t>(a.any, index, strip, tile / 32) |= 1u << (tile % 32);
      if (all && a.all.given()) at<std::uint32_t>(a.all, index, strip, tile / 32) |= 1u << (tile % 32);
    }
}

Status run_build(const PackedMaskArgs& a, const Launch&) {
  const Tensor& source = a.indices.given() ? a.indices : a.candidates.given() ? a.candidates : a.scores;
  const std::int64_t tokens = source.shape[0];
  for (std::int64_t index = 0; index < a.mask.shape[0]; ++index) {
    const Request request = request_of(a, index);
    clear(a.mask, index);
    for (std::int64_t row = 0; row < a.mask.shape[1]; ++row) {
      const std::int64_t token = token_of(request, row, tokens);
      if (token < 0) continue;
      const KeptKeys kept(a, token);
      for (std::int64_t bit = 0; bit < request.keys; ++bit) {
        // A key past 63 bits is no key.
        std::int64_t key = 0;
        if (__builtin_add_overflow(request.first_key, bit, &key)) continue;
        if (kept.has(key)) at<std::uint32_t>(a.mask, index, row, bit / 32) |= 1u << (bit % 32);
      }
    }
    summarise(a, index, request, tokens);
  }
  return {};
}

// The keys that a token's row keeps; a token in several requests belongs to the first, one in none keeps
// nothing.
std::vector<std::int64_t> keys_of(const MaskIndicesArgs& a, std::int64_t token) {
  std::vector<std::int64_t> keys;
  for (std::int64_t index = 0; index < a.mask.shape[0]; ++index) {
    const Request request = request_of(a, index);
    const std::int64_t row = token - request.first_token;
    if (row < 0 || row >= a.mask.shape[1] || token_of(request, row, a.out.shape[0]) != token) continue;
    for (std::int64_t bit = 0; bit < request.keys; ++bit) {
      std::int64_t key = 0;
      if (__builtin_add_overflow(request.first_key, bit, &key)) continue;
      // Only 31-bit numbers are keys.
      if (key >= 0 && key < std::int64_t{1} << 31 && is_set(a.mask, index, row, bit)) keys.push_back(key);
    }
    break;
  }
  return keys;
}

Status run_indices(const MaskIndicesArgs& a, const Launch&) {
  for (std::int64_t token = 0; token < a.out.shape[0]; ++token) {
    const std::vector<std::int64_t> keys = keys_of(a, token);
    const auto count = static_cast<std::int64_t>(keys.size());
    for (std::int64_t place = 0; place < a.out.shape[1]; ++place)
      set_integer(a.out, place < count ? keys[static_cast<std::size_t>(place)] : -1, token, place);
    if (a.counts.given()) set_integer(a.counts, count, token);
  }
  return {};
}

}  // namespace

extern const Kernel<PackedMaskArgs> kPackedMaskKernels[] = {
    {"reference.packed_mask", [](const PackedMaskArgs&) -> const char* { return nullptr; },
     [](const PackedMaskArgs&, std::int32_t) -> std::size_t { return 0; }, run_build}};

extern const Kernel<MaskIndicesArgs> kMaskIndicesKernels[] = {
    {"reference.mask_indices", [](const MaskIndicesArgs&) -> const char* { return nullptr; },
     [](const MaskIndicesArgs&, std::int32_t) -> std::size_t { return 0; }, run_indices}};

}  // namespace keysieve::reference

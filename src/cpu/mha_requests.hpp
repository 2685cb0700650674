// mha_requests: which tokens and keys each request of masked_mha owns, and what its mask and the causal rule
// let a query see. All of it is data of the caller, so nothing here trusts it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "contract/mutant.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/masked_mha.hpp"

namespace keysieve::cpu {

inline constexpr std::int64_t kMhaGroup = 32;  // queries whose mask bits make one word
inline constexpr std::int64_t kMhaRows = 64;   // queries of a tile: two groups
inline constexpr std::int64_t kMhaSpan = 256;  // keys between two looks at the maximum

// A run of tokens: a request's, or those between requests, which have no keys.
struct MhaSegment {
  std::int64_t first_tile;  // of all segments' tiles, counted one after the other
  std::int64_t first_query, queries, first_key, keys;
  std::int64_t q_offset, key_offset;
  std::int64_t causal_reach;  // query i sees keys j <= i + causal_reach
  std::int64_t mask_owner;
};

// Every segment has a query, so no number of requests makes more of them than there are tokens. Without heads
// no kernel runs, and the tokens that such a view claims may be too many to take bytes for.
inline std::int64_t most_segments(const MaskedMhaArgs& a) {
  return a.q.elements() == 0 ? 0 : std::min(2 * a.q_start.shape[0] + 1, a.q.shape[0]);
}

// An offset at the edge of its type must not overflow when it is added to others; no tensor reaches 2^60
// rows.
inline std::int64_t load_offset(const Tensor& t, std::int64_t request, std::int64_t otherwise) {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  return t.given() ? std::clamp(load_int(t, request), -kFar, kFar) : otherwise;
}

// MHA-22. Fills `segment` and one more entry behind them, whose first_tile is the number of tiles.
inline std::int64_t list_segments(const MaskedMhaArgs& a, MhaSegment* segment) {
  const std::int64_t tokens = a.q.shape[0], keys = a.k.shape[0];
  std::int64_t count = 0, tile = 0, token = 0;
  const auto add = [&](std::int64_t until, MhaSegment s) {
    s.first_tile = tile;
    s.first_query = token;
    s.queries = until - token;
    token = until;
    if (s.queries == 0) return;
    tile += (s.queries + kMhaRows - 1) / kMhaRows;
    segment[count++] = s;
  };
  for (std::int64_t b = 0; b + 1 < a.q_start.shape[0]; ++b) {
    const std::int64_t begin = std::clamp(load_int(a.q_start, b), token, tokens);
    const std::int64_t end = std::clamp(load_int(a.q_start, b + 1), begin, tokens);
    add(begin, MhaSegment{});
    MhaSegment s{};
    s.first_key = std::clamp<std::int64_t>(load_int(a.k_start, b), 0, keys);
    s.keys = std::clamp(load_int(a.k_start, b + 1), s.first_key, keys) - s.first_key;
    s.q_offset = load_offset(a.q_offset, b, 0);
    s.key_offset = load_offset(a.key_offset, b, 0);
    if (mutant("masked_mha.q_offset")) s.q_offset = 0;
    if (mutant("masked_mha.key_offset")) s.key_offset = s.key_offset / 32 * 32;
    const std::int64_t q_total = load_offset(a.q_total, b, s.q_offset + (end - begin));
    const std::int64_t k_total = load_offset(a.k_total, b, s.key_offset + s.keys);
    s.causal_reach = a.causal ? s.q_offset - s.key_offset + (k_total - q_total)
                              : std::numeric_limits<std::int64_t>::max() / 2;
    if (a.causal && mutant("masked_mha.causal")) ++s.causal_reach;
    s.mask_owner = a.mask.given() && a.mask.shape[0] == 1 ? 0 : b;
    add(end, s);
  }
  add(tokens, MhaSegment{});
  segment[count].first_tile = tile;
  return count;
}

// Mask bits of one query at 32 keys from `bit` on; MHA-23: what lies outside the row's words is not kept.
inline std::uint32_t mask_word(const std::uint32_t* row, std::int64_t words, std::int64_t bit) {
  const auto word = [&](std::int64_t w) { return w >= 0 && w < words ? row[w] : 0u; };
  const std::int64_t first = bit >> 5;
  const int shift = static_cast<int>(bit & 31);
  const std::uint32_t low = word(first) >> shift;
  return shift == 0 || mutant("masked_mha.straddle") ? low : low | word(first + 1) << (32 - shift);
}

// Rows of bits to columns of bits: afterwards bit r of bits[k] is what bit k of bits[r] was.
inline void transpose_bits(std::uint32_t bits[32]) {
  std::uint32_t low = 0x0000ffff;
  for (std::uint32_t step = 16; step != 0; step >>= 1, low ^= low << step) {
    for (std::uint32_t r = 0; r < 32; r = ((r | step) + 1) & ~step) {
      const std::uint32_t swap = ((bits[r] >> step) ^ bits[r | step]) & low;
      bits[r] ^= swap << step;
      bits[r | step] ^= swap;
    }
  }
}

// Keys of a span that some query keeps, ascending; bit i of by[group][n] says that the group's query i keeps
// key[n].
struct KeptKeys {
  std::size_t count = 0;
  std::int64_t key[kMhaSpan];
  std::uint32_t by[kMhaRows / kMhaGroup][kMhaSpan];

  void add(std::int64_t k, std::uint32_t first_group, std::uint32_t second_group) {
    key[count] = k;
    by[0][count] = first_group;
    by[1][count++] = second_group;
  }
  // Only what one group keeps, as the first group of a list of its own.
  void copy_group(int group, KeptKeys& to) const {
    to.count = 0;
    for (std::size_t n = 0; n < count; ++n)
      if (by[group][n] != 0) to.add(key[n], by[group][n], 0);
  }
};

// Bit i of kept[j]: the mask lets query first_row + i, of `count` queries, see key base + j. False: nobody
// sees any.
inline bool read_mask(const MaskedMhaArgs& a, const MhaSegment& s, std::int64_t first_row, std::int64_t count,
                      std::int64_t base, std::uint32_t kept[32]) {
  if (!a.mask.given()) {
    std::fill(kept, kept + 32, count >= 32 ? ~0u : (1u << count) - 1);
    return true;
  }
  std::uint32_t any = 0;
  for (std::int64_t r = 0; r < 32; ++r) {
    const std::int64_t row = s.q_offset + first_row + r;
    kept[r] = 0;
    if (r < count && row >= 0 && row < a.mask.shape[1]) {
      const auto* words = static_cast<const std::uint32_t*>(a.mask.data) + s.mask_owner * a.mask.stride[0] +
                          row * a.mask.stride[1];
      kept[r] = mask_word(words, a.mask.shape[2], s.key_offset + base);
    }
    any |= kept[r];
  }
  if (any == 0 || (mutant("masked_mha.skip_first") && kept[0] == 0)) {
    std::fill(kept, kept + 32, 0u);
    return false;
  }
  transpose_bits(kept);
  return true;
}

// Which of a group's queries the causal rule lets see `key`.
inline std::uint32_t causal_word(const MhaSegment& s, std::int64_t first_row, std::int64_t key) {
  const std::int64_t from = key - s.causal_reach - first_row;
  return from <= 0 ? ~0u : from >= 32 ? 0u : ~0u << from;
}

// Lists the keys [first, last) of a segment, at most kMhaSpan, for a tile's two groups of queries. MHA-24:
// only keys before `last` are looked at, whatever the mask's padding says.
inline void list_kept(const MaskedMhaArgs& a, const MhaSegment& s, std::int64_t first_row, std::int64_t count,
                      std::int64_t first, std::int64_t last, KeptKeys& list) {
  const std::int64_t second_row = first_row + kMhaGroup;
  const std::int64_t second_count = std::max<std::int64_t>(0, count - kMhaGroup);
  list.count = 0;
  for (std::int64_t base = first; base < last; base += 32) {
    std::uint32_t kept[2][32] = {};
    bool any = read_mask(a, s, first_row, std::min(count, kMhaGroup), base, kept[0]);
    if (second_count > 0) any |= read_mask(a, s, second_row, second_count, base, kept[1]);
    if (!any) continue;
    std::int64_t here = std::min<std::int64_t>(32, last - base);
    if (mutant("masked_mha.late_keys") && here < 32) here = here / 2;
    for (std::int64_t j = 0; j < here; ++j) {
      const std::uint32_t by_first = kept[0][j] & causal_word(s, first_row, base + j);
      const std::uint32_t by_second = kept[1][j] & causal_word(s, second_row, base + j);
      if ((by_first | by_second) != 0) list.add(base + j, by_first, by_second);
    }
  }
}

}  // namespace keysieve::cpu

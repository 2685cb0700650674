// bits: positions of set bits.
#pragma once

#include <bit>
#include <cstdint>

#include "hwy/base.h"

namespace keysieve::cpu {

// Appends base + i for every set bit i, ascending; returns how many. Writes four entries whatever the word
// holds: words mostly have a few bits, and a mispredicted branch costs more than three stores for nothing.
HWY_INLINE std::int64_t append_bits(std::int32_t* out, std::uint64_t word, std::int32_t base) {
  const int count = __builtin_popcountll(word);
  // Unsigned: an empty word adds 64, which may pass the greatest entry.
  const auto entry = [&] {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(base) +
                                     static_cast<std::uint32_t>(std::countr_zero(word)));
  };
  for (int i = 0; i < 4; ++i) {
    out[i] = entry();
    word &= word - 1;
  }
  for (int i = 4; i < count; ++i) {
    out[i] = entry();
    word &= word - 1;
  }
  return count;
}

}  // namespace keysieve::cpu

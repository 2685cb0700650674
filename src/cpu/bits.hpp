// bits: positions of set bits.
#pragma once

#include <bit>
#include <cstdint>

#include "hwy/base.h"

namespace keysieve::cpu {

// Appends base + i for every set bit i, ascending; returns how many. Writes `at_once` entries whatever the word
// holds: a mispredicted branch costs more than a few stores for nothing. Four suit words of up to four bits;
// where most hold no more than two, two take two thirds of the time.
template <int at_once = 4>
HWY_INLINE std::int64_t append_bits(std::int32_t* out, std::uint64_t word, std::int32_t base) {
  const int count = __builtin_popcountll(word);
  // Unsigned: an empty word adds 64, which may pass the greatest entry.
  const auto entry = [&] {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(base) +
                                     static_cast<std::uint32_t>(std::countr_zero(word)));
  };
  for (int i = 0; i < at_once; ++i) {
    out[i] = entry();
    word &= word - 1;
  }
  if (at_once > 2 || HWY_UNLIKELY(count > at_once))
    for (int i = at_once; i < count; ++i) {
      out[i] = entry();
      word &= word - 1;
    }
  return count;
}

}  // namespace keysieve::cpu

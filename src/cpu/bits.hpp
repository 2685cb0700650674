// bits: positions of set bits.
#pragma once

#include <cstdint>

#include "hwy/base.h"

namespace keysieve::cpu {

// Appends base + i for every set bit i, ascending; returns how many. Writes `at_once` entries whatever the word
// holds: a mispredicted branch costs more than a few stores for nothing. Four suit words of up to four bits;
// where most hold no more than two, two take two thirds of the time.
template <int at_once = 4>
HWY_INLINE std::int64_t append_bits(std::int32_t* out, std::uint64_t word, std::int32_t base) {
  const int count = __builtin_popcountll(word);
  const auto append = [&](int i) {
    // The highest bit stands in for an empty word's: g++ 12 keeps std::countr_zero()'s test for one as a branch
    // where this is inlined into code of another instruction set.
    // Unsigned, since what stands in may lie past the greatest column.
    out[i] =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(base) +
                                  static_cast<std::uint32_t>(__builtin_ctzll(word | std::uint64_t{1} << 63)));
    word &= word - 1;
    // Without this it gathers four entries in a vector, lane by lane: twice the time of four stores.
    asm("" : "+m"(out[i]));
  };
  for (int i = 0; i < at_once; ++i) append(i);
  if (at_once > 2 || HWY_UNLIKELY(count > at_once))
    for (int i = at_once; i < count; ++i) append(i);
  return count;
}

}  // namespace keysieve::cpu

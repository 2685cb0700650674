// radix_sort: stable sort of 64-bit words by some of their bits, without allocating.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

namespace keysieve::cpu {

// Sorts n words by bits [low, high), ascending; returns where they end up, words or other (room for n).
inline std::uint64_t* radix_sort(std::uint64_t* words, std::uint64_t* other, std::int64_t n, int low,
                                 int high) {
  for (int shift = low; shift < high; shift += 8) {
    const std::uint64_t mask = high - shift < 8 ? (std::uint64_t{1} << (high - shift)) - 1 : 255;
    std::uint32_t place[256] = {0};
    for (std::int64_t i = 0; i < n; ++i) ++place[words[i] >> shift & mask];
    std::uint32_t sum = 0;
    bool constant = false;
    for (std::uint32_t& p : place) {
      constant = constant || p == static_cast<std::uint32_t>(n);
      sum += std::exchange(p, sum);
    }
    if (constant) continue;
    for (std::int64_t i = 0; i < n; ++i) other[place[words[i] >> shift & mask]++] = words[i];
    std::swap(words, other);
  }
  return words;
}

}  // namespace keysieve::cpu

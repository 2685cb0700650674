// mask_requests: which token a row of a packed mask belongs to, and which keys its bits stand for. All of it
// is data (PKM-34): any value may come, and what lies outside its table is padding.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/row_range.hpp"

namespace keysieve::cpu {

// Bit j of a request stands for local key first + j. Only bits [0, count) mean something, and of those only
// keys [low, high), since keys are 31-bit numbers.
struct MaskKeys {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
};

template <class Args>
MaskKeys mask_keys(const Args& a, std::int64_t request) {
  constexpr std::int64_t kKeys = std::int64_t{1} << 31;
  MaskKeys keys;
  if (a.key_first.given()) keys.first = load_int(a.key_first, request);
  keys.count = std::clamp<std::int64_t>(load_int(a.key_count, request), 0, a.mask.shape[2] * 32);
  // Outside this range no bit of a row of fewer than 2^31 stands for a key, and neither sums with `first` nor
  // its negation need fit 64 bits.
  if (keys.first <= -kKeys || keys.first >= kKeys) {
    keys.first = 0;
    return keys;
  }
  keys.low = std::max<std::int64_t>(keys.first, 0);
  keys.high = std::clamp<std::int64_t>(keys.first + keys.count, keys.low, kKeys);
  return keys;
}

// A request's first token. A start at the edge of its type must not overflow when a row is added or taken; no
// tensor has 2^60 rows.
template <class Args>
std::int64_t first_token(const Args& a, std::int64_t request) {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  return std::clamp(load_int(a.q_start, request), -kFar, kFar);
}

// The token of a request's row, or -1: the row is padding.
template <class Args>
std::int64_t mask_token(const Args& a, std::int64_t request, std::int64_t row, std::int64_t tokens) {
  const std::int64_t token = first_token(a, request) + row;
  return token >= 0 && token < first_token(a, request + 1) && token < tokens ? token : -1;
}

}  // namespace keysieve::cpu

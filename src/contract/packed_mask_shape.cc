#include <algorithm>
#include <cstdint>

#include "keysieve/packed_mask.hpp"

namespace keysieve {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 60;  // room to round up in

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

// PKM-40: in 64 bits; sizes below zero count as zero, those above 2^60 as 2^60.
PackedMaskShape packed_mask_shape(std::int64_t requests, std::int64_t max_queries, std::int64_t max_keys,
                                  const PackedMaskShapeOptions& options) {
  requests = std::clamp<std::int64_t>(requests, 0, kMost);
  max_queries = std::clamp<std::int64_t>(max_queries, 0, kMost);
  max_keys = std::clamp<std::int64_t>(max_keys, 0, kMost);
  const std::int64_t by_size = max_queries <= 128 ? 128 : 256;
  const std::int64_t row_multiple =
      options.row_multiple > 0 ? std::min(options.row_multiple, kMost) : by_size;
  // Four words are 16 bytes: every row starts where a vector load may.
  const std::int64_t words = round_up(round_up(max_keys, 32) / 32 + (options.reserve_word ? 1 : 0), 4);
  return {requests, round_up(max_queries, row_multiple), words};
}

}  // namespace keysieve

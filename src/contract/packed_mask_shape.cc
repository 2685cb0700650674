#include <algorithm>
#include <cstdint>

#include "keysieve/packed_mask.hpp"

namespace keysieve {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

// PKM-40: in 64 bits; sizes below zero count as zero.
PackedMaskShape packed_mask_shape(std::int64_t requests, std::int64_t max_queries, std::int64_t max_keys,
                                  const PackedMaskShapeOptions& options) {
  requests = std::max<std::int64_t>(requests, 0);
  max_queries = std::max<std::int64_t>(max_queries, 0);
  max_keys = std::max<std::int64_t>(max_keys, 0);
  const std::int64_t by_size = max_queries <= 128 ? 128 : 256;
  const std::int64_t row_multiple = options.row_multiple > 0 ? options.row_multiple : by_size;
  // Four words are 16 bytes: every row starts where a vector load may.
  const std::int64_t words = round_up(round_up(max_keys, 32) / 32 + (options.reserve_word ? 1 : 0), 4);
  return {requests, round_up(max_queries, row_multiple), words};
}

}  // namespace keysieve

// topk_scratch: what one worker of cpu.topk.filter needs, and how much of it. Nothing grows with the row's
// width: about 16 bytes for each of k, 16 for each candidate, and 99 KB.
#pragma once

#include <algorithm>
#include <cstdint>

#include "keysieve/topk.hpp"

namespace keysieve::cpu {

constexpr std::int64_t kChunk = 1024;        // scores for which the list must have room
constexpr std::int64_t kBatch = 4 * kChunk;  // scores marked before their columns are listed; 16 KB, in L1
constexpr std::int64_t kSlack = 64;  // writes may pass the last entry by one word's columns or one vector
constexpr std::int64_t kLeastGuessed = 1024;  // shorter rows are filtered without a guess

// Scores in the sample of a row of n, a multiple of 16: one in 32 costs about a third of the pass. Long rows
// take no more than 8,192, or 16,384 for large k, which gains more from a close guess.
constexpr std::int64_t sample_size(std::int64_t n, std::int64_t k) {
  return std::clamp<std::int64_t>(n / 512 * 16, 512, k < 1024 ? 8192 : 16384);
}

// Neighbouring scores taken together: one candidate block, or a cache line where each run is a cache miss.
constexpr std::int64_t kSampleRun = 8;
constexpr std::int64_t sample_run(std::int64_t n) { return n < (1 << 18) ? kSampleRun : 2 * kSampleRun; }

struct RowScratch {
  std::int32_t* columns = nullptr;   // [list + kSlack] survivors, ascending
  std::int32_t* keys = nullptr;      // [list + kSlack] their keys
  std::int32_t* spare = nullptr;     // [spare + kSlack] keys that a cut may still fall on
  float* batch = nullptr;            // the same memory: scores of a source that is not contiguous f32
  std::uint64_t* sort_a = nullptr;   // [candidates] where they come unordered
  std::uint64_t* sort_b = nullptr;   // [candidates]
  std::uint64_t* order_a = nullptr;  // [k] where the order is by score
  std::uint64_t* order_b = nullptr;  // [k]
  std::int64_t capacity = 0;         // survivors before a cut; at most `list`
};

struct ScratchSizes {
  std::int64_t capacity, list, spare, candidates, ordered;
  std::size_t bytes;  // of one worker, a multiple of 64
};

constexpr ScratchSizes scratch_sizes(const TopkArgs& a) {
  const std::int64_t width = a.scores.shape[1];
  std::int64_t most = width;
  ScratchSizes sizes{};
  if (a.candidates.given()) {
    sizes.candidates = a.candidates.shape[1] + 4;  // append_bits() may write 4 past the last
    // candidates * block_size may not fit 64 bits.
    if (a.block_size < width / std::max<std::int64_t>(sizes.candidates, 1))
      most = sizes.candidates * a.block_size;
  }
  const std::int64_t k = std::min(a.k, most);
  sizes.capacity = std::min(2 * k + 2 * kChunk, most + kChunk);
  sizes.list = std::max(sizes.capacity, most >= kLeastGuessed ? sample_size(most, k) : 0);
  sizes.spare = std::max(sizes.list, std::min(most, kBatch));
  sizes.ordered = a.order == TopkOrder::by_score ? k : 0;
  const std::int64_t bytes =
      (2 * sizes.list + sizes.spare + 3 * kSlack) * 4 + 2 * (sizes.candidates + sizes.ordered) * 8;
  sizes.bytes = static_cast<std::size_t>((bytes + 63) / 64 * 64);
  return sizes;
}

inline RowScratch carve_scratch(void* memory, const ScratchSizes& sizes) {
  RowScratch s;
  s.sort_a = static_cast<std::uint64_t*>(memory);
  s.sort_b = s.sort_a + sizes.candidates;
  s.order_a = s.sort_b + sizes.candidates;
  s.order_b = s.order_a + sizes.ordered;
  s.columns = reinterpret_cast<std::int32_t*>(s.order_b + sizes.ordered);
  s.keys = s.columns + sizes.list + kSlack;
  s.spare = s.keys + sizes.list + kSlack;
  s.batch = reinterpret_cast<float*>(s.spare);
  s.capacity = sizes.capacity;
  return s;
}

}  // namespace keysieve::cpu

// mask_bits: sets a mask row's bits in shared memory, from indices, blocks or scores. Step 2 of
// cuda.packed_mask.shared.
#pragma once

#include "gpu/faults.hpp"
#include "gpu/mask_rows.hpp"
#include "gpu/score_key.hpp"

namespace keysieve::gpu::mask_bits {

inline constexpr int kMaxThreads = 256;
inline constexpr int kJoinThreads = 256;
inline constexpr int kSegmentWords = 4096;  // 131,072 keys
inline constexpr int kTileWords = 4;        // 128 keys
inline constexpr int kTileRows = 128;
inline constexpr std::int64_t kKeyEnd = kMaxInt32 + 1;  // 2^31 - 1 is a key as well

enum Fault {
  kWordOff,
  kPaddingLeft,
  kRangeIgnored,
  kLastWord,
  kBoundsIgnored,
  kSummaryRow,
  kTileEarly,
  kNoListStride,
  kNotAtThreshold,
  kCountLeft
};

enum class Source { indices, candidates, scores };

struct BuildParams {
  MaskRequests requests;
  Source source;
  const std::int32_t* list;  // indices or candidates
  std::int64_t list_row_stride, list_stride, list_size;
  std::int64_t block_size;
  const char* scores;
  std::int64_t score_row_stride, score_stride, width;
  bool narrow_scores;
  const float* thresholds;
  std::int64_t threshold_stride;
  bool has_bounds;
  RowBounds bounds;
  std::uint32_t* mask;
  std::int64_t request_stride, row_stride;
  std::uint32_t segments;
  std::uint32_t* row_summary;  // null: none wanted. [requests * rows][2][tile_words]
  std::int64_t tile_words;
  Faults faults;
};

// What one thread block may set: bits [first_bit, last_bit) of the row, bit j being local key first + j.
struct Segment {
  std::int64_t first, first_bit, last_bit;
};

// Joins bits of the same word before they go to shared memory: a sorted list has several in a row.
struct BitWriter {
  std::uint32_t* bits;
  std::uint32_t word = 0, pending = 0;
  __device__ void set(std::uint32_t at_word, std::uint32_t mask) {
    if (at_word != word && pending != 0) {
      atomicOr(&bits[word], pending);
      pending = 0;
    }
    word = at_word;
    pending |= mask;
  }
  __device__ void flush() {
    if (pending != 0) atomicOr(&bits[word], pending);
    pending = 0;
  }
};

__device__ inline int block_threads() { return static_cast<int>(blockDim.x); }

template <class F>
__device__ inline void block_for_each_entry(const BuildParams& p, std::int64_t token, F&& f) {
  const std::int32_t* list = p.list + token * p.list_row_stride;
  if (p.list_stride == 1 && reinterpret_cast<std::uintptr_t>(list) % 16 == 0) {
    const std::int64_t vectors = p.list_size / 4;
    std::int64_t v = threadIdx.x;
    const int step = block_threads();
    for (; v + 3 * step < vectors; v += 4 * step) {  // four loads in flight
      int4 four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = reinterpret_cast<const int4*>(list)[v + i * step];
#pragma unroll
      for (int i = 0; i < 4; ++i) f(four[i].x), f(four[i].y), f(four[i].z), f(four[i].w);
    }
    for (; v + step < vectors; v += 2 * step) {
      const int4 first = reinterpret_cast<const int4*>(list)[v];
      const int4 second = reinterpret_cast<const int4*>(list)[v + step];
      f(first.x), f(first.y), f(first.z), f(first.w);
      f(second.x), f(second.y), f(second.z), f(second.w);
    }
    for (; v < vectors; v += block_threads()) {
      const int4 a = reinterpret_cast<const int4*>(list)[v];
      f(a.x), f(a.y), f(a.z), f(a.w);
    }
    for (std::int64_t j = vectors * 4 + threadIdx.x; j < p.list_size; j += block_threads()) f(list[j]);
  } else {
    const std::int64_t stride = p.faults.on(kNoListStride) ? 1 : p.list_stride;
    for (std::int64_t j = threadIdx.x; j < p.list_size; j += block_threads()) f(list[j * stride]);
  }
}

__device__ inline void block_set_indices(const BuildParams& p, std::int64_t token, const Segment& g,
                                         std::uint32_t* bits) {
  BitWriter writer{bits};
  // Keys [low, high) have a bit here. high <= 2^31, so one comparison bars negative keys too.
  const std::int64_t base = g.first + g.first_bit;
  const auto low = static_cast<std::uint32_t>(clamp_int(base, 0, kKeyEnd));
  const auto size = static_cast<std::uint32_t>(clamp_int(g.first + g.last_bit, 0, kKeyEnd)) - low;
  const auto base32 = static_cast<std::uint32_t>(base);
  block_for_each_entry(p, token, [&](std::int32_t key) {
    if (static_cast<std::uint32_t>(key) - low >= size) return;
    const std::uint32_t offset = static_cast<std::uint32_t>(key) - base32;
    const std::uint32_t shift = p.faults.on(kWordOff) ? (offset + 1) & 31u : offset & 31u;
    writer.set(offset >> 5, 1u << shift);
  });
  writer.flush();
}

__device__ inline void block_set_blocks(const BuildParams& p, std::int64_t token, const Segment& g,
                                        std::uint32_t* bits) {
  BitWriter writer{bits};
  block_for_each_entry(p, token, [&](std::int32_t block) {
    // Products stay below 2^62: block sizes are 31-bit numbers (PKM-15).
    const std::int64_t begin = max(block * p.block_size - g.first, g.first_bit);
    const std::int64_t end = min((block + std::int64_t{1}) * p.block_size - g.first, g.last_bit);
    if (block < 0 || begin >= end) return;
    auto from = static_cast<std::uint32_t>(begin - g.first_bit);
    const auto to = static_cast<std::uint32_t>(end - g.first_bit);
    while (from < to) {
      const std::uint32_t room = min(32u - (from & 31u), to - from);
      writer.set(from >> 5, (room == 32 ? ~0u : (1u << room) - 1) << (from & 31u));
      from += room;
    }
  });
  writer.flush();
}

template <class Score>
__device__ inline void block_set_scores(const BuildParams& p, std::int64_t token, std::int64_t start,
                                        const Segment& g, std::uint32_t* bits) {
  constexpr int kWordsPerWave = kWave / 32;
  const auto* scores = reinterpret_cast<const typename Score::Word*>(p.scores) + token * p.score_row_stride;
  const float threshold = p.thresholds[token * p.threshold_stride];
  const auto count = static_cast<std::int32_t>(g.last_bit - g.first_bit);
  // Column of the segment's first bit; scores left of the row's start or at negative keys are not visible.
  const std::int64_t column = start + g.first + g.first_bit;
  for (std::int32_t base = wave_id() * kWave; base < count; base += block_threads()) {
    const std::int32_t offset = base + lane_id();
    bool keep = false;
    if (offset < count && column + offset >= start) {
      const float score = Score::value(scores[(column + offset) * p.score_stride]);
      keep = (p.faults.on(kNotAtThreshold) ? score > threshold : score >= threshold) || score != score;
    }
    const LaneMask mask = wave_ballot(keep);
    if (lane_id() < kWordsPerWave && base + 32 * lane_id() < count)
      bits[base / 32 + lane_id()] = static_cast<std::uint32_t>(mask >> (32 * lane_id()));
  }
}

}  // namespace keysieve::gpu::mask_bits

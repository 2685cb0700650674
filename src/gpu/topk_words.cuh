// topk_words: the shared memory of the one-pass top-k kernels, and the thread blocks that work on one row.
#pragma once

#include <algorithm>

#include "gpu/topk_cut.cuh"

namespace keysieve::gpu {

// Elements of a slice that a thread can hold in registers.
inline constexpr int kHeldElements = 16;
template <class Scores>
inline constexpr int kHeldVectors = kHeldElements / Scores::kVector;

inline constexpr std::uint32_t kChunkGroups = 1024;  // a group: the vectors that one wave reads at once
inline constexpr std::uint32_t kChunkBytes = kChunkGroups * 16;
inline constexpr std::uint32_t kListBitmapWords = 4096;  // candidate blocks are sorted 131,072 ids at a time
inline constexpr int kMaxima = 128;

// A row that one thread block does alone.
struct Solo {
  static constexpr bool kMany = false;
  __device__ static std::uint32_t rank(const TopkParams&) { return 0; }
  __device__ static void sync() { __syncthreads(); }
  __device__ static void arrive() {}
  __device__ static void wait() {}
  template <class T>
  __device__ static const T* of(const T* mine, std::uint32_t) {
    return mine;
  }
};

struct SelectWords {
  CutWords cut;
  std::uint32_t maxima[kMaxima];
  std::uint32_t counts[32];
  std::uint32_t threshold, at_least;
  std::uint32_t low, high;  // of the keys in this thread block's list
  std::uint32_t listed;     // of this thread block; read by its team, as are the next two
  std::uint32_t equal;
  std::uint32_t verdict;
};

// Lays out dynamic shared memory. The candidate bitmap shares its place with the list.
inline void select_memory(TopkParams& p) {
  const auto rounded = [](std::uint32_t bytes) { return (bytes + 15) / 16 * 16; };
  p.bins = p.capacity * 8;
  if (p.candidate_count > 0) p.bins = std::max(p.bins, kListBitmapWords * 8);
  p.picks = p.bins + kBins * 4;
  std::uint32_t room = 2;
  while (room < p.k) room *= 2;
  p.order = p.picks + rounded(p.k * 4);
  p.bitmap = p.order + (p.by_score ? room * 8 : 0);
  p.prefix = p.bitmap + kChunkBytes;
  p.blocks = p.prefix + kChunkGroups * 4;
  p.places = p.blocks + rounded(p.candidate_count * 4);
  p.shared_bytes = p.places + (p.compact ? rounded(p.candidate_count * 4) : 0);
}

}  // namespace keysieve::gpu

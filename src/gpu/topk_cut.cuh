// topk_cut: the exact cut among the keys of one thread block. A key of 0 is no element.
//
// Instructions are what this costs, not bytes: a thread block of 1,024 threads takes 8 cycles to issue one, and
// some 80 to meet at a barrier.
#pragma once

#include "gpu/block.hpp"
#include "gpu/topk_row.hpp"

namespace keysieve::gpu {

inline constexpr int kBinBits = 11;
inline constexpr int kBins = 1 << kBinBits;
// So many keys are ranked by comparing all pairs; a wave has as many lanes or more.
inline constexpr int kFew = 32;
// From so many keys in one bin on, a look at their own range pays.
inline constexpr std::uint32_t kCrowd = 2048;

// Selected: the keys above `least`, and of those that equal it the first `ties`; all of them unless `partial`.
struct Cut {
  std::uint32_t least;
  std::uint32_t ties;
  bool partial;
  std::uint32_t reaching;  // keys that are `least` or more
};

// Shared memory of one thread block.
struct CutMemory {
  alignas(16) std::uint32_t bins[2][kBins];
  alignas(16) std::uint32_t few_keys[kFew];
  std::uint32_t waves[32];
  std::uint32_t counts[32];
  std::uint32_t bin, above, inside;
  std::uint32_t few;
  std::uint32_t high;  // no key is greater, once they have been seen
  std::uint32_t next;
  std::uint32_t nearest, farthest;  // of the keys in a crowded bin
};

// Where a thread block stands with its bins: bins[turn & 1] are clear, and counting clears the others, so that
// no barrier is spent on clearing.
struct CutBlock {
  CutMemory& m;
  std::uint32_t turn;
};

// Before everything else, with a barrier after.
template <int kThreads>
__device__ CutBlock block_begin(CutMemory& m) {
#pragma unroll
  for (int i = 0; i < kBins / kThreads; ++i) m.bins[0][i * kThreads + threadIdx.x] = 0;
  if (threadIdx.x == 0) m.high = 0;
  return {m, 0};
}

// The bin, from the top, in which `need` items are reached, how many lie in bins above it and in it; `inside`
// is 0 where all bins together hold fewer. Begins and ends with a barrier.
template <int kThreads>
__device__ void block_find_bin(const std::uint32_t* bins, std::uint32_t need, CutMemory& m) {
  constexpr int kEach = kBins / kThreads, kWaves = kThreads / kWave;
  __syncthreads();
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kEach;
  std::uint32_t counts[kEach];
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += counts[i] = bins[top - i];
  const std::uint32_t of_this_wave = wave_sum(sum);
  if (lane_id() == 0) m.waves[wave_id()] = of_this_wave;
  if (threadIdx.x == 0) m.inside = 0;
  __syncthreads();
  std::uint32_t above = wave_sum(lane_id() < wave_id() && lane_id() < kWaves ? m.waves[lane_id()] : 0);
  if (above < need && need <= above + of_this_wave) {  // one wave at most
    const std::uint32_t inclusive = wave_inclusive_sum(sum);
    above += inclusive - sum;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (above < need && need <= above + counts[i]) {
        m.bin = static_cast<std::uint32_t>(top - i);
        m.above = above;
        m.inside = counts[i];
      }
      above += counts[i];
    }
  }
  __syncthreads();
}

// 2,048 bins over the keys from `low` to `high`.
struct BinRange {
  std::uint32_t low, high;
  int shift;

  __device__ BinRange(std::uint32_t from, std::uint32_t to) : low(from), high(to), shift(0) {
    const int length = 32 - __clz(static_cast<int>(high - low));
    shift = length > kBinBits ? length - kBinBits : 0;
  }
  __device__ void count(std::uint32_t key, std::uint32_t* bins) const {
    const std::uint32_t offset = key - low;  // wraps far above the range below `low`
    if (offset <= high - low) atomicAdd(&bins[offset >> shift], 1u);
  }
};

template <int kThreads>
__device__ std::uint32_t* block_next_bins(CutBlock& block) {
  std::uint32_t* bins = block.m.bins[block.turn & 1];
  std::uint32_t* others = block.m.bins[(block.turn & 1) ^ 1];
#pragma unroll
  for (int i = 0; i < kBins / kThreads; ++i) others[i * kThreads + threadIdx.x] = 0;
  ++block.turn;
  return bins;
}

// The cut that selects k of the keys from `low` to `high`, above which there are none; all of them, with `reaching` 0,
// where they are fewer. each(f) calls f with every key of this thread. Each round spreads the keys still in question
// over 2,048 bins, so the third rarely comes; equal keys end it at once. With `slack`, up to so many keys too many may
// be selected.
template <int kThreads, class Each>
__device__ Cut block_cut(Each&& each, std::uint32_t k, std::uint32_t low, std::uint32_t high,
                         std::uint32_t slack, CutBlock& block) {
  const std::uint32_t tid = threadIdx.x, lowest = low;
  CutMemory& m = block.m;
  std::uint32_t need = k;
  for (;;) {
    const BinRange range(low, high);
    std::uint32_t* bins = block_next_bins<kThreads>(block);
    each([&](std::uint32_t key) { range.count(key, bins); });
    if (threadIdx.x < kFew) m.few_keys[tid] = 0;
    if (tid == 0) {
      m.few = 0;
      m.nearest = ~0u;
      m.farthest = 0;
    }
    block_find_bin<kThreads>(bins, need, m);
    const std::uint32_t inside = m.inside;
    if (inside == 0) return {lowest, 0, false, 0};
    const std::uint32_t bin_low = low + (m.bin << range.shift);
    need -= m.above;
    if (range.shift == 0 || inside == need || inside - need <= slack)
      return {bin_low, need, inside > need, k - need + inside};
    const std::uint32_t bin_span = min(high - bin_low, (1u << range.shift) - 1);
    if (inside <= kFew) {
      // Most threads have none of them, which the least distance tells.
      std::uint32_t nearest = ~0u;
      each([&](std::uint32_t key) { nearest = min(nearest, key - bin_low); });
      if (nearest <= bin_span) {
        each([&](std::uint32_t key) {
          if (key - bin_low <= bin_span) m.few_keys[atomicAdd(&m.few, 1u)] = key;
        });
      }
      __syncthreads();
      // Every wave ranks them, so that nobody waits for the answer. The order in which keys came here is not fixed;
      // the cut does not depend on it.
      const std::uint32_t mine = lane_id() < kFew ? m.few_keys[lane_id()] : 0;
      std::uint32_t greater = 0, equal = 0;
      const auto compare = [&](std::uint32_t other) {
        greater += other > mine ? 1 : 0;
        equal += other == mine ? 1 : 0;
      };
      for (std::uint32_t j = 0; j < inside; j += 4) {  // zeros follow
        const uint4 four = *reinterpret_cast<const uint4*>(m.few_keys + j);
        compare(four.x), compare(four.y), compare(four.z), compare(four.w);
      }
      const int lane = first_lane(wave_ballot(mine != 0 && greater < need && need <= greater + equal));
      greater = wave_shuffle(greater, lane);
      equal = wave_shuffle(equal, lane);
      return {wave_shuffle(mine, lane), need - greater, greater + equal > need, k - need + greater + equal};
    }
    low = bin_low;
    high = bin_low + bin_span;
    if (inside > kCrowd) {  // often equal keys: their own range ends it sooner than the bin's
      std::uint32_t nearest = ~0u, farthest = 0;
      each([&](std::uint32_t key) {
        if (key - bin_low > bin_span) return;
        nearest = min(nearest, key);
        farthest = max(farthest, key);
      });
      nearest = wave_min(nearest);
      farthest = wave_max(farthest);
      if (lane_id() == 0) {
        atomicMin(&m.nearest, nearest);
        atomicMax(&m.farthest, farthest);
      }
      __syncthreads();
      low = m.nearest;
      high = m.farthest;
      __syncthreads();  // before the next round's thread 0 clears them
    }
  }
}

}  // namespace keysieve::gpu

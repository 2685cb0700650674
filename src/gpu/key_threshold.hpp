// key_threshold: the exact key of a row's last wanted place, found by one thread block. Step 3 of
// cuda.candidate_blocks.radix.
#pragma once

#include "gpu/block.hpp"
#include "gpu/score_key.hpp"

namespace keysieve::gpu::key_threshold {

inline constexpr int kThreads = 1024;
inline constexpr int kBinBits = 11;
inline constexpr int kBins = 1 << kBinBits;
inline constexpr int kWaves = kThreads / kWave;

struct SelectShared {
  std::uint32_t histogram[kBins];
  std::uint32_t wave_bins[kWaves];  // keys in each wave's share of the bins
  std::uint32_t greater[kWaves], equal[kWaves];
  std::uint32_t low, high, above, in_bin, contestants;
};

// Calls f(which four, four keys) for all keys, each thread four neighbours at a time. Zeros fill the last
// four.
template <class F>
__device__ inline void block_for_each_four(const std::uint32_t* keys, std::int32_t count, F&& f) {
  const std::int32_t fours = (count + 3) / 4;
#pragma unroll 4
  for (std::int32_t v = static_cast<std::int32_t>(threadIdx.x); v < fours; v += kThreads)
    f(v, reinterpret_cast<const uint4*>(keys)[v]);
}

// What is taken: every key above `above`, and the first `ties` ids whose key is `tie`.
struct Threshold {
  std::uint32_t above, tie, ties;
};

__device__ inline Threshold block_find_threshold(SelectShared& s, const std::uint32_t* keys,
                                                 std::int32_t count, std::uint32_t wanted) {
  std::uint32_t low = s.low, high = s.high;
  for (;;) {
    if (low == high) return {low, low, wanted};  // equal keys would all queue up at one bin
    const int range_bits = 32 - __clz(static_cast<int>(high - low));
    const std::uint32_t shift = static_cast<std::uint32_t>(max(0, range_bits - kBinBits));
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) s.histogram[bin] = 0;
    __syncthreads();
    const std::uint32_t span = high - low;
    block_for_each_four(keys, count, [&](std::int32_t, const uint4& four) {
      const std::uint32_t x = four.x - low, y = four.y - low, z = four.z - low, w = four.w - low;
      if (x <= span) atomicAdd(&s.histogram[x >> shift], 1u);
      if (y <= span) atomicAdd(&s.histogram[y >> shift], 1u);
      if (z <= span) atomicAdd(&s.histogram[z >> shift], 1u);
      if (w <= span) atomicAdd(&s.histogram[w >> shift], 1u);
    });
    __syncthreads();
    // Each wave adds up its share of the bins; the first wave finds the share and the bin of the last wanted
    // place, from the top. Scans by every wave would be most of this kernel's instructions.
    constexpr int kShare = kBins / kWaves;
    static_assert(kShare % kWave == 0 && kWaves <= kWave);
    std::uint32_t mine = 0;
    for (int i = lane_id(); i < kShare; i += kWave) mine += s.histogram[wave_id() * kShare + i];
    mine = wave_sum(mine);
    if (lane_id() == 0) s.wave_bins[wave_id()] = mine;
    __syncthreads();
    if (wave_id() == 0) {
      std::uint32_t before = 0;  // keys in greater bins
      const auto descend =
          [&](std::uint32_t bins) {  // lane i holds the i-th greatest; finds the one it ends in
            const std::uint32_t sums = wave_inclusive_sum(bins);
            const int lane = first_lane(wave_ballot(before + sums >= wanted));
            before += wave_shuffle(sums - bins, lane);
            return lane;
          };
      const int share = kWaves - 1 - descend(lane_id() < kWaves ? s.wave_bins[kWaves - 1 - lane_id()] : 0);
      std::uint32_t bin = 0, in_bin = 0;
      for (int top = (share + 1) * kShare - 1; top >= share * kShare; top -= kWave) {
        const std::uint32_t bins = s.histogram[top - lane_id()];
        const std::uint32_t all = wave_sum(bins);
        if (before + all < wanted) {
          before += all;
          continue;
        }
        const int lane = descend(bins);
        bin = static_cast<std::uint32_t>(top - lane);
        in_bin = wave_shuffle(bins, lane);
        break;
      }
      if (lane_id() == 0) {
        s.above = before;
        s.in_bin = in_bin;
        s.low = low + (bin << shift);
        s.high = high - s.low < (1u << shift) ? high : s.low + ((1u << shift) - 1);
      }
    }
    __syncthreads();
    low = s.low;
    high = s.high;
    wanted -= s.above;
    if (s.in_bin == wanted) return {low - 1, 0, 0};
    if (shift == 0) return {low, low, wanted};
  }
}

// Ascending sort of a power of two of values by all threads.
__device__ inline void block_sort(std::uint64_t* values, std::int32_t count) {
  for (std::int32_t size = 2; size <= count; size *= 2)
    for (std::int32_t distance = size / 2; distance > 0; distance /= 2) {
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < count / 2; i += kThreads) {
        const std::int32_t a = 2 * i - (i & (distance - 1)), b = a + distance;
        const std::uint64_t x = values[a], y = values[b];
        if ((x > y) == ((a & size) == 0)) {
          values[a] = y;
          values[b] = x;
        }
      }
      __syncthreads();
    }
}

}  // namespace keysieve::gpu::key_threshold

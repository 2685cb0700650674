// block: what the threads of one thread block compute together. Every function is called by all of them.
#pragma once

#include <cstdint>

#include "gpu/vendor.hpp"

#if defined(__CUDACC__) || defined(__HIPCC__)

namespace keysieve::gpu {

__device__ inline std::uint32_t wave_inclusive_sum(std::uint32_t value) {
#pragma unroll
  for (int step = 1; step < kWave; step *= 2) {
    const std::uint32_t before = wave_shuffle_up(value, step);
    if (lane_id() >= step) value += before;
  }
  return value;
}

// Sum of the values of the threads before this one; `total` gets the sum of all.
template <int kThreads>
struct BlockScan {
  static constexpr int kWaves = kThreads / kWave;
  std::uint32_t wave_totals[kWaves];

  __device__ std::uint32_t exclusive_sum(std::uint32_t value, std::uint32_t& total) {
    static_assert(kWaves <= kWave);
    const std::uint32_t inclusive = wave_inclusive_sum(value);
    __syncthreads();  // the totals of an earlier call have been read
    if (lane_id() == kWave - 1) wave_totals[wave_id()] = inclusive;
    __syncthreads();
    const std::uint32_t mine = lane_id() < kWaves ? wave_totals[lane_id()] : 0;
    const std::uint32_t sums = wave_inclusive_sum(mine);
    total = wave_shuffle(sums, kWaves - 1);
    const std::uint32_t before = wave_shuffle(sums - mine, wave_id());
    return before + inclusive - value;
  }
};

}  // namespace keysieve::gpu

#endif

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

// The sum of the values of earlier threads; `total` gets the sum of all. `waves` has one word a wave and is free
// again when the call returns.
template <int kThreads>
__device__ std::uint32_t block_sum_before(std::uint32_t value, std::uint32_t* waves, std::uint32_t& total) {
  constexpr int kWaves = kThreads / kWave;
  static_assert(kWaves <= kWave);
  const std::uint32_t inclusive = wave_inclusive_sum(value);
  if (lane_id() == kWave - 1) waves[wave_id()] = inclusive;
  __syncthreads();
  const std::uint32_t of_wave = lane_id() < kWaves ? waves[lane_id()] : 0;
  total = wave_sum(of_wave);
  const std::uint32_t before = wave_sum(lane_id() < wave_id() ? of_wave : 0);
  __syncthreads();
  return before + inclusive - value;
}

}  // namespace keysieve::gpu

#endif

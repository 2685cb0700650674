// held_keys: keys that the threads of a block hold in registers, and the order of those that a cut selects.
//
// Keys are held as vectors: place j of vector u of thread t is item (u * kThreads + t) * kVector + j, so that items in
// ascending order are what 16-byte loads of neighbouring threads bring.
#pragma once

#include "gpu/topk_cut.cuh"

namespace keysieve::gpu {

inline constexpr int kHeldKeys = 16;  // of a thread

// A bit an item, cleared by block_begin_held().
template <int kThreads>
struct HeldMemory {
  static constexpr int kWords = kThreads * kHeldKeys / 32;
  std::uint32_t selected[kWords];
  std::uint32_t equal[kWords];
};

// Before everything else, with a barrier after.
template <int kThreads>
__device__ void block_begin_held(HeldMemory<kThreads>& held) {
  if (threadIdx.x < HeldMemory<kThreads>::kWords) {
    held.selected[threadIdx.x] = 0;
    held.equal[threadIdx.x] = 0;
  }
}

// The number of set bits of earlier threads; `total` gets the number of all. One barrier.
template <int kThreads>
__device__ std::uint32_t block_bits_before(std::uint32_t bits, CutMemory& m, std::uint32_t& total) {
  const std::uint32_t inclusive = wave_inclusive_sum(popcount(bits));
  if (lane_id() == kWave - 1) m.counts[wave_id()] = inclusive;
  __syncthreads();
  const std::uint32_t of_wave = lane_id() < kThreads / kWave ? m.counts[lane_id()] : 0;
  total = wave_sum(of_wave);
  return wave_sum(lane_id() < wave_id() ? of_wave : 0) + inclusive - popcount(bits);
}

// Calls put(place, item) for what the cut selects, items in ascending order; returns how many they are. The threads
// mark their items in a bitmap, and each puts those of 16 items in order.
template <int kThreads, int kVector, class Put>
__device__ std::uint32_t block_pick_held(const std::uint32_t (&keys)[kHeldKeys], const Cut& cut,
                                         HeldMemory<kThreads>& held, CutMemory& m, Put&& put) {
  constexpr int kOfWord = 32 / kVector;  // vectors of a word
  const std::uint32_t tid = threadIdx.x;
  const auto mark = [&](std::uint32_t* words, auto&& holds) {
#pragma unroll
    for (int u = 0; u < kHeldKeys / kVector; ++u) {
      std::uint32_t bits = 0;
#pragma unroll
      for (int j = 0; j < kVector; ++j) bits |= holds(keys[u * kVector + j]) ? 1u << j : 0;
      if (bits != 0) atomicOr(&words[(u * kThreads + tid) / kOfWord], bits << (tid % kOfWord * kVector));
    }
  };
  const std::uint32_t least = cut.least;
  if (cut.partial) {
    mark(held.selected, [least](std::uint32_t key) { return key > least; });
    mark(held.equal, [least](std::uint32_t key) { return key == least; });
  } else {
    mark(held.selected, [least](std::uint32_t key) { return key >= least; });
  }
  __syncthreads();
  static_assert(kHeldKeys == 16);
  const auto mine = [&](const std::uint32_t* words) { return words[tid / 2] >> (tid % 2 * 16) & 0xffff; };
  std::uint32_t left = mine(held.selected), total;
  if (cut.partial) {
    std::uint32_t equal = mine(held.equal);
    std::uint32_t before = block_bits_before<kThreads>(equal, m, total);
    for (; equal != 0 && before < cut.ties; ++before) {
      left |= equal & (0u - equal);
      equal &= equal - 1;
    }
    __syncthreads();  // the counts are free again
  }
  std::uint32_t place = block_bits_before<kThreads>(left, m, total);
  for (; left != 0; ++place) {
    put(place, tid * 16 + static_cast<std::uint32_t>(__ffs(static_cast<int>(left))) - 1);
    left &= left - 1;
  }
  return total;
}

}  // namespace keysieve::gpu

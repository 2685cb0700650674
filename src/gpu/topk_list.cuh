// topk_list: the elements of a row that may be among its k best, in order, in shared memory.
#pragma once

#include "gpu/topk_cut.cuh"

namespace keysieve::gpu {

// In dynamic shared memory: offsets in bytes; keys come first.
struct ListLayout {
  std::uint32_t capacity = 0;
  std::uint32_t elements = 0, bytes = 0;
};

inline ListLayout list_layout(std::uint32_t capacity) { return {capacity, capacity * 4, capacity * 8}; }

struct SurvivorList {
  std::uint32_t* keys;
  std::uint32_t* elements;
  std::uint32_t capacity;
};

__device__ inline SurvivorList survivor_list(const ListLayout& l, unsigned char* memory) {
  return {reinterpret_cast<std::uint32_t*>(memory), reinterpret_cast<std::uint32_t*>(memory + l.elements),
          l.capacity};
}

// Notes the greatest key of what is about to be listed.
__device__ inline void wave_note_greatest(std::uint32_t greatest, CutMemory& m) {
  greatest = wave_max(greatest);
  if (lane_id() == 0) atomicMax(&m.high, greatest);
}

// Appends, in order, which of the threads' four keys are `least` or more; the keys of a thread belong to elements from
// `first` on. Returns the new size. One barrier.
template <int kThreads>
__device__ std::uint32_t block_append(const uint4& four, std::uint32_t first, std::uint32_t least,
                                      std::uint32_t size, const SurvivorList& list, CutMemory& m) {
  constexpr int kWaves = kThreads / kWave;
  const std::uint32_t keys[4] = {four.x, four.y, four.z, four.w};
  std::uint32_t before = 0, of_this_wave = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const LaneMask lanes = wave_ballot(keys[j] >= least);
    before += popcount(lanes & lanes_before());
    of_this_wave += popcount(lanes);
  }
  if (lane_id() == 0) m.counts[wave_id()] = of_this_wave;
  __syncthreads();
  const std::uint32_t of_wave = lane_id() < kWaves ? m.counts[lane_id()] : 0;
  const std::uint32_t sums = wave_sum(of_wave | (lane_id() < wave_id() ? of_wave << 16 : 0));  // 16 bits each
  std::uint32_t at = size + (sums >> 16) + before;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (keys[j] < least) continue;
    list.keys[at] = keys[j];
    list.elements[at] = first + j;
    ++at;
  }
  return size + (sums & 0xffff);
}

// The cut of the list's keys, all of which are `low` or more, after a barrier.
template <int kThreads>
__device__ Cut block_cut_list(const SurvivorList& list, std::uint32_t size, std::uint32_t k,
                              std::uint32_t low, CutBlock& block) {
  const auto each = [&](auto&& f) {
    for (std::uint32_t i = threadIdx.x; i < size; i += kThreads) f(list.keys[i]);
  };
  return block_cut<kThreads>(each, k, low, block.m.high, 0, block);
}

// Calls put(place, i) for what the cut selects, in order; returns how many they are. Each wave has a run of the list;
// one pass counts, one puts. One barrier.
template <int kThreads, class Put>
__device__ std::uint32_t block_pick_list(const SurvivorList& list, std::uint32_t size, const Cut& cut,
                                         CutMemory& m, Put&& put) {
  constexpr int kWaves = kThreads / kWave;
  const std::uint32_t run = (size + kThreads - 1) / kThreads * kWave;
  const std::uint32_t begin = min(size, wave_id() * run), end = min(size, begin + run);
  const auto key_at = [&](std::uint32_t i) { return i < end ? list.keys[i] : 0; };
  // Keys above the cut count in the lower half, those that equal it in the upper.
  std::uint32_t counts = 0;
  for (std::uint32_t from = begin; from < end; from += kWave) {
    const std::uint32_t key = key_at(from + lane_id());
    counts += popcount(wave_ballot(key > cut.least)) + (popcount(wave_ballot(key == cut.least)) << 16);
  }
  if (lane_id() == 0) m.counts[wave_id()] = counts;
  __syncthreads();
  const std::uint32_t of_wave = lane_id() < kWaves ? m.counts[lane_id()] : 0;
  const std::uint32_t all = wave_sum(of_wave), before = wave_sum(lane_id() < wave_id() ? of_wave : 0);
  const std::uint32_t ties = cut.partial ? cut.ties : ~0u;
  std::uint32_t above = before & 0xffff, equal = before >> 16;
  for (std::uint32_t from = begin; from < end; from += kWave) {
    const std::uint32_t i = from + lane_id();
    const std::uint32_t key = key_at(i);
    const LaneMask aboves = wave_ballot(key > cut.least), equals = wave_ballot(key == cut.least);
    const std::uint32_t my_equal = equal + popcount(equals & lanes_before());
    if (key > cut.least || (key == cut.least && my_equal < ties))
      put(above + popcount(aboves & lanes_before()) + min(my_equal, ties), i);
    above += popcount(aboves);
    equal += popcount(equals);
  }
  return (all & 0xffff) + min(all >> 16, ties);
}

// Shrinks a list of more than k to its k best; returns the least key among these. `items` is room for k. Begins and
// ends with a barrier.
template <int kThreads>
__device__ std::uint32_t block_shrink(const SurvivorList& list, std::uint32_t size, std::uint32_t k,
                                      std::uint32_t low, std::uint32_t* items, CutBlock& block) {
  constexpr int kMost = 4096 / kThreads;
  __syncthreads();
  const Cut cut = block_cut_list<kThreads>(list, size, k, low, block);
  (void)block_pick_list<kThreads>(list, size, cut, block.m,
                                  [&](std::uint32_t place, std::uint32_t i) { items[place] = i; });
  __syncthreads();
  std::uint32_t keys[kMost], elements[kMost];
#pragma unroll
  for (int s = 0; s < kMost; ++s) {
    const std::uint32_t place = s * kThreads + threadIdx.x;
    if (place >= k) continue;
    keys[s] = list.keys[items[place]];
    elements[s] = list.elements[items[place]];
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kMost; ++s) {
    const std::uint32_t place = s * kThreads + threadIdx.x;
    if (place >= k) continue;
    list.keys[place] = keys[s];
    list.elements[place] = elements[s];
  }
  __syncthreads();
  return cut.least;
}

}  // namespace keysieve::gpu

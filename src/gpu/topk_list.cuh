// topk_list: the elements that reach a threshold, in order, from registers or streamed.
#pragma once

#include "gpu/topk_words.cuh"

namespace keysieve::gpu {

// All threads give the least and the greatest key that they listed; read after the next barrier.
__device__ inline void block_note_range(std::uint32_t low, std::uint32_t high, SelectWords& words) {
  low = wave_min(low);
  high = wave_max(high);
  if (lane_id() == 0 && low <= high) {
    atomicMin(&words.low, low);
    atomicMax(&words.high, high);
  }
}

// Lists the survivors of a slice that the threads hold in registers; returns their number. If they exceed the
// list's room, nothing is listed.
template <int kThreads, class Scores, bool kListed>
__device__ std::uint32_t block_list_held(const TopkParams& p, const RowElements<Scores, kListed>& elements,
                                         std::uint32_t from, std::uint32_t to,
                                         const uint4 (&held)[kHeldVectors<Scores>], float pass_from,
                                         Survivor* list, SelectWords& words) {
  constexpr int kVector = Scores::kVector, kHeld = kHeldVectors<Scores>;
  constexpr int kWaves = kThreads / kWave;
  // One word counts all of a thread's vectors, a field each: a wave has at most 128 (bf16: 256) in a field.
  constexpr int kField = 32 / kHeld;
  static_assert(kWave * kVector < 1 << kField);
  std::uint32_t passed = 0, counts = 0;
#pragma unroll
  for (int u = 0; u < kHeld; ++u) {
    const std::uint32_t v = from + u * kThreads + threadIdx.x;
    std::uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < kVector; ++j) bits |= Scores::value(held[u], j) < pass_from ? 0 : 1u << j;
    bits &= v < to ? elements.valid(v) : 0;
    passed |= bits << (u * kVector);
    counts += static_cast<std::uint32_t>(__popc(bits)) << (u * kField);
  }
  std::uint32_t before = counts;
#pragma unroll
  for (int distance = 1; distance < kWave; distance *= 2) {
    const std::uint32_t other = wave_shuffle_up(before, distance);
    if (lane_id() >= distance) before += other;
  }
  if (lane_id() == kWave - 1) words.counts[wave_id()] = before;
  before -= counts;
  __syncthreads();
  // Sums over waves take 16 bits a field.
  const std::uint32_t of_wave = lane_id() < kWaves ? words.counts[lane_id()] : 0;
  std::uint32_t total = 0, places[kHeld];
#pragma unroll
  for (int half = 0; half < 16 / kField; ++half) {
    const std::uint32_t fields = of_wave >> (half * kField) & ((1u << kField) - 1) * 0x10001u;
    const std::uint32_t sums = wave_sum(fields);
    const std::uint32_t sums_before = wave_sum(lane_id() < wave_id() ? fields : 0);
    places[half] = (sums & 0xffff) | (sums_before & 0xffff) << 16;
    places[half + 16 / kField] = sums >> 16 | (sums_before & 0xffff0000u);
  }
#pragma unroll
  for (int u = 0; u < kHeld; ++u) {
    const std::uint32_t of_vectors = places[u] & 0xffff;
    places[u] = total + (places[u] >> 16) + (before >> (u * kField) & ((1u << kField) - 1));
    total += of_vectors;
  }
  if (total > p.capacity) return total;
  std::uint32_t low = ~0u, high = 0;
#pragma unroll
  for (int u = 0; u < kHeld; ++u) {
    std::uint32_t e = elements.element(from + u * kThreads + threadIdx.x);
    Survivor* at = list + places[u];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if ((passed >> (u * kVector + j) & 1) != 0) {
        const std::uint32_t key = key_of(Scores::value(held[u], j));
        *at = {e + j, key};
        ++at;
        low = min(low, key);
        high = max(high, key);
      }
    }
  }
  block_note_range(low, high, words);
  return total;
}

// Lists the survivors of vectors [from, to), any number of them, chunk by chunk: a bit for each element, then
// the set bits in order, at last their keys. A wave has kUnit groups in flight.
template <int kThreads, std::uint32_t kUnit, class Scores, bool kListed>
__device__ std::uint32_t block_list_streamed(const TopkParams& p,
                                             const RowElements<Scores, kListed>& elements, std::uint32_t from,
                                             std::uint32_t to, float pass_from, Survivor* list,
                                             std::uint32_t* bitmap, std::uint32_t* prefix,
                                             SelectWords& words) {
  constexpr std::uint32_t kVector = Scores::kVector, kWaves = kThreads / kWave;
  constexpr std::uint32_t kGroupBytes = kVector * sizeof(LaneMask);
  constexpr std::uint32_t kGroups =
      kChunkBytes / kGroupBytes < kChunkGroups ? kChunkBytes / kGroupBytes : kChunkGroups;
  constexpr std::uint32_t kEach = kGroups / kThreads > 0 ? kGroups / kThreads : 1;
  LaneMask* masks = reinterpret_cast<LaneMask*>(bitmap);
  // Vectors [inner_from, inner_to) are whole and aligned.
  const std::uint32_t inner_from = elements.vectors && !kListed ? (elements.lead > 0 ? 1 : 0) : to;
  const std::uint32_t inner_to = (elements.size + elements.lead) / kVector;
  const typename Scores::Word* base = elements.first - elements.lead;
  std::uint32_t listed = 0;
  for (std::uint32_t chunk = from; chunk < to; chunk += kGroups * kWave) {
    const std::uint32_t groups = min(kGroups, (to - chunk + kWave - 1) / kWave);
    const auto mark = [&](std::uint32_t group, const uint4& raw, std::uint32_t valid) {
      LaneMask lanes[kVector];
#pragma unroll
      for (std::uint32_t j = 0; j < kVector; ++j)
        lanes[j] =
            wave_ballot(!(Scores::value(raw, static_cast<int>(j)) < pass_from) && (valid >> j & 1) != 0);
      if (lane_id() == 0) {
#pragma unroll
        for (std::uint32_t j = 0; j < kVector; ++j) masks[group * kVector + j] = lanes[j];
      }
    };
    const auto is_inner = [&](std::uint32_t unit) {
      const std::uint32_t v = chunk + unit * kWave;
      return unit + kUnit <= groups && v >= inner_from && v + kUnit * kWave <= min(inner_to, to);
    };
    const auto fetch = [&](std::uint32_t unit, uint4(&raw)[kUnit]) {
#pragma unroll
      for (std::uint32_t x = 0; x < kUnit; ++x)
        raw[x] = __ldg(reinterpret_cast<const uint4*>(
            base + static_cast<std::int64_t>(chunk + (unit + x) * kWave + lane_id()) * kVector));
    };
    uint4 next[kUnit];
    std::uint32_t unit = wave_id() * kUnit;
    bool inner = unit < groups && is_inner(unit);
    if (inner) fetch(unit, next);
    for (; unit < groups; unit += kWaves * kUnit) {
      const std::uint32_t following = unit + kWaves * kUnit;
      const bool following_inner = following < groups && is_inner(following);
      if (inner) {
        uint4 raw[kUnit];
#pragma unroll
        for (std::uint32_t x = 0; x < kUnit; ++x) raw[x] = next[x];
        if (following_inner) fetch(following, next);
#pragma unroll
        for (std::uint32_t x = 0; x < kUnit; ++x) mark(unit + x, raw[x], (1u << kVector) - 1);
      } else {
        if (following_inner) fetch(following, next);
        for (std::uint32_t x = 0; x < kUnit && unit + x < groups; ++x) {
          const std::uint32_t v = chunk + (unit + x) * kWave + lane_id();
          std::uint32_t valid = 0;
          const uint4 raw = v < to ? elements.load(v, valid) : make_uint4(0, 0, 0, 0);
          mark(unit + x, raw, valid);
        }
      }
      inner = following_inner;
    }
    __syncthreads();

    // Where each group's survivors go; then a mask a thread at a time, so that crowds are shared out.
    std::uint32_t sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t g = threadIdx.x * kEach + i;
      if (g < groups)
#pragma unroll
        for (std::uint32_t j = 0; j < kVector; ++j) sum += popcount(masks[g * kVector + j]);
    }
    std::uint32_t total;
    std::uint32_t at = listed + block_sum_before<kThreads>(sum, words.cut.waves, total);
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t g = threadIdx.x * kEach + i;
      if (g >= groups) break;
      prefix[g] = at;
#pragma unroll
      for (std::uint32_t j = 0; j < kVector; ++j) at += popcount(masks[g * kVector + j]);
    }
    __syncthreads();
    for (std::uint32_t w = threadIdx.x; w < groups * kVector; w += kThreads) {
      LaneMask left = masks[w];
      if (left == 0) continue;
      const std::uint32_t g = w / kVector, j = w % kVector;
      const std::uint32_t base_at = prefix[g];
      if (base_at >= p.capacity) continue;
      while (left != 0) {
        const int lane = first_lane(left);
        left &= left - 1;
        // Before it: all of the group's elements in lanes before, and those of its lane in masks before.
        const LaneMask lower = (LaneMask{1} << lane) - 1;
        std::uint32_t place = base_at;
#pragma unroll
        for (std::uint32_t i = 0; i < kVector; ++i)
          place += popcount(masks[g * kVector + i] & (i < j ? (lower << 1 | 1) : lower));
        if (place < p.capacity)
          list[place].element = elements.element(chunk + g * kWave + static_cast<std::uint32_t>(lane)) + j;
      }
    }
    listed += total;
    __syncthreads();
  }
  std::uint32_t low = ~0u, high = 0;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < min(listed, p.capacity); i += kThreads) {
    const std::uint32_t key = key_of(elements.score(list[i].element));
    list[i].key = key;
    low = min(low, key);
    high = max(high, key);
  }
  block_note_range(low, high, words);
  return listed;
}

}  // namespace keysieve::gpu

// topk_filter: one pass over a long row that lists, in order, everything that may be among its k best.
//
//   threshold  Each thread samples up to four vectors that lie far apart and keeps the greatest key; the cut
//              among these maxima leaves a few more than k elements of the row.
//   stream     A wave tests 32 vectors with one ballot; a set bit is a vector with an element that passes.
//   list       The set vectors are queued in order and read again; passing elements go to the list.
//
// Where the list runs full, an exact cut shrinks it to its k best. Nothing later may enter that does not exceed
// the least of these, so the pass stays exact for any data, and ties go to the lower columns.
#pragma once

#include "gpu/topk_list.cuh"

namespace keysieve::gpu {

// Vectors that a thread has on their way to it; more need registers that others do not have.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr std::uint32_t kVectorsInFlight = 8;
#else
inline constexpr std::uint32_t kVectorsInFlight = 4;
#endif

// What one round may list.
inline constexpr std::uint32_t kRoundElements = 4096;

struct Threshold {
  std::uint32_t key;  // elements from here on are listed
  bool crowded;       // so many may reach it that the list runs full at once
};

// A threshold that a few more than k elements of the row reach, if the sample does not mislead.
template <int kThreads, class Scores, bool kListed>
__device__ Threshold block_sample(const TopkParams& p, const RowElements<Scores, kListed>& of_row,
                                  CutBlock& block) {
  constexpr int kVector = Scores::kVector, kMostTurns = 4;
  const RowElements<Scores, kListed> elements = of_row;
  const std::uint32_t first = elements.lead > 0 ? 1 : 0;
  const std::uint32_t last = (elements.size + elements.lead) / kVector - 1;
  const int turns = elements.size <= 262144 ? 2 : kMostTurns;
  // Spots follow each other at an even distance, each moved at random inside it, since scores may repeat with
  // the row's structure. Two lanes read one 32-byte sector.
  const float step =
      __fdividef(static_cast<float>(last - first + 1), static_cast<float>(kThreads / 2 * turns));
  uint4 raw[kMostTurns];
#pragma unroll
  for (int turn = 0; turn < kMostTurns; ++turn) {
    if (turn >= turns) break;
    const std::uint32_t spot = (turn * kThreads + threadIdx.x) / 2;
    const float jitter = static_cast<float>(spot * 0x9e3779b9u >> 8) * 0x1p-24f;
    const auto at = static_cast<std::uint32_t>((static_cast<float>(spot) + jitter) * step);
    raw[turn] = elements.load_any(min(first + (at & ~1u) + (threadIdx.x & 1), last));
  }
  // Of `sampled` elements, `hits` should reach the threshold: k of the row do so at five standard deviations less.
  const float of_group = static_cast<float>(turns * kVector), sampled = of_group * kThreads;
  const float wanted = static_cast<float>(p.k) * __fdividef(sampled, static_cast<float>(elements.size));
  const float under = 25.f + 4.f * wanted;
  const float root = 2.5f + 0.5f * under * rsqrtf(under);
  const float share = fminf(__fdividef(root * root, sampled), 0.5f);
  const float groups = static_cast<float>(kThreads) * (1.f - exp2f(of_group * __log2f(1.f - share)));
  const std::uint32_t rank = min(max(static_cast<std::uint32_t>(groups), 1u), kThreads - 1u);
  float greatest = Scores::value(raw[0], 0);
#pragma unroll
  for (int turn = 0; turn < kMostTurns; ++turn) {
    if (turn >= turns) break;
#pragma unroll
    for (int j = 0; j < kVector; ++j) greatest = max_or_nan(greatest, Scores::value(raw[turn], j));
  }
  const std::uint32_t maximum = key_of(greatest);
  const Cut cut =
      block_cut<kThreads>([&](auto&& f) { f(maximum); }, rank, floor_key(p), ~0u, rank / 2, block);
  return {cut.least, cut.reaching > 2 * rank + 32};
}

__device__ inline LaneMask lowest_lanes(std::uint32_t count) {
  return count >= kWave ? kAllLanes : (LaneMask{1} << count) - 1;
}

// Where a list stands: `size` elements, all of them `low` or more.
struct Filtered {
  std::uint32_t size, low;
};

// Lists what of vectors [from, to) may be among the row's k best. `queue` has a word a thread, `items` k words. Ends
// with a barrier.
template <int kThreads, class Scores, bool kListed>
__device__ Filtered block_filter(const TopkParams& p, const RowElements<Scores, kListed>& elements,
                                 std::uint32_t from, std::uint32_t to, const Threshold& threshold,
                                 const SurvivorList& list, std::uint32_t* queue, std::uint32_t* items,
                                 CutBlock& block) {
  constexpr std::uint32_t kVector = Scores::kVector, kInFlight = kListed ? 2 : kVectorsInFlight,
                          kFours = kVector / 4;
  constexpr std::uint32_t kWindow = kThreads / kFours;  // vectors: four elements a thread
  static_assert(kThreads * 4 <= kRoundElements);
  CutMemory& m = block.m;
  std::uint32_t low = threshold.key, least = low, size = 0;
  bool shrinks = true;  // a crowd has not been turned away
  for (std::uint32_t v = from; v < to;) {
    const bool turns_away = threshold.crowded && shrinks && v != from && size > p.k;
    if (turns_away || size + kRoundElements > list.capacity) {
      low = block_shrink<kThreads>(list, size, p.k, low, items, block);
      least = low + 1;
      size = p.k;
      shrinks = false;
      if (least == 0) break;  // all of them are NaN: nothing exceeds them
    }
    // Vectors [inner_from, inner_to) are whole and aligned. The others are listed without a test.
    const bool vectors = elements.vectors;
    const std::uint32_t inner_from = min(to, vectors ? (elements.lead > 0 ? 1u : 0u) : to);
    const std::uint32_t inner_to = min(to, vectors ? (elements.size + elements.lead) / kVector : to);
    // Each wave has a run of groups of kWave vectors; lane g keeps the ballot of the g-th. A crowd shows in a
    // short stretch, whose k best turn the rest of it away.
    const std::uint32_t most_groups =
        threshold.crowded && v == from ? 1 + p.k / (kThreads * kVector) : std::uint32_t{kWave};
    const std::uint32_t groups = min(most_groups, (to - v + kThreads - 1) / kThreads);
    const std::uint32_t run_from = v + wave_id() * groups * kWave;
    const std::uint32_t run_to = min(inner_to, run_from + groups * kWave);
    const float pass_from = score_of(least);
    LaneMask passing = 0;
    for (std::uint32_t g = 0; g < groups; g += kInFlight) {
      uint4 raw[kInFlight];
#pragma unroll
      for (std::uint32_t x = 0; x < kInFlight; ++x) {
        const std::uint32_t vector = run_from + (g + x) * kWave + lane_id();
        raw[x] = make_uint4(0, 0, 0, 0);
        if (vector >= inner_from && vector < run_to) raw[x] = elements.load_inner(vector);
      }
#pragma unroll
      for (std::uint32_t x = 0; x < kInFlight; ++x) {
        const std::uint32_t vector = run_from + (g + x) * kWave + lane_id();
        float greatest = Scores::value(raw[x], 0);
#pragma unroll
        for (std::uint32_t j = 1; j < kVector; ++j)
          greatest = max_or_nan(greatest, Scores::value(raw[x], static_cast<int>(j)));
        const LaneMask group =
            wave_ballot(!(greatest < pass_from) && vector >= inner_from && vector < run_to);
        if (lane_id() == static_cast<int>(g + x)) passing = group;
      }
    }
    const std::uint32_t mine = run_from + lane_id() * kWave;  // the first vector of this lane's group
    if (lane_id() < static_cast<int>(groups) && mine < to) {
      const LaneMask all = lowest_lanes(to - mine);
      if (mine < inner_from) passing |= all & lowest_lanes(inner_from - mine);
      if (mine + kWave > inner_to && !p.faults.on(kEdgeLost))
        passing |= all & ~(mine < inner_to ? lowest_lanes(inner_to - mine) : 0);
    }

    std::uint32_t total;
    const auto count = static_cast<std::uint32_t>(popcount(passing));
    std::uint32_t place = block_sum_before<kThreads>(count, m.waves, total);
    v += groups * kThreads;
    // A window of the queue at a time: `place` is where this thread's next set vector goes.
    for (std::uint32_t done = 0; done < total; done += kWindow) {
      while (passing != 0 && place - done < kWindow) {
        queue[place - done] = mine + static_cast<std::uint32_t>(first_lane(passing));
        passing &= passing - 1;
        ++place;
      }
      if (passing != 0 && place - done == kWindow)
        m.next = mine + static_cast<std::uint32_t>(first_lane(passing));
      __syncthreads();
      std::uint32_t first = 0;
      uint4 keys = make_uint4(0, 0, 0, 0);
      if (threadIdx.x < min(kWindow, total - done) * kFours) {
        first = elements.element(queue[threadIdx.x / kFours]) + threadIdx.x % kFours * 4;
        keys = elements.load_keys(first);
      }
      wave_note_greatest(max(max(keys.x, keys.y), max(keys.z, keys.w)), m);
      size = block_append<kThreads>(keys, first, least, size, list, m);
      if (size + kRoundElements > list.capacity && done + kWindow < total) {
        v = m.next;  // few of the vectors that are left will pass a cut: test them again
        break;
      }
    }
  }
  __syncthreads();
  return {size, low};
}

}  // namespace keysieve::gpu

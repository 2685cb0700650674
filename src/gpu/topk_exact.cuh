// topk_exact: what repairs a misleading sample, and what joins the lists of a team.
#pragma once

#include "gpu/topk_list.cuh"
#include "gpu/topk_sample.cuh"

namespace keysieve::gpu {

struct Collected {
  std::uint32_t above, equal;
};

// Appends to list[0..), in order, the elements of vectors [from, to) above the cut's key and the first
// cut.ties that equal it; with `ties_only`, only the latter, and stops when it has them.
template <int kThreads, class Scores, bool kListed>
__device__ Collected block_collect(const RowElements<Scores, kListed>& elements, std::uint32_t from,
                                   std::uint32_t to, const Cut& cut, bool ties_only, Survivor* list,
                                   CutWords& words) {
  constexpr std::uint32_t kVector = Scores::kVector;
  Collected all{0, 0};
  for (std::uint32_t tile = from; tile < to && !(ties_only && all.equal >= cut.ties); tile += kThreads) {
    const std::uint32_t v = tile + threadIdx.x;
    std::uint32_t valid = 0;
    const uint4 raw = v < to ? elements.load(v, valid) : make_uint4(0, 0, 0, 0);
    std::uint32_t aboves = 0, equals = 0;
#pragma unroll
    for (std::uint32_t j = 0; j < kVector; ++j) {
      const std::uint32_t key = key_of(Scores::value(raw, static_cast<int>(j)));
      if ((valid >> j & 1) == 0) continue;
      if (key > cut.key && !ties_only) aboves |= 1u << j;
      if (key == cut.key) equals |= 1u << j;
    }
    std::uint32_t total;
    const std::uint32_t before = block_sum_before<kThreads>(
        static_cast<std::uint32_t>(__popc(aboves) | __popc(equals) << 16), words.waves, total);
    std::uint32_t above = all.above + (before & 0xffff), equal = all.equal + (before >> 16);
#pragma unroll
    for (std::uint32_t j = 0; j < kVector; ++j) {
      const bool is_above = (aboves >> j & 1) != 0, is_equal = (equals >> j & 1) != 0;
      if (is_above || (is_equal && equal < cut.ties)) {
        const std::uint32_t at = above + min(equal, cut.ties);
        list[at] = {elements.element(v) + j, key_of(Scores::value(raw, static_cast<int>(j)))};
      }
      above += is_above ? 1 : 0;
      equal += is_equal ? 1 : 0;
    }
    all.above += total & 0xffff;
    all.equal += total >> 16;
  }
  __syncthreads();
  return all;
}

// The exact cut of the whole row by three digits of the keys, and with it each thread block's part of the
// selection in its list. Returns the number of elements in this thread block's list.
template <int kThreads, class Scores, bool kListed, class Team>
__device__ std::uint32_t team_radix(const TopkParams& p, const RowElements<Scores, kListed>& elements,
                                    const Team& team, std::uint32_t from, std::uint32_t to, Survivor* list,
                                    std::uint32_t* bins, std::uint32_t* merged, SelectWords& words) {
  const std::uint32_t rank = team.rank(p);
  const std::uint32_t lowest = floor_key(p);
  std::uint32_t prefix = 0, need = p.k, equal_here = 0;
  bool all = false;
  for (int digit = 0; digit < 3 && !all; ++digit) {
    const int shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
    const int above_shift = digit == 1 ? 21 : 10;
    const std::uint32_t mask = digit == 2 ? 1023 : kBins - 1;
    for (std::uint32_t b = threadIdx.x; b < kBins; b += kThreads) bins[b] = 0;
    __syncthreads();
    for (std::uint32_t v = from + threadIdx.x; v < to; v += kThreads) {
      std::uint32_t valid;
      const uint4 raw = elements.load(v, valid);
#pragma unroll
      for (int j = 0; j < Scores::kVector; ++j) {
        const std::uint32_t key = key_of(Scores::value(raw, j));
        if ((valid >> j & 1) != 0 && key >= lowest && (digit == 0 || key >> above_shift == prefix))
          atomicAdd(&bins[key >> shift & mask], 1u);
      }
    }
    team.sync();
    if (rank == 0) {
      for (std::uint32_t b = threadIdx.x; b < kBins; b += kThreads) {
        std::uint32_t sum = 0;
        for (std::uint32_t part = 0; part < (Team::kMany ? p.parts : 1); ++part)
          sum += team.of(bins, part)[b];
        merged[b] = sum;
      }
      if (threadIdx.x == 0) words.cut.inside = 0;
      __syncthreads();
      block_find_bin<kThreads>(merged, need, words.cut);
    }
    team.sync();
    const CutWords& leader = *team.of(&words.cut, 0);
    all = leader.inside == 0;  // fewer than k may be selected at all
    if (all) break;
    const std::uint32_t bin = leader.bin;
    need -= leader.above;
    prefix = digit == 0 ? bin : digit == 1 ? prefix << 11 | bin : prefix << 10 | bin;
    equal_here = bins[bin];
    team.sync();
  }
  Cut cut = all ? Cut{lowest - 1, 0} : Cut{prefix, need};
  if (!all) {
    if (threadIdx.x == 0) words.equal = equal_here;
    team.sync();
    std::uint32_t before = 0;
    for (std::uint32_t part = 0; part < rank; ++part) before += *team.of(&words.equal, part);
    cut.ties = before >= need ? 0 : min(need - before, equal_here);
  }
  const Collected found = block_collect<kThreads>(elements, from, to, cut, false, list, words.cut);
  return found.above + min(found.equal, cut.ties);
}

// Appends the other thread blocks' lists to the leader's; returns how many elements the whole team listed.
template <int kThreads, class Team>
__device__ std::uint32_t team_join(const TopkParams& p, const Team& team, Survivor* list,
                                   std::uint32_t listed, SelectWords& words) {
  if constexpr (!Team::kMany) {
    __syncthreads();
    return listed;
  } else {
    constexpr std::uint32_t kWaves = kThreads / kWave;
    if (threadIdx.x == 0) words.listed = listed;
    team.sync();
    const std::uint32_t parts = p.parts;
    const bool asks = lane_id() < static_cast<int>(parts);
    const SelectWords* other = team.of(&words, asks ? lane_id() : 0);
    const std::uint32_t mine = asks ? other->listed : 0;
    const std::uint32_t low = other->low, high = other->high;
    const std::uint32_t total = wave_sum(mine);
    if (team.rank(p) != 0 || total > p.capacity) return total;
    block_note_range(low, high, words);
    // Waves share the parts evenly: with more waves than parts, several take one part together.
    const std::uint32_t sharers = max(kWaves / parts, 1u);
    for (std::uint32_t task = wave_id(); task < parts * sharers; task += kWaves) {
      const std::uint32_t part = task / sharers;
      const std::uint32_t before = wave_sum(lane_id() < static_cast<int>(part) ? mine : 0);
      const std::uint32_t size = wave_shuffle(mine, static_cast<int>(part));
      if (part == 0) continue;
      const Survivor* from = team.of(list, part);
      for (std::uint32_t i = (task % sharers) * kWave + lane_id(); i < size; i += sharers * kWave)
        list[before + i] = from[i];
    }
    __syncthreads();
    return total;
  }
}

}  // namespace keysieve::gpu

// topk_select: exact top-k of a row in one pass over its scores, by one thread block or by a team of them.
//
//   1. Elements. Plain rows are columns in order; a candidate list becomes its distinct blocks in order.
//   2. Threshold. The row is sampled: maxima of 128 groups that lie spread over it; the one of the right rank
//      leaves about `target` elements at or above it. Every thread block of a team takes the same sample.
//   3. Survivors. Each thread block of the team filters its slice and lists what reaches the threshold, in
//      column order: from registers where the slice fits, else by a bitmap of the slice.
//   4. The leader appends the others' lists to its own, finds the exact cut, and writes the row.
//   A sample may mislead; the number of survivors shows it. If ties at the threshold are all that is missing,
//   the leader scans for the first of them; everything else takes three exact radix passes over the row.
//
// Right for k up to 4,096 and any row. Shared memory: 8 bytes for each place of the list, 4 (by score: 8) for
// each of k, 8 KiB of bins, 20 KiB of bitmap. No workspace.
#pragma once

#include <type_traits>

#include "gpu/topk_candidates.cuh"
#include "gpu/topk_exact.cuh"
#include "gpu/topk_list.cuh"
#include "gpu/topk_sample.cuh"
#include "gpu/topk_select.hpp"

namespace keysieve::gpu {

// kHeld: no slice has more than kHeldElements a thread.
// kDense: several thread blocks share a processor, so each has fewer registers and fewer vectors in flight.
template <class Scores, int kThreads, bool kHeld, bool kListed, bool kDense, class Team>
__device__ void topk_select_row(const TopkParams& p, const Team& team, std::int64_t row,
                                unsigned char* memory) {
  __shared__ SelectWords words;
  auto* list = reinterpret_cast<Survivor*>(memory);
  auto* bins = reinterpret_cast<std::uint32_t*>(memory + p.bins);
  auto* bitmap = reinterpret_cast<std::uint32_t*>(memory + p.bitmap);
  const std::uint32_t rank = team.rank(p);

  // 1. Elements.
  const RowRange visible =
      row_range(p.bounds, static_cast<std::uint32_t>(row), p.compact ? kMaxInt32 : p.width);
  const auto live = static_cast<std::uint32_t>(p.k == 0 ? 0 : visible.end - visible.start);
  block_clear_bins<kThreads>(bins);
  RowElements<Scores, kListed> elements = row_elements<Scores, kListed>(p, row, visible.start);
  if constexpr (!kListed) {
    elements.size = live;
  } else {
    auto* blocks = reinterpret_cast<std::uint32_t*>(memory + p.blocks);
    auto* places = p.compact ? reinterpret_cast<std::uint32_t*>(memory + p.places) : nullptr;
    const std::uint32_t live_blocks = live == 0 ? 0 : p.block_size.divide(live - 1) + 1;
    const std::uint32_t listed = block_sort_candidates<kThreads>(
        p, row, live_blocks, reinterpret_cast<std::uint32_t*>(memory), blocks, places, words.cut);
    elements.list(p, live, listed, blocks, places);
  }

  // 2. and 3. Every thread block of a team has a run of vectors, in order.
  std::uint32_t vectors = elements.vector_count();
  constexpr std::uint32_t kRoom = kHeldVectors<Scores> * kThreads;
  if (kHeld && elements.lead > 0 && vectors > kRoom * p.parts) {
    elements.lead = 0;  // one vector too many for registers: read single words instead
    elements.vectors = false;
    vectors = elements.vector_count();
  }
  std::uint32_t share = vectors;
  if constexpr (Team::kMany) share = (vectors + p.parts * kWave - 1) / (p.parts * kWave) * kWave;
  const std::uint32_t from = min(vectors, rank * share), to = min(vectors, from + share);

  // A sample may mislead. How far the number of survivors is off tells a better rank; once that fails too,
  // the exact passes take over.
  Threshold threshold{score_of(floor_key(p)), floor_key(p), false, true, false};
  const bool sampled = elements.size > p.hold;
  std::uint32_t listed = 0, total = 0, sample_rank = 0;
  bool exact = false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (threadIdx.x == 0) {
      words.low = ~0u;
      words.high = 0;
    }
    uint4 held[kHeldVectors<Scores>];
    if constexpr (kHeld) {
      const bool whole = elements.whole();
#pragma unroll
      for (int u = 0; u < kHeldVectors<Scores>; ++u) {
        const std::uint32_t v = from + u * kThreads + threadIdx.x;
        held[u] = make_uint4(0, 0, 0, 0);
        std::uint32_t valid;
        if (v < to) held[u] = whole ? elements.load_whole(v) : elements.load(v, valid);
      }
    }
    if (sampled) {
      const std::uint32_t per_group = block_sample < kThreads, kHeld ? 2 : 4 > (p, elements, words);
      if (attempt == 0) sample_rank = first_rank(p, elements.size, per_group);
      threshold = block_threshold<kThreads>(p, elements, per_group, sample_rank, words);
      if (threshold.misled) break;
    } else {
      __syncthreads();
    }
    if constexpr (kHeld)
      listed = block_list_held<kThreads>(p, elements, from, to, held, threshold.pass_from, list, words);
    else
      listed = block_list_streamed < kThreads,
      kDense || kListed ? 4
                        : 8 > (p, elements, from, to, threshold.pass_from, list, bitmap,
                               reinterpret_cast<std::uint32_t*>(memory + p.prefix), words);
    total = team_join<kThreads>(p, team, list, listed, words);
    exact = total <= p.capacity && (threshold.whole || total >= p.k);
    if (exact || !sampled || (threshold.strict && total < p.k)) break;
    const float better =
        static_cast<float>(sample_rank) * static_cast<float>(p.target) / static_cast<float>(max(total, 1u));
    const std::uint32_t next = static_cast<std::uint32_t>(min(max(better, 1.f), kMaxima - 1.f));
    if (next == sample_rank) break;
    sample_rank = next;
    team.sync();  // before others' lists change
  }

  // 4. The leader has everything, or knows that it has not.
  bool ties_missing = false;
  if (!exact && threshold.strict && !threshold.misled && total < p.k) {
    const std::uint32_t missing = p.k - total;
    if (rank == 0) {
      const Collected found = block_collect<kThreads>(elements, 0, vectors, Cut{threshold.key, missing}, true,
                                                      list + total, words.cut);
      if (threadIdx.x == 0) words.verdict = found.equal >= missing ? 1 : 0;
    }
    team.sync();
    ties_missing = *team.of(&words.verdict, 0) != 0;
    exact = ties_missing;
  }
  if (!exact) {
    team.sync();
    listed = team_radix<kThreads>(p, elements, team, from, to, list, bins, bitmap, words);
    total = team_join<kThreads>(p, team, list, listed, words);
  }
  // The leader has copied what it needs of the others' memory; they may leave.
  team.arrive();
  if (rank == 0) {
    auto* picks = reinterpret_cast<std::uint32_t*>(memory + p.picks);
    const RowWriter<RowElements<Scores, kListed>> writer(p, elements, row, visible.start);
    const bool direct = p.space != TopkSpace::paged && !p.by_score;
    const std::uint32_t size = ties_missing ? p.k : min(total, p.k);
    const auto put = [&](std::uint32_t place, std::uint32_t e) {
      if (direct)
        writer.put_element(place, e);
      else
        picks[place] = e;
    };
    if (ties_missing) {
      // Two ordered runs, merged by counting what comes before in the other one.
      for (std::uint32_t i = threadIdx.x; i < p.k; i += kThreads) {
        const std::uint32_t e = list[i].element;
        std::uint32_t low = i < total ? total : 0, high = i < total ? p.k : total;
        const std::uint32_t begin = low;
        while (low < high) {
          const std::uint32_t middle = (low + high) / 2;
          if (list[middle].element < e)
            low = middle + 1;
          else
            high = middle;
        }
        put((i < total ? i : i - total) + low - begin, e);
      }
    } else if (total <= p.k) {
      for (std::uint32_t i = threadIdx.x; i < total; i += kThreads) put(i, list[i].element);
    } else {
      const Cut cut = block_find_cut<kThreads>(list, total, p.k, words.low, words.high, bins, words.cut);
      block_pick<kThreads>(list, total, cut, words.cut, put);
    }
    if (direct) {
      writer.template block_finish<kThreads>(size);
    } else {
      __syncthreads();
      if (p.by_score)
        block_sort_picks<kThreads>(elements, picks, size, reinterpret_cast<std::uint64_t*>(memory + p.order));
      writer.template block_write<kThreads>(size, words.cut.waves,
                                            [&](std::uint32_t place) { return picks[place]; });
    }
  }
  team.wait();
}

// Thread blocks that must fit on a processor. Listed rows need more registers; before sm_90, so do all.
template <bool kDense>
inline constexpr int kBlocksPerProcessor =
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    1;
#else
    kDense ? 2 : 1;
#endif

// Calls go(scores, held, listed) with the types of the kernel for these arguments.
template <class Go>
auto select_variant(const TopkArgs& a, const TopkParams& p, int threads, Go&& go) {
  const std::int64_t room = std::int64_t{kHeldElements} * threads * p.parts;
  const auto with_scores = [&](auto scores) {
    const auto with_held = [&](auto held) {
      return a.candidates.given() ? go(scores, held, std::true_type{}) : go(scores, held, std::false_type{});
    };
    return topk_elements(a) <= room ? with_held(std::true_type{}) : with_held(std::false_type{});
  };
  return a.scores.dtype == DType::bf16 ? with_scores(Bf16Scores{}) : with_scores(F32Scores{});
}

}  // namespace keysieve::gpu

// cuda.topk.radix: the general top-k, for any k and any candidate list; a thread block walks over the rows.
//
//   1. A candidate list is sorted by block, in the workspace; of equal blocks the first place stays.
//   2. Three passes over the row, one for each digit of the keys (11, 11 and 10 bits), find the exact cut.
//   3. A fourth pass lists the selection, in column order, in the workspace; by score, four passes of a
//      stable radix sort over 8 bits follow.
//
// Right for everything; takes five times as long as reading the row. Workspace: topk_radix_room() for each
// thread block. Shared memory: 34 KiB.
#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/kernels.hpp"
#include "gpu/topk_cut.cuh"
#include "gpu/topk_variant.hpp"
#include "gpu/topk_writer.cuh"

namespace keysieve::gpu {
namespace {

constexpr int kThreads = 512;
constexpr int kDigits = 256;
constexpr int kMaxWaves = kThreads / kWave;

struct Pairs {
  std::uint32_t* keys;
  std::uint32_t* values;
};

// Entries of the two workspaces of a thread block.
struct RadixRoom {
  std::size_t candidates, picks;
};

struct RadixParams {
  TopkParams topk;
  std::uint32_t* workspace;
  RadixRoom room;
};

struct SortMemory {
  std::uint32_t of_wave[kMaxWaves][kDigits];
  std::uint32_t first[kDigits];
};

// Sorts `from` by its keys, stably. Four passes, so the result lies where it was.
__device__ void block_sort_pairs(Pairs from, Pairs to, std::uint32_t size, SortMemory& memory,
                                 std::uint32_t* waves) {
  for (int shift = 0; shift < 32; shift += 8) {
    __syncthreads();
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads) memory.first[d] = 0;
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < size; i += kThreads)
      atomicAdd(&memory.first[from.keys[i] >> shift & (kDigits - 1)], 1u);
    __syncthreads();
    std::uint32_t total;
    const std::uint32_t count = threadIdx.x < kDigits ? memory.first[threadIdx.x] : 0;
    const std::uint32_t before = block_sum_before<kThreads>(count, waves, total);
    if (threadIdx.x < kDigits) memory.first[threadIdx.x] = before;
    for (std::uint32_t tile = 0; tile < size; tile += kThreads) {
      for (int d = lane_id(); d < kDigits; d += kWave) memory.of_wave[wave_id()][d] = 0;
      wave_sync();
      const std::uint32_t i = tile + threadIdx.x;
      const bool is_in = i < size;
      const std::uint32_t key = is_in ? from.keys[i] : 0;
      const std::uint32_t digit = key >> shift & (kDigits - 1);
      LaneMask same = wave_ballot(is_in);
      for (int bit = 0; bit < 8; ++bit) {
        const LaneMask set = wave_ballot((digit >> bit & 1) != 0);
        same &= (digit >> bit & 1) != 0 ? set : ~set;
      }
      const std::uint32_t rank = popcount(same & lanes_before());
      if (is_in && rank == 0) memory.of_wave[wave_id()][digit] = popcount(same);
      __syncthreads();
      if (threadIdx.x < kDigits) {
        std::uint32_t sum = memory.first[threadIdx.x];
        for (int wave = 0; wave < kMaxWaves; ++wave) {
          const std::uint32_t here = memory.of_wave[wave][threadIdx.x];
          memory.of_wave[wave][threadIdx.x] = sum;
          sum += here;
        }
        memory.first[threadIdx.x] = sum;
      }
      __syncthreads();
      if (is_in) {
        const std::uint32_t at = memory.of_wave[wave_id()][digit] + rank;
        to.keys[at] = key;
        to.values[at] = from.values[i];
      }
      __syncthreads();
    }
    const Pairs other = from;
    from = to;
    to = other;
  }
  __syncthreads();
}

// The distinct listed blocks below `live`, ascending, with their first places; returns how many.
__device__ std::uint32_t block_sorted_candidates(const TopkParams& p, std::int64_t row, std::int64_t live,
                                                 Pairs sorted, Pairs other, SortMemory& memory,
                                                 std::uint32_t* waves) {
  std::uint32_t valid = 0;
  for (std::uint32_t from = 0; from < p.candidate_count; from += kThreads) {
    const std::uint32_t j = from + threadIdx.x;
    const std::int64_t id = j < p.candidate_count ? p.candidates.at(row, j) : -1;
    const bool is_in = id >= 0 && id < live;
    std::uint32_t total;
    const std::uint32_t at = valid + block_sum_before<kThreads>(is_in ? 1 : 0, waves, total);
    if (is_in) {
      sorted.keys[at] = static_cast<std::uint32_t>(id);
      sorted.values[at] = j;
    }
    valid += total;
  }
  block_sort_pairs(sorted, other, valid, memory, waves);
  std::uint32_t distinct = 0;
  for (std::uint32_t from = 0; from < valid; from += kThreads) {
    const std::uint32_t i = from + threadIdx.x;
    const bool is_first = i < valid && (i == 0 || sorted.keys[i] != sorted.keys[i - 1]);
    std::uint32_t total;
    const std::uint32_t at = distinct + block_sum_before<kThreads>(is_first ? 1 : 0, waves, total);
    if (is_first) {
      other.keys[at] = sorted.keys[i];
      other.values[at] = sorted.values[i];
    }
    distinct += total;
  }
  __syncthreads();
  return distinct;
}

// A selected element.
struct __align__(8) Survivor {
  std::uint32_t element, key;
};

struct Collected {
  std::uint32_t above, equal;
};

// Lists, in order, the elements above the cut's key and the first cut.ties that equal it.
template <class Scores, bool kListed>
__device__ std::uint32_t block_collect(const RowElements<Scores, kListed>& elements, const Cut& cut,
                                       Survivor* list, std::uint32_t* waves) {
  constexpr std::uint32_t kVector = Scores::kVector;
  const std::uint32_t vectors = elements.vector_count();
  Collected all{0, 0};
  for (std::uint32_t tile = 0; tile < vectors; tile += kThreads) {
    const std::uint32_t v = tile + threadIdx.x;
    std::uint32_t valid = 0;
    const uint4 raw = v < vectors ? elements.load(v, valid) : make_uint4(0, 0, 0, 0);
    std::uint32_t aboves = 0, equals = 0;
#pragma unroll
    for (std::uint32_t j = 0; j < kVector; ++j) {
      const std::uint32_t key = key_of(Scores::value(raw, static_cast<int>(j)));
      if ((valid >> j & 1) == 0) continue;
      if (key > cut.least) aboves |= 1u << j;
      if (key == cut.least) equals |= 1u << j;
    }
    std::uint32_t total;
    const std::uint32_t before = block_sum_before<kThreads>(
        static_cast<std::uint32_t>(__popc(aboves) | __popc(equals) << 16), waves, total);
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
  return all.above + min(all.equal, cut.ties);
}

// The exact cut of a row by three digits of the keys, and with it the selection in `list`; returns its size.
template <class Scores, bool kListed>
__device__ std::uint32_t block_radix(const TopkParams& p, const RowElements<Scores, kListed>& elements,
                                     Survivor* list, CutMemory& m) {
  if (elements.size <= p.k && !p.skip_minus_infinity) {  // all of them: scores tell their order alone
    for (std::uint32_t e = threadIdx.x; e < elements.size; e += kThreads)
      list[e] = {e, p.by_score ? key_of(elements.score(e)) : 0};
    __syncthreads();
    return elements.size;
  }
  const std::uint32_t lowest = floor_key(p), vectors = elements.vector_count();
  std::uint32_t prefix = 0, need = p.k;
  bool all = false;
  for (int digit = 0; digit < 3 && !all; ++digit) {
    const int shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
    const int above_shift = digit == 1 ? 21 : 10;
    const std::uint32_t mask = digit == 2 ? 1023 : kBins - 1;
    for (std::uint32_t b = threadIdx.x; b < kBins; b += kThreads) m.bins[0][b] = 0;
    __syncthreads();
    for (std::uint32_t v = threadIdx.x; v < vectors; v += kThreads) {
      std::uint32_t valid;
      const uint4 raw = elements.load(v, valid);
#pragma unroll
      for (int j = 0; j < Scores::kVector; ++j) {
        const std::uint32_t key = key_of(Scores::value(raw, j));
        if ((valid >> j & 1) != 0 && key >= lowest && (digit == 0 || key >> above_shift == prefix))
          atomicAdd(&m.bins[0][key >> shift & mask], 1u);
      }
    }
    __syncthreads();
    block_find_bin<kThreads>(m.bins[0], need, m);
    all = m.inside == 0;  // fewer than k may be selected at all
    if (all) break;
    need -= m.above;
    prefix = digit == 0 ? m.bin : digit == 1 ? prefix << 11 | m.bin : prefix << 10 | m.bin;
    __syncthreads();
  }
  return block_collect(elements, all ? Cut{lowest - 1, 0, false} : Cut{prefix, need, true}, list, m.waves);
}

template <class Scores, bool kListed>
__global__ void __launch_bounds__(kThreads, 1) topk_radix_kernel(const __grid_constant__ RadixParams params) {
  __shared__ CutMemory m;
  __shared__ SortMemory sort;
  const TopkParams& p = params.topk;
  std::uint32_t* room =
      params.workspace + std::size_t{blockIdx.x} * ((4 * params.room.candidates + 6 * params.room.picks));
  const auto take = [&](std::size_t entries) {
    std::uint32_t* taken = room;
    room += entries;
    return taken;
  };
  const Pairs sorted{take(params.room.candidates), take(params.room.candidates)};
  const Pairs distinct{take(params.room.candidates), take(params.room.candidates)};
  auto* list = reinterpret_cast<Survivor*>(take(2 * params.room.picks));
  const Pairs picks{take(params.room.picks), take(params.room.picks)};
  const Pairs spare{take(params.room.picks), take(params.room.picks)};

  for (std::uint32_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const RowRange visible = row_range(p.bounds, row, p.compact ? kMaxInt32 : p.width);
    const std::int64_t live = p.k == 0 ? 0 : visible.end - visible.start;
    RowElements<Scores, kListed> elements = row_elements<Scores, kListed>(p, row, visible.start);
    if constexpr (kListed) {
      const std::int64_t block = p.block_size.value;
      const std::uint32_t listed =
          block_sorted_candidates(p, row, (live + block - 1) / block, sorted, distinct, sort, m.waves);
      elements.list(p, live, listed, distinct.keys, p.compact ? distinct.values : nullptr);
    } else {
      elements.size = static_cast<std::uint32_t>(live);
    }
    const std::uint32_t size = block_radix(p, elements, list, m);
    const RowWriter<RowElements<Scores, kListed>> writer(p, elements, row,
                                                         static_cast<std::uint32_t>(visible.start));
    if (p.by_score) {
      // The greatest keys first; picks are in column order, and the sort keeps that among equal keys.
      for (std::uint32_t i = threadIdx.x; i < size; i += kThreads) {
        picks.keys[i] = ~list[i].key;
        picks.values[i] = list[i].element;
      }
      block_sort_pairs(picks, spare, size, sort, m.waves);
      writer.template block_write<kThreads>(size, m.waves,
                                            [&](std::uint32_t at) { return picks.values[at]; });
    } else {
      writer.template block_write<kThreads>(size, m.waves,
                                            [&](std::uint32_t at) { return list[at].element; });
    }
    __syncthreads();
  }
}

RadixRoom topk_radix_room(const TopkArgs& a) {
  const auto candidates = a.candidates.given() ? static_cast<std::size_t>(a.candidates.shape[1]) : 0;
  return {candidates, static_cast<std::size_t>(std::min(a.k, topk_elements(a)))};
}

std::int64_t topk_radix_blocks(const TopkArgs& a) {
  return std::min<std::int64_t>(a.scores.shape[0], 2 * std::max(device_facts(a.scores.device).processors, 1));
}

}  // namespace

const char* TopkRadix::refuses(const TopkArgs& a) {
  if (a.scores.shape[0] > kMaxInt32) return "2^31 rows or more";
  if (a.k > kMaxInt32) return "k is 2^31 or more";
  if (a.candidates.given() && a.candidates.shape[1] > kMaxInt32) return "2^31 candidates or more";
  return nullptr;
}

std::size_t TopkRadix::workspace_bytes(const TopkArgs& a, std::int32_t) {
  const RadixRoom room = topk_radix_room(a);
  return static_cast<std::size_t>(topk_radix_blocks(a)) * (4 * room.candidates + 6 * room.picks) *
         sizeof(std::uint32_t);
}

Status TopkRadix::run(const TopkArgs& a, const Launch& launch) {
  RadixParams p{topk_params(a), static_cast<std::uint32_t*>(launch.workspace.data), topk_radix_room(a)};
  const Grid grid{static_cast<std::uint32_t>(topk_radix_blocks(a)), kThreads, 0, false};
  return topk_variant(a, [&](auto scores, auto listed) {
    return launch_kernel("topk", launch, grid, topk_radix_kernel<decltype(scores), listed.value>, p);
  });
}

}  // namespace keysieve::gpu

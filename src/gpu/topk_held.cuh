// topk_held: what the fast top-k kernels share: a row's elements, its keys in registers where they fit, and the end,
// which cuts what is listed and writes the row.
#pragma once

#include "gpu/held_keys.cuh"
#include "gpu/topk_candidates.cuh"
#include "gpu/topk_list.cuh"
#include "gpu/topk_writer.cuh"

namespace keysieve::gpu {

inline constexpr std::int64_t kHeldMaxK = 4096;

// Where things lie in dynamic shared memory behind the list, in bytes. By score, the sort takes the place of the
// list, which is no longer needed once the picks are known.
struct HeldLayout {
  std::uint32_t picks = 0, order = 0, scratch = 0, blocks = 0, places = 0, bytes = 0;
};

inline HeldLayout held_layout(const TopkParams& p, const ListLayout& list) {
  const auto rounded = [](std::uint32_t bytes) { return (bytes + 15) / 16 * 16; };
  HeldLayout l;
  l.picks = list.bytes;
  l.bytes = l.picks + rounded(p.k * 4);
  std::uint32_t sorted = 2;
  while (sorted < p.k) sorted *= 2;
  if (p.by_score && sorted * 8 > list.bytes) {
    l.order = l.bytes;
    l.bytes += sorted * 8;
  }
  if (p.candidate_count > 0) {
    l.scratch = l.bytes;
    l.blocks = l.scratch + kListScratchBytes;
    l.places = l.blocks + rounded(p.candidate_count * 4);
    l.bytes = l.places + (p.compact ? rounded(p.candidate_count * 4) : 0);
  }
  return l;
}

// What these kernels take without asking, a row and the device's own share included.
inline constexpr std::size_t kHeldStaticBytes = sizeof(CutMemory) + sizeof(HeldMemory<1024>) + 1024;

// A row, in shared memory: it has many fields, and registers are scarce.
template <class Scores, bool kListed>
struct HeldRow {
  RowElements<Scores, kListed> elements;
  std::uint32_t start;
  CandidateMemory candidates;
};

// Fills in the row. Ends with a barrier.
template <int kThreads, class Scores, bool kListed>
__device__ void block_begin_row(const TopkParams& p, const HeldLayout& layout, std::uint32_t row,
                                unsigned char* memory, HeldRow<Scores, kListed>& held) {
  if (wave_id() == 0) {  // by one wave: the others would only queue for the same instructions
    const RowRange visible = row_range(p.bounds, row, p.compact ? kMaxInt32 : p.width);
    RowElements<Scores, kListed> elements = row_elements<Scores, kListed>(p, row, visible.start);
    elements.size = static_cast<std::uint32_t>(p.k == 0 ? 0 : visible.end - visible.start);
    if (lane_id() == 0) {
      held.elements = elements;
      held.start = static_cast<std::uint32_t>(visible.start);
    }
  }
  __syncthreads();
  if constexpr (kListed) {
    auto* blocks = reinterpret_cast<std::uint32_t*>(memory + layout.blocks);
    auto* places = p.compact ? reinterpret_cast<std::uint32_t*>(memory + layout.places) : nullptr;
    const std::uint32_t live = held.elements.size;
    const std::uint32_t listed = block_list_candidates<kThreads>(
        p, row, live == 0 ? 0 : p.block_size.divide(live - 1) + 1,
        reinterpret_cast<std::uint32_t*>(memory + layout.scratch), blocks, places, held.candidates);
    __syncthreads();
    if (threadIdx.x == 0) held.elements.list(p, live, listed, blocks, places);
    __syncthreads();
  }
}

// The keys of a whole row, straight from its scores. A row that lies between 16-byte borders may have a vector too
// many for the registers; then single words are read.
template <int kThreads, class Scores, bool kListed>
__device__ void block_hold_row(const RowElements<Scores, kListed>& of_row, std::uint32_t& lead,
                               std::uint32_t (&keys)[kHeldKeys]) {
  constexpr int kVector = Scores::kVector, kVectors = kHeldKeys / kVector;
  RowElements<Scores, kListed> elements = of_row;
  if (elements.vector_count() > kVectors * kThreads) {
    elements.lead = 0;
    elements.vectors = false;
  }
  lead = elements.lead;
  const std::uint32_t vectors = elements.vector_count();
  uint4 raw[kVectors];
  if (elements.whole()) {
#pragma unroll
    for (int u = 0; u < kVectors; ++u) {
      const std::uint32_t v = u * kThreads + threadIdx.x;
      raw[u] = make_uint4(0, 0, 0, 0);
      if (v < vectors) raw[u] = elements.load_whole(v);
    }
#pragma unroll
    for (int u = 0; u < kVectors; ++u)
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        keys[u * kVector + j] = u * kThreads + threadIdx.x < vectors ? key_of(Scores::value(raw[u], j)) : 0;
    return;
  }
  std::uint32_t valid[kVectors];
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const std::uint32_t v = u * kThreads + threadIdx.x;
    raw[u] = make_uint4(0, 0, 0, 0);
    valid[u] = 0;
    if (v < vectors) raw[u] = elements.load(v, valid[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u)
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      keys[u * kVector + j] = (valid[u] >> j & 1) != 0 ? key_of(Scores::value(raw[u], j)) : 0;
}

// Writes the row from what pick(put) puts, put(place, element); pick returns how many that are.
template <int kThreads, class Scores, bool kListed, class Pick>
__device__ void block_write_row(const TopkParams& p, const HeldLayout& layout, std::uint32_t row,
                                const HeldRow<Scores, kListed>& held, unsigned char* memory, CutMemory& m,
                                Pick&& pick) {
  if (p.plain) {
    std::int32_t* out = static_cast<std::int32_t*>(p.out) + row * p.out_row_stride;
    std::int32_t shift = 0;
    if (p.space == TopkSpace::absolute) shift = static_cast<std::int32_t>(held.start);
    if (p.space == TopkSpace::offset)
      shift = static_cast<std::int32_t>(load_int(p.offset, row * p.offset.stride));
    const std::uint32_t selected = pick([&](std::uint32_t place, std::uint32_t e) {
      out[place] = shift + static_cast<std::int32_t>(held.elements.column(e));
    });
    for (std::uint32_t place = selected + threadIdx.x; place < p.k; place += kThreads) out[place] = -1;
    return;
  }
  auto* picks = reinterpret_cast<std::uint32_t*>(memory + layout.picks);
  const std::uint32_t selected = pick([&](std::uint32_t place, std::uint32_t e) { picks[place] = e; });
  __syncthreads();
  if (p.by_score)
    block_sort_picks<kThreads>(held.elements, picks, selected,
                               reinterpret_cast<std::uint64_t*>(memory + layout.order));
  const RowWriter<RowElements<Scores, kListed>> writer(p, held.elements, row, held.start);
  writer.template block_write<kThreads>(selected, m.waves, [&](std::uint32_t place) { return picks[place]; });
}

// Writes the row from a list and its cut, after a barrier.
template <int kThreads, class Scores, bool kListed>
__device__ void block_write_list(const TopkParams& p, const HeldLayout& layout, std::uint32_t row,
                                 const HeldRow<Scores, kListed>& held, const SurvivorList& list,
                                 std::uint32_t size, const Cut& cut, unsigned char* memory, CutMemory& m) {
  block_write_row<kThreads>(p, layout, row, held, memory, m, [&](auto&& put) {
    return block_pick_list<kThreads>(
        list, size, cut, m, [&](std::uint32_t place, std::uint32_t i) { put(place, list.elements[i]); });
  });
}

// The whole way of a row that fits the registers.
template <int kThreads, class Scores, bool kListed>
__device__ void block_select_held(const TopkParams& p, const HeldLayout& layout, std::uint32_t row,
                                  const HeldRow<Scores, kListed>& held, unsigned char* memory,
                                  HeldMemory<kThreads>& registers, CutBlock& block) {
  std::uint32_t keys[kHeldKeys];
  std::uint32_t lead = 0;
  const std::uint32_t size = held.elements.size;
  const bool all = size <= p.k && !p.skip_minus_infinity;  // whatever they are, so the row is not read
  if (!all) block_hold_row<kThreads>(held.elements, lead, keys);
  const auto each = [&](auto&& f) {
#pragma unroll
    for (int i = 0; i < kHeldKeys; ++i) f(keys[i]);
  };
  const std::uint32_t lowest = floor_key(p);
  Cut cut = size > p.k ? block_cut<kThreads>(each, p.k, lowest, ~0u, 0, block) : Cut{lowest, 0, false, 0};
  if (p.faults.on(kTieShort) && cut.partial) --cut.ties;
  block_write_row<kThreads>(p, layout, row, held, memory, block.m, [&](auto&& put) {
    if (all) {
      for (std::uint32_t e = threadIdx.x; e < size; e += kThreads) put(e, e);
      return size;
    }
    return block_pick_held<kThreads, Scores::kVector>(
        keys, cut, registers, block.m,
        [&](std::uint32_t place, std::uint32_t item) { put(place, item - lead); });
  });
}

}  // namespace keysieve::gpu

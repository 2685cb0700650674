// topk_cut: the exact end of a top-k, by one thread block: the cut among a list of survivors, the selected
// ones in order, and the row's outputs.
#pragma once

#include "gpu/topk_row.hpp"

namespace keysieve::gpu {

inline constexpr int kBinBits = 11;
inline constexpr int kBins = 1 << kBinBits;
inline constexpr std::uint32_t kFew = 128;  // so many keys are ranked by comparing all pairs

// A place of the survivors' list, which is in ascending element order.
struct __align__(8) Survivor {
  std::uint32_t element, key;
};

// Selected: keys above `key`, and the first `ties` elements that hold `key`.
struct Cut {
  std::uint32_t key;
  std::uint32_t ties;
};

// Words through which a thread block talks to itself.
struct CutWords {
  std::uint32_t waves[32];
  std::uint32_t waves2[32];
  std::uint32_t bin, above, inside, few;
  std::uint32_t few_keys[kFew];
  Cut cut;
};

// The bin, from the top, in which `need` items are reached: words.bin, items in bins above it, items in it.
// Untouched where all bins together hold fewer than `need`. Ends with a barrier.
template <int kThreads>
__device__ void block_find_bin(const std::uint32_t* bins, std::uint32_t need, CutWords& words) {
  constexpr int kEach = kBins / kThreads, kWaves = kThreads / kWave;
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kEach;
  std::uint32_t counts[kEach];
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += counts[i] = bins[top - i];
  const std::uint32_t of_this_wave = wave_sum(sum);
  if (lane_id() == 0) words.waves[wave_id()] = of_this_wave;
  __syncthreads();
  std::uint32_t above = wave_sum(lane_id() < wave_id() && lane_id() < kWaves ? words.waves[lane_id()] : 0);
  if (above < need && need <= above + of_this_wave) {  // one wave at most
    std::uint32_t inclusive = sum;
#pragma unroll
    for (int distance = 1; distance < kWave; distance *= 2) {
      const std::uint32_t other = wave_shuffle_up(inclusive, distance);
      if (lane_id() >= distance) inclusive += other;
    }
    above += inclusive - sum;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (above < need && need <= above + counts[i]) {
        words.bin = static_cast<std::uint32_t>(top - i);
        words.above = above;
        words.inside = counts[i];
      }
      above += counts[i];
    }
  }
  __syncthreads();
}

template <int kThreads>
__device__ void block_clear_bins(std::uint32_t* bins) {
#pragma unroll
  for (int i = 0; i < kBins / kThreads; ++i) bins[i * kThreads + threadIdx.x] = 0;
}

// The cut that selects k of more than k survivors, whose keys lie in [low, high]. Each round spreads the keys
// that are still in question over 2,048 bins of their own range, so a round usually leaves a handful; equal
// keys end it at once. The bins come in cleared, with a barrier since.
template <int kThreads>
__device__ Cut block_find_cut(const Survivor* list, std::uint32_t size, std::uint32_t k, std::uint32_t low,
                              std::uint32_t high, std::uint32_t* bins, CutWords& words) {
  const std::uint32_t tid = threadIdx.x;
  std::uint32_t need = k;
  while (true) {
    const int length = 32 - __clz(static_cast<int>(high - low));
    const int shift = length > kBinBits ? length - kBinBits : 0;
    for (std::uint32_t i = tid; i < size; i += kThreads) {
      const std::uint32_t offset = list[i].key - low;  // wraps far above the range below `low`
      if (offset <= high - low) atomicAdd(&bins[offset >> shift], 1u);
    }
    if (tid == 0) words.few = 0;
    __syncthreads();
    block_find_bin<kThreads>(bins, need, words);
    const std::uint32_t bin_low = low + (words.bin << shift);
    const std::uint32_t inside = words.inside;
    need -= words.above;
    if (shift == 0) return {bin_low, need};
    if (inside == need) return {bin_low - 1, 0};
    const std::uint32_t bin_span = min(high - bin_low, (1u << shift) - 1);
    if (inside <= kFew) {
      for (std::uint32_t i = tid; i < size; i += kThreads) {
        const std::uint32_t key = list[i].key;
        if (key - bin_low <= bin_span) words.few_keys[atomicAdd(&words.few, 1u)] = key;
      }
      __syncthreads();
      if (tid < inside) {
        // The order in which keys came here is not fixed, but neither key nor ties depend on it.
        const std::uint32_t mine = words.few_keys[tid];
        std::uint32_t greater = 0, before = 0;
        for (std::uint32_t j = 0; j < inside; ++j) {
          const std::uint32_t other = words.few_keys[j];
          greater += other > mine ? 1 : 0;
          before += other == mine && j < tid ? 1 : 0;
        }
        if (greater + before == need - 1) words.cut = {mine, need - greater};
      }
      __syncthreads();
      return words.cut;
    }
    low = bin_low;
    high = bin_low + bin_span;
    block_clear_bins<kThreads>(bins);
    __syncthreads();
  }
}

// Calls put(place, element) for what the cut selects, places in list order. Each wave has a run of the list;
// one pass counts, one puts.
template <int kThreads, class Put>
__device__ void block_pick(const Survivor* list, std::uint32_t size, const Cut& cut, CutWords& words,
                           Put&& put) {
  constexpr int kWaves = kThreads / kWave;
  const std::uint32_t run = (size + kThreads - 1) / kThreads * kWave;
  const std::uint32_t begin = min(size, wave_id() * run), end = min(size, begin + run);
  std::uint32_t above = 0, equal = 0;  // both fit 16 bits
  for (std::uint32_t i = begin + lane_id(); i < end; i += kWave) {
    const std::uint32_t key = list[i].key;
    above += key > cut.key ? 1 : key == cut.key ? 0x10000 : 0;
  }
  above = wave_sum(above);
  if (lane_id() == 0) words.waves2[wave_id()] = above;
  __syncthreads();
  above = wave_sum(lane_id() < wave_id() && lane_id() < kWaves ? words.waves2[lane_id()] : 0);
  equal = above >> 16;
  above &= 0xffff;
  for (std::uint32_t from = begin; from < end; from += kWave) {
    const std::uint32_t i = from + lane_id();
    const Survivor s = i < end ? list[i] : Survivor{0, 0};  // no element has key 0
    const bool is_above = s.key > cut.key, is_equal = s.key == cut.key;
    const LaneMask aboves = wave_ballot(is_above), equals = wave_ballot(is_equal);
    const std::uint32_t my_equal = equal + popcount(equals & lanes_before());
    if (is_above || (is_equal && my_equal < cut.ties))
      put(above + popcount(aboves & lanes_before()) + min(my_equal, cut.ties), s.element);
    above += popcount(aboves);
    equal += popcount(equals);
  }
}

// Sorts picks by score: bitonic over the next power of two, ones behind the end. The greatest score comes
// first, and of equal scores the smaller column.
template <int kThreads, class Elements>
__device__ void block_sort_picks(const Elements& elements, std::uint32_t* picks, std::uint32_t size,
                                 std::uint64_t* order) {
  std::uint32_t room = 2;
  while (room < size) room *= 2;
  for (std::uint32_t i = threadIdx.x; i < room; i += kThreads)
    order[i] = i < size ? static_cast<std::uint64_t>(~key_of(elements.score(picks[i]))) << 32 | picks[i]
                        : ~std::uint64_t{0};
  for (std::uint32_t span = 2; span <= room; span *= 2) {
    for (std::uint32_t step = span / 2; step > 0; step /= 2) {
      __syncthreads();
      for (std::uint32_t i = threadIdx.x; i < room / 2; i += kThreads) {
        const std::uint32_t a = (i & ~(step - 1)) * 2 + (i & (step - 1)), b = a + step;
        const std::uint64_t x = order[a], y = order[b];
        if ((x > y) == ((a & span) == 0)) {
          order[a] = y;
          order[b] = x;
        }
      }
    }
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < size; i += kThreads)
    picks[i] = static_cast<std::uint32_t>(order[i]);
  __syncthreads();
}

// One place of a row's outputs.
template <class Elements>
struct RowWriter {
  const TopkParams& p;
  const Elements& elements;
  std::int64_t row;
  std::int64_t shift;  // from a row's column to what `out` counts; unused in the paged space

  __device__ RowWriter(const TopkParams& params, const Elements& of_row, std::int64_t r, std::int64_t start)
      : p(params), elements(of_row), row(r), shift(0) {
    if (p.space == TopkSpace::absolute) shift = start;
    if (p.space == TopkSpace::offset) shift = load_int(p.offset, row * p.offset.stride);
  }
  __device__ void put(std::uint32_t place, std::int64_t value, std::uint32_t column, float score) const {
    const std::int64_t at = row * p.out_row_stride + place * p.out_column_stride;
    if (p.out_wide)
      static_cast<std::int64_t*>(p.out)[at] = value;
    else
      static_cast<std::int32_t*>(p.out)[at] = static_cast<std::int32_t>(value);
    if (p.values.data != nullptr) p.values.at(row, place) = score;
    if (p.raw.data != nullptr) p.raw.at(row, place) = static_cast<std::int32_t>(column);
  }
  __device__ void put_element(std::uint32_t place, std::uint32_t e) const {
    const std::uint32_t column = elements.column(e);
    put(place, shift + column, column, p.values.data != nullptr ? elements.score(e) : 0.f);
  }
  // Unused places, and the count.
  template <int kThreads>
  __device__ void block_finish(std::uint32_t used) const {
    for (std::uint32_t place = used + threadIdx.x; place < p.k; place += kThreads)
      put(place, -1, ~0u, -__int_as_float(0x7f800000));
    if (threadIdx.x == 0 && p.counts.data != nullptr)
      p.counts.data[row * p.counts.row_stride] = static_cast<std::int32_t>(used);
  }
  // All of a row from its picks, element_at(place).
  template <int kThreads, class ElementAt>
  __device__ void block_write(std::uint32_t size, std::uint32_t* waves, ElementAt&& element_at) const {
    if (p.space != TopkSpace::paged) {
      for (std::uint32_t place = threadIdx.x; place < size; place += kThreads)
        put_element(place, element_at(place));
      block_finish<kThreads>(size);
      return;
    }
    // A position without a slot leaves all outputs together, so later ones move up.
    const PageRow pages = page_row(p.pages, row);
    std::uint32_t used = 0;
    for (std::uint32_t from = 0; from < size; from += kThreads) {
      const std::uint32_t i = from + threadIdx.x;
      const std::uint32_t e = i < size ? element_at(i) : 0;
      const std::uint32_t column = i < size ? elements.column(e) : 0;
      const std::int64_t slot = i < size ? page_slot(p.pages, pages, column) : -1;
      std::uint32_t found;
      const std::uint32_t before = block_sum_before<kThreads>(slot >= 0 ? 1 : 0, waves, found);
      if (slot >= 0) put(used + before, slot, column, p.values.data != nullptr ? elements.score(e) : 0.f);
      used += found;
    }
    block_finish<kThreads>(used);
  }
};

}  // namespace keysieve::gpu

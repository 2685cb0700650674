// topk_writer: a row's outputs from its selected elements.
#pragma once

#include "gpu/block.hpp"
#include "gpu/topk_row.hpp"

namespace keysieve::gpu {

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
  std::uint32_t row;
  std::int64_t shift;  // from a row's column to what `out` counts; unused in the paged space

  __device__ RowWriter(const TopkParams& params, const Elements& of_row, std::uint32_t r, std::uint32_t start)
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

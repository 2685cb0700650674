// topk_emit: from the selected scores of a row to everything that it writes.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/page_map.hpp"
#include "cpu/radix_sort.hpp"
#include "cpu/row_range.hpp"
#include "cpu/topk_scratch.hpp"
#include "cpu/topk_view.hpp"
#include "keysieve/topk.hpp"

namespace keysieve::cpu {

// TOP-29. Adds -inf columns, the smallest first, to `count` ascending columns until there are `wanted`. All
// that score more than -inf are in the list, so every column that is not scores -inf, and no score needs a
// look.
inline void fill_with_minus_infinity(std::int32_t* columns, std::int64_t count, std::int64_t wanted) {
  std::int64_t kept = 0;  // listed columns among the first kept + wanted - count
  const std::int64_t added = wanted - count;
  while (kept < count && columns[kept] < added + kept) ++kept;
  std::memmove(columns + kept + added, columns + kept, static_cast<std::size_t>(count - kept) * 4);
  for (std::int64_t i = 0; i < kept + added; ++i) columns[i] = static_cast<std::int32_t>(i);
}

// Reorders ascending columns by score, greatest first; equal scores stay in column order.
inline void order_by_score(const RowView& v, const RowScratch& s, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t bits = v.bits(s.columns[i]);
    std::int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
    if (key == -1) key = 0;                                  // -0
    if ((bits & 0x7fffffff) > 0x7f800000) key = 0x7fffffff;  // NaN
    const std::uint32_t rank = 0x7fffffffu - static_cast<std::uint32_t>(key);
    s.order_a[i] = static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(s.columns[i]);
  }
  const std::uint64_t* sorted = radix_sort(s.order_a, s.order_b, count, 32, 64);
  for (std::int64_t i = 0; i < count; ++i) s.columns[i] = static_cast<std::int32_t>(sorted[i] & 0xffffffffu);
}

// TOP-32 is owed, but what is not paid must not be undefined: the sum wraps around.
inline std::int64_t wrapping_sum(std::int64_t base, std::int64_t local) {
  (void)__builtin_add_overflow(base, local, &base);
  return base;
}

// Writes every place that the row owns (TOP-28): its entries in the asked space, then the tail. An entry
// without a slot is left out of all outputs together (TOP-31).
inline void emit_row(const TopkArgs& a, std::int64_t row, const RowView& v, const RowScratch& s,
                     std::int64_t count) {
  std::int64_t used = 0;
  const auto emit = [&](std::int64_t i, std::int64_t local, std::int64_t value) {
    store_int(a.out, value, row, used);
    if (a.raw.given()) store_int(a.raw, local, row, used);
    if (a.values.given())
      static_cast<std::int32_t*>(a.values.data)[row * a.values.stride[0] + used * a.values.stride[1]] =
          v.bits(i);
    ++used;
  };
  if (a.space == TopkSpace::paged) {
    const RowPages pages(a.pages, row, a.out);
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t local = v.local_column(s.columns[t]);
      const std::int64_t slot = pages.slot(local);
      if (slot >= 0 || mutant("topk.rejected")) emit(s.columns[t], local, slot);
    }
  } else {
    std::int64_t base = 0;
    if (a.space == TopkSpace::absolute) base = v.start;
    if (a.space == TopkSpace::offset) base = load_int(a.offset, row);
    if (a.out.stride[1] == 1 && !a.values.given()) {
      auto* out = static_cast<std::int32_t*>(a.out.data) + row * a.out.stride[0];
      if (v.blocks.ids != nullptr)  // only by score
        for (std::int64_t t = 0; t < count; ++t)
          s.columns[t] = static_cast<std::int32_t>(v.local_column(s.columns[t]));
      for (; used < count; ++used) out[used] = static_cast<std::int32_t>(wrapping_sum(base, s.columns[used]));
    } else {
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t local = v.local_column(s.columns[t]);
        emit(s.columns[t], local, wrapping_sum(base, local));
      }
    }
  }
  if (a.counts.given()) store_int(a.counts, used, row);
  if (mutant("topk.unused")) return;
  for (std::int64_t t = used; t < a.k; ++t) {
    store_int(a.out, -1, row, t);
    if (a.raw.given()) store_int(a.raw, -1, row, t);
    if (a.values.given())
      static_cast<float*>(a.values.data)[row * a.values.stride[0] + t * a.values.stride[1]] =
          -std::numeric_limits<float>::infinity();
  }
}

}  // namespace keysieve::cpu

// topk_emit: what surrounds the selection of one row: which scores it chooses among, and what it writes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/page_map.hpp"
#include "cpu/radix_sort.hpp"
#include "cpu/row_range.hpp"
#include "cpu/topk_scratch.hpp"
#include "keysieve/topk.hpp"

namespace keysieve::cpu {

// The scores that a row chooses among, numbered 0 .. size - 1 in column order. Without candidates score i is
// the row's local column i. With them, the listed blocks follow one another in ascending order.
struct RowView {
  const void* scores = nullptr;  // local column 0, or column 0 of a compact row
  bool bf16 = false;
  bool compact = false;
  std::int64_t size = 0;
  std::int64_t start = 0;                 // of the row's range
  const std::uint64_t* blocks = nullptr;  // id << 32 | place in the list, ids strictly ascending
  std::int64_t block_size = 1;
  int block_shift = -1;  // where block_size is a power of two: a division takes as long as ten of the rest

  [[nodiscard]] std::int64_t stored(std::uint64_t block) const {
    return static_cast<std::int64_t>(compact ? block & 0xffffffffu : block >> 32) * block_size;
  }
  [[nodiscard]] std::int64_t block_of(std::int64_t i) const {
    return block_shift >= 0 ? i >> block_shift : i / block_size;
  }
  [[nodiscard]] std::int64_t local_column(std::int64_t i) const {
    if (blocks == nullptr) return i;
    const std::int64_t b = block_of(i);
    return static_cast<std::int64_t>(blocks[b] >> 32) * block_size + (i - b * block_size);
  }
  [[nodiscard]] std::int32_t bits(std::int64_t i) const {
    std::int64_t at = i;
    if (blocks != nullptr) {
      const std::int64_t b = block_of(i);
      at = stored(blocks[b]) + i - b * block_size;
    }
    if (bf16)
      return static_cast<std::int32_t>(std::uint32_t{static_cast<const std::uint16_t*>(scores)[at]} << 16);
    return static_cast<const std::int32_t*>(scores)[at];
  }
};

// The row's valid candidates, ascending, each once: the first place of a repeated block stands. Lists usually
// are ascending already; others are sorted. Cost and scratch follow the list, never the number of blocks.
inline std::int64_t unique_blocks(const TopkArgs& a, std::int64_t row, std::int64_t visible, RowScratch& s) {
  const std::int64_t block_count = visible > 0 ? (visible - 1) / a.block_size + 1 : 0;
  const auto* list = static_cast<const std::int32_t*>(a.candidates.data) + row * a.candidates.stride[0];
  std::int64_t valid = 0;
  std::int64_t previous = -1;
  bool ascending = true;
  for (std::int64_t j = 0; j < a.candidates.shape[1]; ++j) {
    const std::int64_t id = list[j * a.candidates.stride[1]];
    if (id < 0 || id >= block_count) continue;
    s.sort_a[valid++] = static_cast<std::uint64_t>(id) << 32 | static_cast<std::uint64_t>(j);
    ascending = ascending && id > previous;
    previous = id;
  }
  if (ascending) return valid;
  const int id_bits = std::bit_width(static_cast<std::uint64_t>(block_count - 1));
  if (radix_sort(s.sort_a, s.sort_b, valid, 32, 32 + id_bits) != s.sort_a) std::swap(s.sort_a, s.sort_b);
  std::int64_t unique = 0;
  for (std::int64_t i = 0; i < valid; ++i)
    if (unique == 0 || mutant("topk.duplicates") || s.sort_a[unique - 1] >> 32 != s.sort_a[i] >> 32)
      s.sort_a[unique++] = s.sort_a[i];
  return unique;
}

inline RowView row_view(const TopkArgs& a, std::int64_t row, RowScratch& s) {
  constexpr std::int64_t kWidest = std::numeric_limits<std::int32_t>::max();
  RowView v;
  v.compact = a.layout == ScoreLayout::compact;
  v.bf16 = a.scores.dtype == DType::bf16;
  const RowRange range = row_range(a.bounds, row, v.compact ? kWidest : a.scores.shape[1]);
  v.size = range.size();
  v.start = range.start;
  const std::int64_t origin =
      row * a.scores.stride[0] + (v.compact || mutant("topk.start") ? 0 : range.start);
  v.scores = static_cast<const char*>(a.scores.data) + origin * dtype_bytes(a.scores.dtype);
  if (!a.candidates.given()) return v;
  const std::int64_t blocks = unique_blocks(a, row, v.size, s);
  v.blocks = s.sort_a;
  v.block_size = a.block_size;
  if (std::has_single_bit(static_cast<std::uint64_t>(a.block_size)))
    v.block_shift = std::countr_zero(static_cast<std::uint64_t>(a.block_size));
  if (blocks == 0) {
    v.size = 0;
  } else {  // only the newest block can be cut short by the row's end
    const std::int64_t last = static_cast<std::int64_t>(v.blocks[blocks - 1] >> 32);
    v.size = (blocks - 1) * a.block_size + std::min(a.block_size, v.size - last * a.block_size);
  }
  return v;
}

// Adds -inf columns, the smallest first, to `count` ascending columns until there are `wanted`. All that
// score more than -inf are in the list, so every column that is not scores -inf, and no score needs a look.
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

// Writes everything that the row owns: its entries in the asked space, then the tail.
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
    if (a.out.stride[1] == 1 && v.blocks == nullptr && !a.values.given()) {
      auto* out = static_cast<std::int32_t*>(a.out.data) + row * a.out.stride[0];
      for (; used < count; ++used) out[used] = static_cast<std::int32_t>(base + s.columns[used]);
    } else {
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t local = v.local_column(s.columns[t]);
        emit(s.columns[t], local, base + local);
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

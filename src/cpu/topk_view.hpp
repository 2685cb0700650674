// topk_view: which scores a row chooses among. Its functions are inlined into code of each instruction set,
// which counts and finds bits with one instruction where the baseline calls a library.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "contract/mutant.hpp"
#include "cpu/bits.hpp"
#include "cpu/radix_sort.hpp"
#include "cpu/row_range.hpp"
#include "cpu/topk_scratch.hpp"
#include "hwy/base.h"
#include "keysieve/topk.hpp"

namespace keysieve::cpu {

// Candidate blocks, ids strictly ascending.
struct BlockList {
  const std::int32_t* ids = nullptr;
  const std::int32_t* places = nullptr;  // where each stood in the caller's list; null: in this order
  std::int64_t count = 0;
};

// The scores that a row chooses among, numbered 0 .. size - 1 in column order. Without blocks, score i is the
// row's local column i. With them, the blocks' scores follow one another.
struct RowView {
  const void* scores = nullptr;  // local column 0, or column 0 of a compact row
  bool bf16 = false;
  bool compact = false;
  std::int64_t size = 0;
  std::int64_t start = 0;  // of the row's range
  BlockList blocks;        // ids null: no blocks
  std::int64_t block_size = 1;
  int block_shift = -1;  // where block_size is a power of two: a division takes as long as ten shifts

  [[nodiscard]] std::int64_t block_of(std::int64_t i) const {
    return block_shift >= 0 ? i >> block_shift : i / block_size;
  }
  // Where block b's scores start.
  [[nodiscard]] std::int64_t stored(std::int64_t b) const {
    if (!compact) return blocks.ids[b] * block_size;
    return (blocks.places != nullptr ? blocks.places[b] : b) * block_size;
  }
  [[nodiscard]] std::int64_t local_column(std::int64_t i) const {
    if (blocks.ids == nullptr) return i;
    const std::int64_t b = block_of(i);
    return blocks.ids[b] * block_size + (i - b * block_size);
  }
  [[nodiscard]] std::int32_t bits(std::int64_t i) const {
    std::int64_t at = i;
    if (blocks.ids != nullptr) {
      const std::int64_t b = block_of(i);
      at = stored(b) + i - b * block_size;
    }
    if (!bf16) return static_cast<const std::int32_t*>(scores)[at];
    return static_cast<std::int32_t>(std::uint32_t{static_cast<const std::uint16_t*>(scores)[at]} << 16);
  }
};

// A list in the order in which candidate_blocks writes it, ascending with unused places last, can stay where
// it is.
HWY_INLINE bool usable_as_it_is(const std::int32_t* list, std::int64_t block_count, std::int64_t& count) {
  while (count > 0 && (list[count - 1] < 0 || list[count - 1] >= block_count)) --count;
  if (count > 0 && list[0] < 0) return false;
  int descents = 0;
  constexpr std::int64_t kLook = 128;  // a shuffled list shows early
  for (std::int64_t j = 0; j + 1 < count && descents == 0; j += kLook)
    for (std::int64_t i = j; i < std::min(j + kLook, count - 1); ++i) descents |= list[i] >= list[i + 1];
  return descents == 0;
}

// TOP-30. The row's valid candidates, ascending, each once; of a block listed twice the first place stands.
// Cost and scratch follow the list, never the row: one bit a block where those bits fit the list's own
// scratch, else a sort.
HWY_INLINE BlockList unique_blocks(const TopkArgs& a, std::int64_t row, std::int64_t visible,
                                   const RowScratch& s) {
  const std::int64_t block_count = visible > 0 ? (visible - 1) / a.block_size + 1 : 0;
  const std::int64_t listed = a.candidates.shape[1];
  const std::int64_t stride = a.candidates.stride[1];
  const auto* list = static_cast<const std::int32_t*>(a.candidates.data) + row * a.candidates.stride[0];
  std::int64_t count = listed;
  if (stride == 1 && usable_as_it_is(list, block_count, count)) return {list, nullptr, count};

  const std::int64_t words = (block_count + 63) / 64;
  if (a.layout == ScoreLayout::dense && words <= listed && !mutant("topk.duplicates")) {
    auto* ids = reinterpret_cast<std::int32_t*>(s.sort_b);
    std::memset(s.sort_a, 0, static_cast<std::size_t>(words) * 8);
    for (std::int64_t j = 0; j < listed; ++j) {
      const auto id = static_cast<std::uint32_t>(list[j * stride]);  // a negative one is too large
      if (id < static_cast<std::uint64_t>(block_count)) s.sort_a[id / 64] |= std::uint64_t{1} << (id % 64);
    }
    const auto append = [&](auto at_once) {
      std::int32_t* end = ids;
      for (std::int64_t w = 0; w < words; ++w)
        end += append_bits<at_once>(end, s.sort_a[w], static_cast<std::int32_t>(w * 64));
      return end - ids;
    };
    // One id a word: two at once pass 1 word in 12.
    count =
        listed <= words ? append(std::integral_constant<int, 2>{}) : append(std::integral_constant<int, 4>{});
    return {ids, nullptr, count};
  }

  std::int64_t valid = 0;
  for (std::int64_t j = 0; j < listed; ++j) {
    const std::int64_t id = list[j * stride];
    if (id >= 0 && id < block_count)
      s.sort_a[valid++] = static_cast<std::uint64_t>(id) << 32 | static_cast<std::uint64_t>(j);
  }
  const int id_bits = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(block_count, 1) - 1));
  const std::uint64_t* sorted = radix_sort(s.sort_a, s.sort_b, valid, 32, 32 + id_bits);
  auto* ids = reinterpret_cast<std::int32_t*>(sorted == s.sort_a ? s.sort_b : s.sort_a);
  std::int32_t* places = ids + listed;
  count = 0;
  for (std::int64_t i = 0; i < valid; ++i) {
    const auto id = static_cast<std::int32_t>(sorted[i] >> 32);
    if (count > 0 && ids[count - 1] == id && !mutant("topk.duplicates")) continue;
    ids[count] = id;
    places[count++] = static_cast<std::int32_t>(sorted[i] & 0xffffffffu);
  }
  return {ids, places, count};
}

// TOP-27: nothing outside the view is ever read.
HWY_INLINE RowView row_view(const TopkArgs& a, std::int64_t row, const RowScratch& s) {
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
  v.blocks = unique_blocks(a, row, v.size, s);
  v.block_size = a.block_size;
  if (std::has_single_bit(static_cast<std::uint64_t>(a.block_size)))
    v.block_shift = std::countr_zero(static_cast<std::uint64_t>(a.block_size));
  if (v.blocks.count == 0) {
    v.size = 0;
  } else {  // only the newest block can be cut short by the row's end
    const std::int64_t last = v.blocks.ids[v.blocks.count - 1] * a.block_size;
    v.size = (v.blocks.count - 1) * a.block_size + std::min(a.block_size, v.size - last);
  }
  return v;
}

}  // namespace keysieve::cpu

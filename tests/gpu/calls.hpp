// calls: for each device operation a call of fixed shape whose data depend on `variant`: lengths from nothing to
// the full width, lists, scores, page tables. What one captured graph must serve, and what streams must not
// mix up.
#pragma once

#include <vector>

#include "keysieve/packed_mask.hpp"
#include "keysieve/translate.hpp"
#include "support/families.hpp"
#include "support/parity.hpp"
#include "support/topk_call.hpp"

namespace keysieve::test {

struct Call {
  TensorBox scores, start, end, candidates;
  CandidateMaskArgs mask;
  CandidateBlocksArgs blocks;

  template <class Args>
  Args filled(Args a) {
    a.scores = scores.tensor();
    a.bounds.start = start.tensor();
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&scores, &start, &end, &candidates}; }
};

struct MaskCall : Call {
  CandidateMaskArgs args() { return filled(mask); }
};

struct BlocksCall : Call {
  CandidateBlocksArgs args() { return filled(blocks); }
};

struct Shape {
  std::int64_t width, row_repeat, block_size, column_stride, places;
  DType dtype, bounds;
};

// Ends: nothing, all, and both sides of every border that a tile could have.
inline std::vector<std::int64_t> ends(std::int64_t width, int variant) {
  const std::vector<std::int64_t> all = {
      0,  1,         1023, 1024,  1025, width / 2, width - 1,    width,         width + 100000,
      -5, width / 3, 8,    width, 0,    4096,      width - 1024, width / 2 + 3, 2048};
  std::vector<std::int64_t> picked;
  for (int i = 0; i < 4; ++i) picked.push_back(all[static_cast<std::size_t>(variant * 4 + i) % all.size()]);
  return picked;
}

template <class Bundle>
Bundle make(const Shape& s, int variant) {
  const std::int64_t entries = 4, rows = entries * s.row_repeat;
  Bundle call;
  call.scores = TensorBox(s.dtype, {rows, s.width}, 3, s.column_stride, variant == 9 ? 1 : 0);
  call.start = TensorBox(s.bounds, {entries});
  call.end = TensorBox(s.bounds, {entries});
  call.candidates = TensorBox(DType::i32, {rows, s.places}, 1);
  const std::vector<float> values =
      make_scores(variant % 2 == 0 ? Family::learned_like : Family::ties, rows * s.width, 17 + variant);
  call.scores.fill([&](auto i, auto j) { return values[static_cast<std::size_t>(i * s.width + j)]; });
  const std::int64_t starts[] = {0, 3, 7, 1024};
  const std::vector<std::int64_t> last = ends(s.width, variant);
  call.start.fill([&](auto i, auto) { return starts[(i + variant) % 4]; });
  call.end.fill([&](auto i, auto) { return last[static_cast<std::size_t>(i)]; });
  call.candidates.fill([&](auto i, auto j) {
    if (variant == 1) return std::int64_t{-1};
    if (j % 11 == 3) return std::int64_t{-1};
    if (j % 13 == 5) return s.width / s.block_size + j;  // past the width
    return (i * 31 + j * 7) % (s.width / s.block_size + 2);
  });
  call.mask.block_size = s.block_size;
  call.mask.bounds.row_repeat = s.row_repeat;
  call.blocks.block_size = s.block_size;
  call.blocks.bounds.row_repeat = s.row_repeat;
  return call;
}

// Four rows, their slots through page tables; of candidates, or of all columns.
inline TopkCall make_topk_call(bool restricted, int variant, std::int64_t width = 9000) {
  constexpr std::int64_t kRows = 4, kPlaces = 300, kPage = 48;
  const Family family = all_families()[static_cast<std::size_t>(variant) % all_families().size()];
  TopkCall c = make_topk({.rows = kRows, .width = width, .k = 512, .padding = 3}, family, 5 + variant);
  const std::int64_t starts[] = {0, 3, 7, 1024};
  const std::vector<std::int64_t> last = ends(width, variant);
  c.start = TensorBox(DType::i64, {kRows});
  c.start.fill([&](auto i, auto) { return starts[(i + variant) % 4]; });
  c.end.fill([&](auto i, auto) { return last[static_cast<std::size_t>(i)]; });
  c.candidates = TensorBox(DType::i32, {kRows, kPlaces}, 1);
  c.candidates.fill([&](auto i, auto j) { return j % 11 == 3 ? -1 : (i * 31 + j * (7 + variant)) % 1130; });
  c.page_table = TensorBox(DType::i32, {kRows, width / kPage}, 2);
  c.page_table.fill([&](auto i, auto j) { return (i * 577 + j * 13 + variant) % 1003 - 1; });
  c.extra.space = TopkSpace::paged;
  c.extra.pages.page_size = kPage;
  c.extra.pages.pool_pages = 1000;
  c.has_start = c.has_pages = c.has_raw = true;
  c.has_candidates = restricted;
  return c;
}

struct TranslateDeviceCall {
  TensorBox indices, page_table, slots, counts;

  TranslateArgs args() {
    TranslateArgs a;
    a.indices = indices.tensor();
    a.pages.page_table = page_table.tensor();
    a.pages.page_size = 48;
    a.pages.pool_pages = 1000;
    a.slots = slots.tensor();
    a.counts = counts.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&indices, &page_table, &slots, &counts}; }
};

inline TranslateDeviceCall make_translate_call(int variant) {
  TranslateDeviceCall c{TensorBox(DType::i32, {5, 700}, 1), TensorBox(DType::i32, {5, 100}, 3),
                        TensorBox(DType::i64, {5, 700}, 2), TensorBox(DType::i32, {5})};
  c.indices.fill([&](auto i, auto j) {
    return variant == 1 || j % 9 == variant ? -1 : (i * 131 + j * (variant + 1)) % 5000;
  });
  c.page_table.fill([&](auto i, auto j) { return (i * 577 + j * 13 + variant) % 1003 - 1; });
  return c;
}

// Requests of other lengths, key ranges and lists in every variant.
struct PackedMaskCall {
  TensorBox q_start, key_first, key_count, list, mask, any, all;

  PackedMaskArgs args() {
    PackedMaskArgs a;
    a.q_start = q_start.tensor();
    a.key_first = key_first.tensor();
    a.key_count = key_count.tensor();
    a.indices = list.tensor();
    a.mask = mask.tensor();
    a.any = any.tensor();
    a.all = all.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&q_start, &key_first, &key_count, &list, &mask, &any, &all}; }
};

inline PackedMaskCall make_packed_mask_call(int variant) {
  constexpr std::int64_t kTokens = 150, kWords = 132;
  const std::vector<int> q_starts[] = {
      {0, 129, 129, 150}, {0, 0, 0, 0}, {0, 0, 150, 150}, {9, 2, 140, 400}, {0, 50, 100, 150}};
  const std::vector<int> counts[] = {
      {kWords * 32, 7, 100}, {1, 2, 3}, {0, kWords * 32 + 9, 0}, {31, 33, -4}, {0, 0, 0}};
  PackedMaskCall c{TensorBox::of(DType::i32, q_starts[variant % 5]),
                   TensorBox::of<int>(DType::i32, {variant * 37, 0, -variant}),
                   TensorBox::of(DType::i32, counts[variant % 5]),
                   TensorBox(DType::i32, {kTokens, 77}, 3),
                   TensorBox(DType::u32, {3, 256, kWords}),
                   TensorBox(DType::u32, {3, 2, 2}),
                   TensorBox(DType::u32, {3, 2, 2})};
  c.list.fill([&](auto i, auto j) { return j % 9 == 4 ? -1 : (i * 131 + j * (variant * 58 + 1)) % 4300; });
  return c;
}

struct MaskIndicesCall {
  TensorBox q_start, key_count, mask, out, counts;

  MaskIndicesArgs args() {
    MaskIndicesArgs a;
    a.q_start = q_start.tensor();
    a.key_count = key_count.tensor();
    a.mask = mask.tensor();
    a.out = out.tensor();
    a.counts = counts.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&q_start, &key_count, &mask, &out, &counts}; }
};

inline MaskIndicesCall make_mask_indices_call(int variant) {
  const std::vector<int> q_starts[] = {
      {0, 5, 5, 9}, {0, 0, 0, 0}, {3, 9, 9, 11}, {0, 11, 0, 11}, {0, 4, 8, 11}};
  const std::vector<int> counts[] = {
      {9593, 10, 64}, {0, 0, 0}, {9600, 9600, 9600}, {-3, 100000, 1}, {33, 31, 32}};
  MaskIndicesCall c{TensorBox::of(DType::i32, q_starts[variant % 5]),
                    TensorBox::of(DType::i32, counts[variant % 5]), TensorBox(DType::u32, {3, 6, 300}, 4),
                    TensorBox(DType::i32, {11, 1000}, 2, 2), TensorBox(DType::i32, {11})};
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t q = 0; q < 6; ++q)
      for (std::int64_t w = 0; w < 300; ++w)
        c.mask.at<std::uint32_t>(r, q, w) =
            static_cast<std::uint32_t>((r * 77 + q * 13 + w + variant) * 2654435761u) &
            (w % 3 == variant % 3 ? ~0u : 0x80000001u);
  return c;
}

}  // namespace keysieve::test

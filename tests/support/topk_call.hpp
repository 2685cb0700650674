// topk_call: everything that one topk call reads and writes, each tensor in guarded memory.
#pragma once

#include <vector>

#include "keysieve/topk.hpp"
#include "support/families.hpp"
#include "support/parity.hpp"

namespace keysieve::test {

struct TopkCall {
  TensorBox scores, start, end, candidates, offset, page_table, row_to_request, table_start;
  TensorBox out, values, counts, raw;
  TopkArgs extra;  // everything that is not a tensor
  bool has_start = false, has_candidates = false, has_offset = false, has_pages = false, has_requests = false,
       has_table_start = false, has_values = true, has_counts = true, has_raw = false;

  TopkArgs args() {
    TopkArgs a = extra;
    a.scores = scores.tensor();
    a.bounds.end = end.tensor();
    if (has_start) a.bounds.start = start.tensor();
    if (has_candidates) a.candidates = candidates.tensor();
    if (has_offset) a.offset = offset.tensor();
    if (has_pages) a.pages.page_table = page_table.tensor();
    if (has_requests) a.pages.row_to_request = row_to_request.tensor();
    if (has_table_start) a.pages.table_start = table_start.tensor();
    a.out = out.tensor();
    if (has_values) a.values = values.tensor();
    if (has_counts) a.counts = counts.tensor();
    if (has_raw) a.raw = raw.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&scores,         &start,       &end, &candidates, &offset, &page_table,
            &row_to_request, &table_start, &out, &values,     &counts, &raw};
  }

  // What row r returned, without the unused places.
  std::vector<std::int64_t> picks(std::int64_t r) {
    std::vector<std::int64_t> result;
    for (std::int64_t t = 0; t < extra.k; ++t) {
      const auto entry = static_cast<std::int64_t>(out.get(r, t));
      if (entry >= 0) result.push_back(entry);
    }
    return result;
  }
  // Unused places come last and hold -1, values there -inf, counts say how many are used.
  void expect_prefix(std::int64_t r, std::int64_t used) {
    for (std::int64_t t = 0; t < extra.k; ++t) {
      EXPECT_EQ(out.get(r, t) >= 0, t < used) << "row " << r << " place " << t;
      if (t < used) continue;
      EXPECT_EQ(out.get(r, t), -1) << "row " << r << " place " << t;
      EXPECT_TRUE(!has_values || values.get(r, t) == -std::numeric_limits<double>::infinity());
      EXPECT_TRUE(!has_raw || raw.get(r, t) == -1);
    }
    EXPECT_TRUE(!has_counts || counts.get(r) == static_cast<double>(used)) << "row " << r;
  }
};

struct TopkShape {
  std::int64_t rows = 1, width = 1, k = 1;
  DType dtype = DType::f32;
  std::int64_t padding = 0;     // scores between rows
  std::int64_t shift = 0;       // elements by which every tensor is off its alignment
  std::int64_t out_stride = 1;  // of the outputs' places
};

// Full rows, nothing optional; scores as given, row-major.
inline TopkCall make_topk(const TopkShape& s, const std::vector<float>& scores) {
  TopkCall c;
  c.scores = TensorBox(s.dtype, {s.rows, s.width}, s.padding, 1, s.shift);
  c.scores.fill([&](auto i, auto j) { return scores[static_cast<std::size_t>(i * s.width + j)]; });
  // double loses the sign and payload of NaN and set() may quieten it: store the bits as they are.
  for (std::int64_t i = 0; i < s.rows && s.dtype == DType::f32; ++i)
    for (std::int64_t j = 0; j < s.width; ++j)
      c.scores.at<float>(i, j) = scores[static_cast<std::size_t>(i * s.width + j)];
  c.end = TensorBox::of<std::int64_t>(DType::i32,
                                      std::vector<std::int64_t>(static_cast<std::size_t>(s.rows), s.width));
  c.extra.k = s.k;
  c.out = TensorBox(DType::i32, {s.rows, s.k}, 1, s.out_stride, s.shift);
  c.values = TensorBox(DType::f32, {s.rows, s.k}, 2, s.out_stride, s.shift);
  c.counts = TensorBox(DType::i32, {s.rows}, 0, s.out_stride, s.shift);
  c.raw = TensorBox(DType::i32, {s.rows, s.k}, 3, s.out_stride, s.shift);
  return c;
}

inline TopkCall make_topk(const TopkShape& s, Family family, std::uint64_t seed = 1) {
  return make_topk(s, make_scores(family, s.rows * s.width, seed));
}

// Scores that no row may look at: NaN and huge values, by turns, outside [begin, end) of row r.
inline void poison_outside(TopkCall& c, std::int64_t r, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = c.extra.k >= 0 ? c.scores.tensor().shape[1] : 0;
  for (std::int64_t j = 0; j < width; ++j)
    if (j < begin || j >= end) c.scores.set(j % 2 == 0 ? std::nan("") : 1e30, r, j);
}

}  // namespace keysieve::test

// What topk's arguments must satisfy; docs/contracts/topk.md explains each rule. TOP-25 to TOP-31 and TOP-34
// are kept by the kernels. Owed by the caller: TOP-32 columns and offsets that fit the output, TOP-33 outputs
// that share no memory with anything else.
#pragma once

#include "contract/bounds.hpp"
#include "contract/page_map.hpp"
#include "keysieve/topk.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const TopkArgs& a, F&& f) {
  f("scores", a.scores, Access::read);
  visit_bounds(a.bounds, f);
  f("candidates", a.candidates, Access::read);
  f("offset", a.offset, Access::read);
  visit_page_map(a.pages, f);
  f("out", a.out, Access::write);
  f("values", a.values, Access::write);
  f("counts", a.counts, Access::write);
  f("raw", a.raw, Access::write);
}

constexpr Status judge(const TopkArgs& a) {
  Dim rows, width, candidates;
  Check check("topk");
  check.that(a.k >= 0, "k", "TOP-01 k >= 0", a.k)
      .shape("scores", a.scores, {&rows, &width}, "TOP-02 scores is [rows, width]")
      .dtype("scores", a.scores, {DType::f32, DType::bf16}, "TOP-03 scores is f32 or bf16")
      .contiguous("scores", a.scores, 1, "TOP-04 columns of scores are contiguous")
      .that(width.value < (std::int64_t{1} << 31), "scores", "TOP-05 width fits a 31-bit column", width.value)
      .shape("out", a.out, {&rows, a.k}, "TOP-06 out is [rows, k]")
      .optional_shape("values", a.values, {&rows, a.k}, "TOP-07 values is [rows, k]")
      .dtype("values", a.values, {DType::f32}, "TOP-08 values is f32")
      .optional_shape("counts", a.counts, {&rows}, "TOP-09 counts is [rows]")
      .dtype("counts", a.counts, {DType::i32}, "TOP-10 counts is i32")
      .positive("block_size", a.block_size, "TOP-11 block_size is 1 to 2^31 - 1")
      .optional_shape("candidates", a.candidates, {&rows, &candidates},
                      "TOP-12 candidates is [rows, candidates]")
      .dtype("candidates", a.candidates, {DType::i32}, "TOP-13 candidates is i32")
      .that(a.layout == ScoreLayout::dense || a.candidates.given(), "candidates",
            "TOP-14 compact scores come with their candidates", "nothing");
  if (check.holds() && a.layout == ScoreLayout::compact)
    check.that(width.value / a.block_size == candidates.value && width.value % a.block_size == 0, "scores",
               "TOP-15 compact scores are [rows, candidates * block_size]", width.value);
  if (!check.holds()) return check.status();
  judge_bounds(check, a.bounds, rows);
  if (a.space == TopkSpace::paged) {
    check.dtype("out", a.out, {DType::i32, DType::i64}, "TOP-16 slots are i32 or i64")
        .optional_shape("raw", a.raw, {&rows, a.k}, "TOP-17 raw is [rows, k]")
        .dtype("raw", a.raw, {DType::i32}, "TOP-18 raw is i32");
    judge_page_map(check, a.pages, rows);
    return check.status();
  }
  check.dtype("out", a.out, {DType::i32}, "TOP-19 out is i32")
      .that(!a.raw.given(), "raw", "TOP-20 raw goes with the paged space", "a tensor")
      .that(!a.pages.page_table.given(), "page_table", "TOP-21 a page table goes with the paged space",
            "a tensor");
  if (a.space == TopkSpace::offset)
    return check.shape("offset", a.offset, {&rows}, "TOP-22 offset is [rows]")
        .dtype("offset", a.offset, {DType::i32, DType::i64}, "TOP-23 offset is i32 or i64")
        .status();
  return check.that(!a.offset.given(), "offset", "TOP-24 offset goes with the offset space", "a tensor")
      .status();
}

}  // namespace keysieve

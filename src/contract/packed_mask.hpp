// What packed_mask's and mask_indices' arguments must satisfy; docs/contracts/packed_mask.md explains each
// rule.
#pragma once

#include "contract/bounds.hpp"
#include "keysieve/packed_mask.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const PackedMaskArgs& a, F&& f) {
  f("q_start", a.q_start, Access::read);
  f("key_first", a.key_first, Access::read);
  f("key_count", a.key_count, Access::read);
  f("indices", a.indices, Access::read);
  f("candidates", a.candidates, Access::read);
  f("scores", a.scores, Access::read);
  f("thresholds", a.thresholds, Access::read);
  visit_bounds(a.bounds, f);
  f("mask", a.mask, Access::write);
  f("any", a.any, Access::write);
  f("all", a.all, Access::write);
}

template <class F>
constexpr void visit_tensors(const MaskIndicesArgs& a, F&& f) {
  f("q_start", a.q_start, Access::read);
  f("key_first", a.key_first, Access::read);
  f("key_count", a.key_count, Access::read);
  f("mask", a.mask, Access::read);
  f("out", a.out, Access::write);
  f("counts", a.counts, Access::write);
}

template <class Args>
constexpr Check& judge_mask_requests(Check& check, const Args& a, Dim& requests, Dim& rows, Dim& words) {
  return check.shape("mask", a.mask, {&requests, &rows, &words}, "PKM-01 mask is [requests, rows, words]")
      .dtype("mask", a.mask, {DType::u32, DType::i32}, "PKM-02 mask is u32 or i32")
      .contiguous("mask", a.mask, 2, "PKM-03 words of a row are contiguous")
      .shape("q_start", a.q_start, {requests.value + 1}, "PKM-04 q_start is [requests + 1]")
      .dtype("q_start", a.q_start, {DType::i32, DType::i64}, "PKM-05 q_start is i32 or i64")
      .shape("key_count", a.key_count, {&requests}, "PKM-06 key_count is [requests]")
      .dtype("key_count", a.key_count, {DType::i32, DType::i64}, "PKM-07 key_count is i32 or i64")
      .optional_shape("key_first", a.key_first, {&requests}, "PKM-08 key_first is [requests]")
      .dtype("key_first", a.key_first, {DType::i32, DType::i64}, "PKM-09 key_first is i32 or i64")
      .that(words.value % 4 == 0, "mask", "PKM-30 words is a multiple of 4, so that rows start on 16 bytes",
            words.value)
      .that((requests.value <= 1 || a.mask.stride[0] % 4 == 0) &&
                (rows.value <= 1 || a.mask.stride[1] % 4 == 0),
            "mask", "PKM-31 requests and rows of the mask lie whole 16 bytes apart", a.mask.stride[1])
      .that(words.value < std::int64_t{1} << 26, "mask", "PKM-32 a row has fewer than 2^31 keys",
            words.value);
}

constexpr Status judge(const PackedMaskArgs& a) {
  Dim requests, rows, words, tokens;
  Check check("packed_mask");
  judge_mask_requests(check, a, requests, rows, words);
  const int sources = int{a.indices.given()} + int{a.candidates.given()} + int{a.scores.given()};
  check.that(sources == 1, "indices", "PKM-10 one of indices, candidates and scores is given", sources)
      .optional_shape("indices", a.indices, {&tokens, kAnyExtent}, "PKM-11 indices is [tokens, k]")
      .dtype("indices", a.indices, {DType::i32}, "PKM-12 indices is i32")
      .optional_shape("candidates", a.candidates, {&tokens, kAnyExtent},
                      "PKM-13 candidates is [tokens, candidates]")
      .dtype("candidates", a.candidates, {DType::i32}, "PKM-14 candidates is i32")
      .positive("block_size", a.block_size, "PKM-15 block_size is 1 to 2^31 - 1")
      .optional_shape("scores", a.scores, {&tokens, kAnyExtent}, "PKM-16 scores is [tokens, width]")
      .dtype("scores", a.scores, {DType::f32, DType::bf16}, "PKM-17 scores is f32 or bf16")
      .that(a.thresholds.given() == a.scores.given(), "thresholds", "PKM-18 thresholds go with scores",
            a.thresholds.given() ? "a tensor" : "nothing")
      .optional_shape("thresholds", a.thresholds, {&tokens}, "PKM-19 thresholds is [tokens]")
      .dtype("thresholds", a.thresholds, {DType::f32}, "PKM-20 thresholds is f32")
      .optional_shape("any", a.any, {&requests, (rows.value + 127) / 128, (words.value + 127) / 128},
                      "PKM-21 any is [requests, ceil(rows / 128), ceil(words / 128)]")
      .dtype("any", a.any, {DType::u32, DType::i32}, "PKM-22 any is u32 or i32")
      .optional_shape("all", a.all, {&requests, (rows.value + 127) / 128, (words.value + 127) / 128},
                      "PKM-23 all is [requests, ceil(rows / 128), ceil(words / 128)]")
      .dtype("all", a.all, {DType::u32, DType::i32}, "PKM-24 all is u32 or i32");
  if (check.holds() && a.bounds.end.given()) {
    check.that(!a.indices.given(), "end", "PKM-25 bounds go with candidates or scores", "a tensor");
    judge_bounds(check, a.bounds, tokens);
  }
  return check.status();
}

constexpr Status judge(const MaskIndicesArgs& a) {
  Dim requests, rows, words, tokens;
  Check check("mask_indices");
  return judge_mask_requests(check, a, requests, rows, words)
      .shape("out", a.out, {&tokens, kAnyExtent}, "PKM-26 out is [tokens, k]")
      .dtype("out", a.out, {DType::i32}, "PKM-27 out is i32")
      .optional_shape("counts", a.counts, {&tokens}, "PKM-28 counts is [tokens]")
      .dtype("counts", a.counts, {DType::i32}, "PKM-29 counts is i32")
      .status();
}

}  // namespace keysieve

// What candidate_blocks' arguments must satisfy; docs/contracts/candidate_blocks.md explains each rule.
#pragma once

#include "contract/bounds.hpp"
#include "keysieve/candidate_blocks.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const CandidateBlocksArgs& a, F&& f) {
  f("scores", a.scores, Access::read);
  visit_bounds(a.bounds, f);
  f("candidates", a.candidates, Access::write);
}

constexpr Status judge(const CandidateBlocksArgs& a) {
  Dim rows, width;
  Check check("candidate_blocks");
  check.shape("scores", a.scores, {&rows, &width}, "BLK-01 scores is [rows, width]")
      .dtype("scores", a.scores, {DType::f32, DType::bf16}, "BLK-02 scores is f32 or bf16")
      .shape("candidates", a.candidates, {&rows, kAnyExtent}, "BLK-03 candidates is [rows, candidates]")
      .dtype("candidates", a.candidates, {DType::i32}, "BLK-04 candidates is i32")
      .positive("block_size", a.block_size, "BLK-05 block_size is 1 to 2^31 - 1");
  if (check.holds())
    check.that(width.value == 0 || (width.value - 1) / a.block_size < (std::int64_t{1} << 31) - 1, "scores",
               "BLK-06 a row has fewer than 2^31 blocks", width.value);
  if (!check.holds()) return check.status();
  return judge_bounds(check, a.bounds, rows).status();
}

}  // namespace keysieve

// What candidate_mask's arguments must satisfy; docs/contracts/candidate_mask.md explains each rule.
#pragma once

#include "contract/bounds.hpp"
#include "keysieve/candidate_mask.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const CandidateMaskArgs& a, F&& f) {
  f("scores", a.scores, Access::update);
  visit_bounds(a.bounds, f);
  f("candidates", a.candidates, Access::read);
}

constexpr Status judge(const CandidateMaskArgs& a) {
  Dim rows, width;
  Check check("candidate_mask");
  check.shape("scores", a.scores, {&rows, &width}, "MSK-01 scores is [rows, width]")
      .dtype("scores", a.scores, {DType::f32, DType::bf16}, "MSK-02 scores is f32 or bf16")
      .shape("candidates", a.candidates, {&rows, kAnyExtent}, "MSK-03 candidates is [rows, candidates]")
      .dtype("candidates", a.candidates, {DType::i32}, "MSK-04 candidates is i32")
      .that(a.block_size >= 1, "block_size", "MSK-05 block_size >= 1", a.block_size);
  if (!check.holds()) return check.status();
  return judge_bounds(check, a.bounds, rows).status();
}

}  // namespace keysieve

// What merge_states' arguments must satisfy; docs/contracts/merge_states.md explains each rule.
#pragma once

#include "contract/check.hpp"
#include "keysieve/merge_states.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const MergeStatesArgs& a, F&& f) {
  f("outs", a.outs, Access::read);
  f("lses", a.lses, Access::read);
  f("sink", a.sink, Access::read);
  f("out", a.out, Access::write);
  f("lse", a.lse, Access::write);
}

constexpr Status judge(const MergeStatesArgs& a) {
  Dim parts, rows, heads, dv;
  Check check("merge_states");
  return check.shape("outs", a.outs, {&parts, &rows, &heads, &dv}, "MRG-01 outs is [n, rows, H, dv]")
      .shape("lses", a.lses, {&parts, &rows, &heads}, "MRG-02 lses is [n, rows, H]")
      .shape("out", a.out, {&rows, &heads, &dv}, "MRG-03 out is [rows, H, dv]")
      .optional_shape("lse", a.lse, {&rows, &heads}, "MRG-04 lse is [rows, H]")
      .optional_shape("sink", a.sink, {&heads}, "MRG-05 sink is [H]")
      .status();
}

}  // namespace keysieve

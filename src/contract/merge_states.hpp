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
      .dtype("outs", a.outs, {DType::f32, DType::bf16}, "MRG-06 outs and out are f32 or bf16")
      .dtype("out", a.out, {DType::f32, DType::bf16}, "MRG-06 outs and out are f32 or bf16")
      .dtype("lses", a.lses, {DType::f32}, "MRG-07 lses, lse and sink are f32")
      .dtype("lse", a.lse, {DType::f32}, "MRG-07 lses, lse and sink are f32")
      .dtype("sink", a.sink, {DType::f32}, "MRG-07 lses, lse and sink are f32")
      .contiguous("outs", a.outs, 3, "MRG-08 the last axis of outs and out is contiguous")
      .contiguous("out", a.out, 2, "MRG-08 the last axis of outs and out is contiguous")
      .that(!a.lses_form.with_sink, "lses_form", "MRG-09 parts carry no sink: it is applied after the merge",
            "with_sink")
      .that(!a.lse_form.with_sink || a.sink.given(), "lse_form", "MRG-10 an lse with sink needs the sink",
            "no sink")
      .status();
}

}  // namespace keysieve

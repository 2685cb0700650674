// What prepare_queries' arguments must satisfy; docs/contracts/prepare_queries.md explains each rule.
#pragma once

#include "contract/check.hpp"
#include "keysieve/prepare_queries.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const PrepareQueriesArgs& a, F&& f) {
  f("q", a.q, Access::read);
  f("weights", a.weights, Access::read);
  f("cos_sin", a.cos_sin, Access::read);
  f("positions", a.positions, Access::read);
  f("codes", a.codes, Access::write);
  f("scales", a.scales, Access::write);
  f("folded", a.folded, Access::write);
}

constexpr Status judge(const PrepareQueriesArgs& a) {
  const bool fp8 = a.format == KeyFormat::fp8;
  Dim rows, heads, dim;
  Check check("prepare_queries");
  check.shape("q", a.q, {&rows, &heads, &dim}, "PRQ-01 q is [rows, heads, dim]")
      .dtype("q", a.q, {DType::f32, DType::bf16}, "PRQ-02 q and weights are f32 or bf16")
      .that(heads.value >= 1 && heads.value <= 128, "q", "PRQ-03 heads are 1 to 128", heads.value)
      .that(dim.value == 32 || dim.value == 64 || dim.value == 128, "q", "PRQ-04 dim is 32, 64 or 128",
            dim.value)
      .contiguous("q", a.q, 2, "PRQ-05 the last axis of q, cos_sin, codes and scales is contiguous")
      .shape("weights", a.weights, {&rows, &heads}, "PRQ-06 weights and folded are [rows, heads]")
      .dtype("weights", a.weights, {DType::f32, DType::bf16}, "PRQ-02 q and weights are f32 or bf16")
      .optional_shape("cos_sin", a.cos_sin, {kAnyExtent, 64}, "PRQ-07 cos_sin is [positions, 64]")
      .dtype("cos_sin", a.cos_sin, {DType::f32}, "PRQ-08 cos_sin and folded are f32")
      .contiguous("cos_sin", a.cos_sin, 1,
                  "PRQ-05 the last axis of q, cos_sin, codes and scales is contiguous")
      .that(!a.cos_sin.given() || dim.value >= 64, "q", "PRQ-09 a rotation needs 64 elements", dim.value)
      .that(a.cos_sin.given() == a.positions.given(), "positions",
            "PRQ-10 cos_sin and positions come together",
            a.positions.given() ? "positions alone" : "cos_sin alone")
      .optional_shape("positions", a.positions, {&rows}, "PRQ-11 positions is [rows]")
      .dtype("positions", a.positions, {DType::i32, DType::i64}, "PRQ-12 positions is i32 or i64")
      .that(!a.hadamard || dim.value == 128, "hadamard", "PRQ-13 the Hadamard transform is for dim 128",
            dim.value);
  if (!check.holds()) return check.status();
  check
      .shape("codes", a.codes, {&rows, &heads, fp8 ? dim.value : dim.value / 2},
             "PRQ-14 codes is [rows, heads, dim], or [rows, heads, dim / 2] for mxfp4")
      .dtype("codes", a.codes, {DType::u8}, "PRQ-15 codes and scales are u8")
      .contiguous("codes", a.codes, 2, "PRQ-05 the last axis of q, cos_sin, codes and scales is contiguous")
      .that(a.scales.given() != fp8, "scales", "PRQ-16 scales come with mxfp4 and not with fp8",
            fp8 ? "a tensor" : "nothing")
      .optional_shape("scales", a.scales, {&rows, &heads, dim.value / 32},
                      "PRQ-17 scales is [rows, heads, dim / 32]")
      .dtype("scales", a.scales, {DType::u8}, "PRQ-15 codes and scales are u8");
  if (a.scales.given())
    check.contiguous("scales", a.scales, 2,
                     "PRQ-05 the last axis of q, cos_sin, codes and scales is contiguous");
  return check.shape("folded", a.folded, {&rows, &heads}, "PRQ-06 weights and folded are [rows, heads]")
      .dtype("folded", a.folded, {DType::f32}, "PRQ-08 cos_sin and folded are f32")
      .that(fp8 || (a.scale == KeyScale::exact && !a.reciprocal && !a.tiny_floor), "format",
            "PRQ-18 ue8m0, reciprocal and tiny_floor are for fp8", "mxfp4")
      .that(!fp8 || !a.ties_down, "ties_down", "PRQ-19 ties_down is for mxfp4", "fp8")
      .that(a.softmax_scale == a.softmax_scale, "softmax_scale", "PRQ-21 both scales are numbers", "NaN")
      .that(a.head_scale == a.head_scale, "head_scale", "PRQ-21 both scales are numbers", "NaN")
      .status();
}

}  // namespace keysieve

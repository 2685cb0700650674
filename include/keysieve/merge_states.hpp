// merge_states: n partial attention results over disjoint keys into the one over all of them.
//
//   outs  bf16|f32 [n, rows, H, dv]
//   lses  f32 [n, rows, H]          -inf: no keys; such a part weighs exactly 0 and its outs are not looked at
//   sink  optional f32 [H]          scales the output by 1 / (1 + exp(sink - lse)), once, after the merge
//   out   bf16|f32 [rows, H, dv]
//   lse   optional f32 [rows, H]    of all parts together, without the sink; all empty: output 0 and -inf
//   Strides: the last axis of outs and out is contiguous, all others are free.
//
// lses are natural unless lses_form says that they come from an engine with another base or mark for empty rows.
#pragma once

#include "keysieve/lse.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

struct MergeStatesArgs {
  Tensor outs;
  Tensor lses;
  LseForm lses_form;
  Tensor sink;
  Tensor out;
  Tensor lse;
  LseForm lse_form;
};

using MergeStatesPlan = Plan<MergeStatesArgs>;

}  // namespace keysieve

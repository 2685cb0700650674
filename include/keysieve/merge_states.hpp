// merge_states: n partial attention results over disjoint keys into the one over all of them.
//
//   outs  bf16|f32 [n, rows, H, dv]
//   lses  f32 [n, rows, H]            natural; -inf: no keys, its outs are not looked at
//   sink  optional f32 [H]            applied once, after the merge
//   out   bf16|f32 [rows, H, dv]
//   lse   optional f32 [rows, H]
#pragma once

#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

struct MergeStatesArgs {
  Tensor outs;
  Tensor lses;
  Tensor sink;
  Tensor out;
  Tensor lse;
};

using MergeStatesPlan = Plan<MergeStatesArgs>;

}  // namespace keysieve

// masked_mha: prefill attention over the keys that a packed mask keeps.
//
//   q, k, v     bf16 [tokens, H, dqk], [keys, H, dqk], [keys, H, dv]; (dqk, dv) is (192, 128), (128, 128) or (256, 256)
//   q_start     i32|i64 [requests + 1]  request b owns queries [q_start[b], q_start[b + 1])
//   k_start     i32|i64 [requests + 1]  and keys [k_start[b], k_start[b + 1])
//   mask        optional u32|i32 [requests or 1, rows, words]  see packed_mask.hpp; without it every key is kept
//   q_offset    optional i32|i64 [requests]  query i of this call is query q_offset[b] + i of the request: that row of
//               the mask, that place for `causal`. Default 0; causal does not run without it
//   key_offset  optional i32|i64 [requests]  key j of this call is key key_offset[b] + j of the request: that bit of
//               the mask. Any value, not only multiples of 32. Default 0
//   q_total     optional i32|i64 [requests]  queries of the whole request. Default q_offset + this call's
//   k_total     optional i32|i64 [requests]  keys of the whole request. Default key_offset + this call's
//   causal      also asks for key <= query + k_total - q_total, all counted in the request
//   sink        optional f32 [H]  scales the output by 1 / (1 + exp(sink - lse)); lse is left alone
//   out         bf16|f32 [tokens, H, dv]
//   lse         optional f32 [tokens, H]  of the scaled scores; a row without keys gives output 0 and -inf
//   Strides: the last axis of q, k, v, out and mask is contiguous, all others are free, 0 for the mask included.
//
// Result.  Every row of out and lse is written, also of tokens that no request owns (0 and -inf). A mask of ones gives
//          the bytes of the call without a mask. Keys that a row does not keep cannot change it, NaN included.
// Cost.    Follows the kept keys: per 64 queries, the keys that at least one of them keeps.
#pragma once

#include <limits>

#include "keysieve/lse.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

struct MaskedMhaArgs {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor q_start;
  Tensor k_start;
  Tensor mask;
  Tensor key_offset;
  Tensor q_offset;
  Tensor q_total;
  Tensor k_total;
  bool causal = false;
  float softmax_scale = std::numeric_limits<float>::quiet_NaN();  // required
  Tensor sink;
  Tensor out;
  Tensor lse;
  LseForm lse_form;
};

using MaskedMhaPlan = Plan<MaskedMhaArgs>;

}  // namespace keysieve

// masked_mha: prefill attention over the keys that a packed mask keeps.
//
//   q, k, v     bf16 [tokens, H, dqk], [keys, H, dqk], [keys, H, dv]   outer strides free; (dqk, dv) is (192,
//   128),
//               (128, 128) or (256, 256)
//   q_start     i32 [requests + 1]   request b owns queries [q_start[b], q_start[b + 1])
//   k_start     i32 [requests + 1]   and keys [k_start[b], k_start[b + 1])
//   mask        optional u32|i32 [requests, rows, words]   see packed_mask.hpp; without it every key is kept
//   key_offset  optional i32|i64 [requests]   key j of request b is bit key_offset[b] + j
//   q_offset    optional i32|i64 [requests]   query i of request b is row q_offset[b] + i of the mask and of
//   `causal` out         bf16|f32 [tokens, H, dv] lse         optional f32 [tokens, H]      natural; a row
//   without keys gives 0 and -inf
#pragma once

#include <limits>

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
  bool causal = false;
  float softmax_scale = std::numeric_limits<float>::quiet_NaN();  // required
  Tensor out;
  Tensor lse;
};

using MaskedMhaPlan = Plan<MaskedMhaArgs>;

}  // namespace keysieve

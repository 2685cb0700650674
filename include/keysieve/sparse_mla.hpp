// sparse_mla: multi-head latent attention over selected cache slots.
//
//   q        bf16 [rows, H, d]               absorbed queries; d is 576 (512 latent + 64 rope) or 512
//   cache    bf16 [pages, page_tokens, d]    slot s is token s % page_tokens of page s / page_tokens; V = the
//   first 512 indices  i32|i64 [rows, k]               slots; outside the pool: ignored; listed twice: counts
//   twice lengths  optional i32 [rows]             only the first lengths[r] indices count extra_*  optional
//   second pool with its own cache, indices and lengths sink     optional f32 [H]                scales the
//   output by 1 / (1 + exp(sink - lse)); lse is left alone out      bf16|f32 [rows, H, 512] lse      optional
//   f32 [rows, H]          natural; a row without keys gives 0 and -inf
#pragma once

#include <limits>

#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

struct SparseMlaArgs {
  Tensor q;
  Tensor cache;
  Tensor indices;
  Tensor lengths;
  Tensor extra_cache;
  Tensor extra_indices;
  Tensor extra_lengths;
  float softmax_scale = std::numeric_limits<float>::quiet_NaN();  // required
  Tensor sink;
  Tensor out;
  Tensor lse;
};

using SparseMlaPlan = Plan<SparseMlaArgs>;

}  // namespace keysieve

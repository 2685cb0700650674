// sparse_mla: multi-head latent attention over selected cache slots, for decode and prefill rows alike.
//
//   q        bf16 [rows, H, d]             absorbed queries; d is 576 (512 latent + 64 rope) or 512; H is 1 to 128
//   cache    bf16 [pages, page_tokens, d]  slot s is token s % page_tokens of page s / page_tokens; V = the first 512
//   indices  i32|i64 [rows, k]             slots; outside [0, pages * page_tokens): ignored; twice: counts twice
//   lengths  optional i32|i64 [rows]       only the first lengths[r] indices count; clamped to [0, k]
//   extra_*  optional second pool with its own cache, indices and lengths; its keys come after the first pool's
//   sink     optional f32 [H]              scales the output by 1 / (1 + exp(sink - lse)); lse is left alone
//   out      bf16|f32 [rows, H, 512]
//   lse      optional f32 [rows, H]        of the scaled scores; a row without keys gives output 0 and -inf
//   Strides: the last axis of q, cache and out is contiguous, all others are free.
//
// Result.  softmax(softmax_scale * q . keys) V. No causal rule: what is listed is attended. fp32 sums whose order
//          depends on the row's own list alone, so batch, head count and threads do not change a row's bytes.
//          Products and sums past the range of fp32 overflow.
// Cost.    Follows the listed slots that count and H; scratch does not grow with the rows.
#pragma once

#include <limits>

#include "keysieve/lse.hpp"
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
  LseForm lse_form;
};

using SparseMlaPlan = Plan<SparseMlaArgs>;

}  // namespace keysieve

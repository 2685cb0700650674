// prepare_queries: index queries as mqa_logits takes them: rotated, mixed, quantised, their scales folded into the
// head weights.
//
//   q          f32|bf16 [rows, heads, dim]   1 to 128 heads of 32, 64 or 128, last axis contiguous
//   weights    f32|bf16 [rows, heads]        any strides
//   cos_sin    f32 [positions, 64]           optional: the cosines of 32 angles, then their sines; last axis contiguous
//   positions  i32|i64 [rows]                with cos_sin; a row whose position is not in the table is not rotated
//   codes      u8 [rows, heads, dim]         fp8: e4m3fn; mxfp4: [rows, heads, dim / 2], as index_store packs them
//   scales     u8 [rows, heads, dim / 32]    mxfp4 only: UE8M0
//   folded     f32 [rows, heads]             the weights that go with the codes
//
// Steps.   1. Rotation of 64 elements, the first or the last of a head, in f32: pairs (i, i + 32) if `pairing` is
//             halves, (2 i, 2 i + 1) if it is adjacent; (a, b) becomes (a cos - b sin, b cos + a sin). Round to bf16.
//          2. `hadamard`, dim 128 only: the Walsh-Hadamard transform, butterflies of distance 1, 2, 4 to 64 in f32,
//             times the float nearest to 128^-0.5. Round to bf16.
//          3. Codes and scale s of a head as index_store's; `tiny_floor`: with a greatest magnitude of at least 1e-10
//             instead of 1e-4 (fp8).
//          4. folded = ((weight * s) * softmax_scale) * head_scale, in f32, left to right; without s for mxfp4, whose
//             scales stay inside the dot product.
// Cost.    Each query is read once. run() only enqueues.
//
// Definition: DeepSeek-V3.2's indexer.
#pragma once

#include "keysieve/key_format.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

enum class RopePairing : std::uint8_t { halves, adjacent };
enum class RopePlace : std::uint8_t { first, last };

struct PrepareQueriesArgs {
  Tensor q;
  Tensor weights;
  Tensor cos_sin;
  Tensor positions;
  RopePairing pairing = RopePairing::halves;
  RopePlace place = RopePlace::first;
  bool hadamard = false;
  KeyFormat format = KeyFormat::fp8;
  KeyScale scale = KeyScale::exact;
  bool reciprocal = false;
  bool ties_down = false;
  bool tiny_floor = false;
  float softmax_scale = 1;
  float head_scale = 1;
  Tensor codes;
  Tensor scales;
  Tensor folded;
};

using PrepareQueriesPlan = Plan<PrepareQueriesArgs>;

}  // namespace keysieve

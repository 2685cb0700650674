// index_store: quantises index keys and writes them into the pages of a cache, each token into its slot.
//
//   keys     f32|bf16 [tokens, dim]  32, 64 or 128 elements, last axis contiguous
//   slots    i32|i64 [tokens]        page * page_tokens + place in the page; negative or past the cache: skipped
//   cache    u8 [pages, bytes]       last axis contiguous; a page may have more bytes than its tokens need
//
// A page of P tokens, byte by byte:
//   fp8      P * dim e4m3fn codes, token t's from t * dim on; then P f32 scales
//   mxfp4    P * dim / 2 bytes, the even element in the low four bits; then P * dim / 32 UE8M0 scales, token t's from
//            P * dim / 2 + t * dim / 32 on, one for each 32 elements
//
// Scales.  fp8: s = max(greatest magnitude, 1e-4) / 448, or the least power of two that is not less (ue8m0); codes
//          are e4m3(x / s), ties to even, saturating. mxfp4: the least power of two that is not less than the
//          group's greatest magnitude / 6, at least 2^-126; codes 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign, ties to
//          the even code. NaN takes no part in the greatest magnitude, infinities count as the greatest float.
//          NaN becomes NaN: a code of fp8; in mxfp4, which has none, the scale of its group.
// Peers.   `reciprocal`: x * (1 / s), as engines that multiply. `ties_down`: mxfp4 midpoints to the smaller
//          magnitude and a greatest magnitude of 1e-4 at least.
// Result.  Only bytes of the named slots change. Of tokens that name one slot the last stays.
// Cost.    Each token's key is read once. run() only enqueues.
//
// Definition: DeepSeek-V3.2's indexer cache (fp8) and the OCP microscaling format (mxfp4).
#pragma once

#include "keysieve/key_format.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

struct IndexStoreArgs {
  Tensor keys;
  Tensor slots;
  Tensor cache;
  std::int64_t page_tokens = 64;
  KeyFormat format = KeyFormat::fp8;
  KeyScale scale = KeyScale::exact;
  bool reciprocal = false;
  bool ties_down = false;
};

using IndexStorePlan = Plan<IndexStoreArgs>;

}  // namespace keysieve

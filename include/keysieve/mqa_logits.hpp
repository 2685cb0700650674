// mqa_logits: the lightning indexer's scores, score[r, c] = sum over h of w[r, h] * max(0, q[r, h] . k[c]).
//
//   q           bf16|u8 [rows, heads, dim]      1 to 128 heads of 32, 64 or 128. u8: e4m3fn codes, with u8
//                                               keys; their scale is folded into weights
//   weights     f32|bf16 [rows, heads]
//   keys        bf16|u8 [keys, dim]             ragged: column c of scores is key c
//   key_scales  f32 [keys]                      ragged with u8 keys: multiplies the whole sum, last
//   cache       bf16 [pages, page_tokens, dim]  paged: column c is compressed position c of the row's request
//               u8 [pages, bytes]               page_tokens * dim e4m3fn codes, then page_tokens f32 scales
//   page_table  i32 [requests, columns]         paged: rows are request-major, rows / requests of each
//   bounds      see bounds.hpp
//   scores      f32|bf16 [rows, width]          bf16: the f32 score, rounded
//
// The last axis of q, keys, cache and scores is contiguous; all other strides are free.
//
// Result.  A page id outside the cache makes its keys invisible: -inf. NaN keys give NaN. A score depends on
//          its own query, weights, key and scale alone, to the last bit.
// Cost.    Each key inside a row's bounds is read once for up to eight rows of its request.
//
// Definition: DeepSeek-V3.2's indexer.
#pragma once

#include "keysieve/bounds.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

// untouched: only [start, end) is written. neg_inf: the rest of the row becomes -inf.
enum class Tail : std::uint8_t { untouched, neg_inf };

struct MqaLogitsArgs {
  Tensor q;
  Tensor weights;
  Tensor keys;
  Tensor key_scales;
  Tensor cache;
  std::int64_t page_tokens = 64;
  Tensor page_table;
  Bounds bounds;
  Tail tail = Tail::untouched;
  Tensor scores;
};

using MqaLogitsPlan = Plan<MqaLogitsArgs>;

}  // namespace keysieve

// index_gather: index keys of several requests from the pages of a cache, one after the other.
//
//   cache          u8 [pages, bytes]           as index_store writes it; last axis contiguous
//   page_table     i32 [requests, columns]     column c of a request holds its positions from c * page_tokens on
//                  i32 [entries]               with table_offsets: the requests' columns one after the other
//   table_offsets  i32|i64 [requests + 1]      request b has entries [table_offsets[b], table_offsets[b + 1])
//   row_offsets    i32|i64 [requests + 1]      request b gets rows [row_offsets[b], row_offsets[b + 1])
//   start          i32|i64 [requests]          optional: the position of a request's first row; 0
//   keys           u8 [rows, dim]              fp8; mxfp4: u8 [rows, dim / 2]; last axis contiguous
//   scales         f32 [rows]                  fp8; mxfp4: u8 [rows, dim / 32], last axis contiguous
//
// Result.  Rows of no request stay as they are. A row whose page does not exist, because its column lies outside
//          the table or its page id outside the cache, becomes zeros. Of requests that claim one row the last has it.
// Cost.    Each row is read and written once. run() only enqueues.
//
// Definition: what engines do before ragged scoring; mqa_logits takes the result as keys and key_scales.
#pragma once

#include "keysieve/key_format.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

struct IndexGatherArgs {
  Tensor cache;
  std::int64_t page_tokens = 64;
  KeyFormat format = KeyFormat::fp8;
  Tensor page_table;
  Tensor table_offsets;
  Tensor row_offsets;
  Tensor start;
  Tensor keys;
  Tensor scales;
};

using IndexGatherPlan = Plan<IndexGatherArgs>;

}  // namespace keysieve

// stage_args: each stage's arguments from a step, for running (with memory) and for explaining (without).
#pragma once

#include "io/step_file.hpp"
#include "keysieve/candidate_blocks.hpp"
#include "keysieve/mqa_logits.hpp"
#include "keysieve/packed_mask.hpp"
#include "keysieve/sparse_mla.hpp"
#include "keysieve/topk.hpp"
#include "keysieve/translate.hpp"

namespace keysieve::cli {

// Rows [first, first + count) of a step.
struct RowChunk {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The rows from `first` on whose scores fit into `score_bytes`; paged keys are cut between requests or inside
// one.
[[nodiscard]] RowChunk next_chunk(const io::Step& step, std::int64_t first, std::int64_t score_bytes);

[[nodiscard]] Tensor tensor_rows(const Tensor& tensor, RowChunk rows);  // a part of axis 0; none stays none
[[nodiscard]] Bounds step_bounds(const io::Step& step, RowChunk rows);

[[nodiscard]] MqaLogitsArgs logits_args(const io::Step& step, RowChunk rows, const Tensor& scores);
[[nodiscard]] CandidateBlocksArgs blocks_args(const io::Step& step, RowChunk rows, const Tensor& scores,
                                              const Tensor& candidates);
[[nodiscard]] TopkArgs topk_args(const io::Step& step, RowChunk rows, const Tensor& scores, const Tensor& out,
                                 const Tensor& counts);
[[nodiscard]] TranslateArgs translate_args(const io::Step& step, const Tensor& indices, const Tensor& slots,
                                           const Tensor& row_request);
[[nodiscard]] SparseMlaArgs attention_args(const io::Step& step, RowChunk rows, const Tensor& slots,
                                           const Tensor& out, const Tensor& lse);

// The mask of a selection, with tile summaries; its outputs have no memory yet.
[[nodiscard]] std::int64_t most_rows_of_a_request(const io::Step& step);
[[nodiscard]] std::vector<std::int64_t> keys_of_requests(const io::Step& step);
[[nodiscard]] PackedMaskArgs mask_args(const io::Step& step, const PackedMaskShape& shape,
                                       const std::vector<std::int64_t>& key_count, const Tensor& indices);

// A shape whose memory comes later, or never.
[[nodiscard]] Tensor matrix(void* data, DType dtype, std::int64_t rows, std::int64_t columns);

}  // namespace keysieve::cli

#include "stage_args.hpp"

#include <algorithm>

namespace keysieve::cli {
namespace {

// The library's views do not distinguish what is only read.
Tensor read_only(const std::vector<std::int64_t>& values, RowChunk rows) {
  return Tensor::dense(const_cast<std::int64_t*>(values.data()) + rows.first, DType::i64, {rows.count});
}

}  // namespace

Tensor matrix(void* data, DType dtype, std::int64_t rows, std::int64_t columns) {
  return Tensor::dense(data, dtype, {rows, columns});
}

RowChunk next_chunk(const io::Step& step, std::int64_t first, std::int64_t score_bytes) {
  const std::int64_t row_bytes = std::max<std::int64_t>(step.width, 1) * std::int64_t{sizeof(float)};
  const std::int64_t fitting = std::max<std::int64_t>(score_bytes / row_bytes, 1);
  const std::int64_t left = step.rows - first;
  if (fitting >= left || !step.index_cache.given()) return {first, std::min(fitting, left)};
  const std::int64_t each = step.rows_per_request;
  if (first % each == 0 && fitting >= each) return {first, fitting / each * each};
  return {first, std::min(fitting, each - first % each)};
}

Tensor tensor_rows(const Tensor& tensor, RowChunk rows) {
  Tensor part = tensor;
  if (!tensor.given()) return part;
  part.shape[0] = rows.count;
  if (part.data != nullptr) {
    part.data = static_cast<char*>(part.data) + rows.first * part.stride[0] * dtype_bytes(part.dtype);
  }
  return part;
}

Bounds step_bounds(const io::Step& step, RowChunk rows) {
  if (rows.count == step.rows && step.file_bounds.end.given()) return step.file_bounds;
  Bounds bounds;
  if (step.index_k.given()) bounds.start = read_only(step.first_column, rows);
  bounds.end = read_only(step.end_column, rows);
  return bounds;
}

MqaLogitsArgs logits_args(const io::Step& step, RowChunk rows, const Tensor& scores) {
  MqaLogitsArgs args;
  args.q = tensor_rows(step.index_q, rows);
  args.weights = tensor_rows(step.index_w, rows);
  args.keys = step.index_k;
  args.key_scales = step.index_k_scale;
  args.cache = step.index_cache;
  if (step.index_cache.given()) {
    const std::int64_t each = step.rows_per_request;
    args.page_tokens = step.index_page_tokens;
    args.page_table = tensor_rows(step.index_page_table, {rows.first / each, (rows.count + each - 1) / each});
  }
  args.bounds = step_bounds(step, rows);
  args.scores = scores;
  return args;
}

CandidateBlocksArgs blocks_args(const io::Step& step, RowChunk rows, const Tensor& scores,
                                const Tensor& candidates) {
  CandidateBlocksArgs args;
  args.scores = scores;
  args.bounds = step_bounds(step, rows);
  args.block_size = step.block_size;
  args.candidates = candidates;
  return args;
}

TopkArgs topk_args(const io::Step& step, RowChunk rows, const Tensor& scores, const Tensor& out,
                   const Tensor& counts) {
  TopkArgs args;
  args.scores = scores;
  args.bounds = step_bounds(step, rows);
  args.k = step.topk;
  args.block_size = step.block_size;
  if (step.role == io::Role::consume) args.candidates = tensor_rows(step.candidates, rows);
  args.out = out;
  args.counts = counts;
  return args;
}

TranslateArgs translate_args(const io::Step& step, const Tensor& indices, const Tensor& slots,
                             const Tensor& row_request) {
  TranslateArgs args;
  args.indices = indices;
  args.pages.page_table = step.latent.page_table;
  args.pages.row_to_request = row_request;
  args.pages.page_size = step.latent.pool.shape[1];
  args.pages.pool_pages = step.latent.pool.shape[0];
  args.mode = TranslateMode::keep;
  args.slots = slots;
  return args;
}

SparseMlaArgs attention_args(const io::Step& step, RowChunk rows, const Tensor& slots, const Tensor& out,
                             const Tensor& lse) {
  SparseMlaArgs args;
  args.q = tensor_rows(step.mla_q, rows);
  args.cache = step.latent.pool;
  args.indices = slots;
  args.softmax_scale = step.softmax_scale;
  args.sink = step.sink;
  args.out = out;
  args.lse = lse;
  return args;
}

}  // namespace keysieve::cli

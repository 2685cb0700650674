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

std::int64_t most_rows_of_a_request(const io::Step& step) {
  std::int64_t most = 0;
  for (std::size_t b = 0; b + 1 < step.q_start.size(); ++b) {
    most = std::max<std::int64_t>(most, step.q_start[b + 1] - step.q_start[b]);
  }
  return most;
}

std::vector<std::int64_t> keys_of_requests(const io::Step& step) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(step.requests), 0);
  for (std::int64_t r = 0; r < step.rows; ++r) {
    std::int64_t& most = keys[static_cast<std::size_t>(step.row_request[static_cast<std::size_t>(r)])];
    most = std::max(most, step.visible(r));
  }
  return keys;
}

PackedMaskArgs mask_args(const io::Step& step, const PackedMaskShape& shape,
                         const std::vector<std::int64_t>& key_count, const Tensor& indices) {
  PackedMaskArgs args;
  args.q_start =
      Tensor::dense(const_cast<std::int32_t*>(step.q_start.data()), DType::i32, {step.requests + 1});
  args.key_count = read_only(key_count, {0, step.requests});
  args.indices = indices;
  args.mask = Tensor::dense(nullptr, DType::u32, {shape.requests, shape.rows, shape.words});
  args.any = args.all = Tensor::dense(nullptr, DType::u32,
                                      {shape.requests, (shape.rows + 127) / 128, (shape.words + 127) / 128});
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

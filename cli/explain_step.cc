#include "explain_step.hpp"

#include <algorithm>

#include "device_tensors.hpp"
#include "stage_args.hpp"

namespace keysieve::cli {

std::vector<StageExplanation> explain_step(const io::Step& step, const KernelChoice& kernels,
                                           const Executor* executor) {
  std::vector<StageExplanation> all;
  const auto add = [&](const char* operation, auto args) {
    const bool on_device = HasDeviceTensors<decltype(args)> && kernels.on_device();
    if constexpr (HasDeviceTensors<decltype(args)>) {
      if (on_device) place_on_device(args);
    }
    const KernelChoice allowed = on_device ? kernels : kernels.on_host();
    const PlannedChoice choice(allowed, operation, executor);
    all.emplace_back(operation, explain(args, choice.options));
  };
  const RowChunk rows{0, step.rows};
  const std::int64_t k = step.has_index ? step.topk : step.selection.given() ? step.selection.shape[1] : 0;
  const Tensor selection = matrix(nullptr, DType::i32, step.rows, k);
  if (step.has_index) {
    const Tensor scores = matrix(nullptr, DType::f32, step.rows, step.width);
    add("mqa_logits", logits_args(step, rows, scores));
    if (step.role == io::Role::publish) {
      add("candidate_blocks",
          blocks_args(step, rows, scores, matrix(nullptr, DType::i32, step.rows, step.candidate_count)));
    }
    add("topk", topk_args(step, rows, scores, selection, Tensor::dense(nullptr, DType::i32, {step.rows})));
  }
  if (step.has_index && step.requests > 0 && !step.q_start.empty()) {
    const std::vector<std::int64_t> key_count = keys_of_requests(step);
    const PackedMaskShape shape = packed_mask_shape(step.requests, most_rows_of_a_request(step),
                                                    *std::max_element(key_count.begin(), key_count.end()));
    add("packed_mask", mask_args(step, shape, key_count, selection));
  }
  if (step.has_attention) {
    if (step.latent.form == io::LatentCache::Form::paged) {
      add("translate",
          translate_args(step, selection, selection, Tensor::dense(nullptr, DType::i32, {step.rows})));
    }
    add("sparse_mla", attention_args(step, rows, selection,
                                     Tensor::dense(nullptr, DType::f32, {step.rows, step.heads, 512}),
                                     matrix(nullptr, DType::f32, step.rows, step.heads)));
  }
  return all;
}

std::vector<StageExplanation> explain_shape(const ShapeOfStep& shape, const KernelChoice& kernels,
                                            const Executor* executor) {
  constexpr std::int64_t kIndexDim = 128, kLatentDim = 576, kAttentionHeads = 128;
  io::Step step;
  step.rows = step.requests = shape.rows;
  step.rows_per_request = 1;
  step.width = shape.keys;
  step.topk = shape.topk;
  step.block_size = shape.block;
  step.has_index = step.has_attention = true;
  step.index_q = Tensor::dense(nullptr, DType::bf16, {shape.rows, shape.heads, kIndexDim});
  step.index_w = matrix(nullptr, DType::f32, shape.rows, shape.heads);
  constexpr std::int64_t kPageTokens = 64;
  const std::int64_t columns = (shape.keys + kPageTokens - 1) / kPageTokens;
  step.index_page_tokens = kPageTokens;
  step.index_cache = Tensor::dense(nullptr, DType::bf16, {shape.rows * columns, kPageTokens, kIndexDim});
  step.index_page_table = matrix(nullptr, DType::i32, shape.rows, columns);
  step.first_column.assign(static_cast<std::size_t>(shape.rows), 0);
  step.end_column.assign(static_cast<std::size_t>(shape.rows), shape.keys);
  if (shape.candidates > 0) {
    step.role = io::Role::consume;
    step.candidates = matrix(nullptr, DType::i32, shape.rows, shape.candidates);
  }
  step.heads = kAttentionHeads;
  step.latent_dim = kLatentDim;
  step.softmax_scale = 1;
  step.mla_q = Tensor::dense(nullptr, DType::bf16, {shape.rows, kAttentionHeads, kLatentDim});
  step.latent.form = io::LatentCache::Form::paged;
  step.latent.pool = Tensor::dense(nullptr, DType::bf16, {shape.rows * columns, kPageTokens, kLatentDim});
  step.latent.page_table = step.index_page_table;
  return explain_step(step, kernels, executor);
}

}  // namespace keysieve::cli

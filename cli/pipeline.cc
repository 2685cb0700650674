#include "pipeline.hpp"

#include <algorithm>
#include <cstring>

#include "attention_stages.hpp"
#include "stage_args.hpp"
#include "stage_runner.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

using io::Role;
using io::StageReport;
using io::Step;

constexpr double kMaskBytes = 256 << 20;
constexpr std::int64_t kMaskLeastRows = 16;  // a mask tile of fewer query rows is mostly padding

class Pipeline {
 public:
  Pipeline(const Step& step, const RunOptions& options, StepOutputs& out, io::StepReport& report)
      : step_(step), options_(options), out_(out), report_(report), runner_(step, options) {}

  Status run() {
    report_.name = step_.name;
    report_.role = io::role_name(step_.role);
    report_.rows = step_.rows;
    report_.requests = step_.requests;
    report_.topk = step_.has_index ? step_.topk : step_.selection.given() ? step_.selection.shape[1] : 0;
    if (step_.has_index) index_stages();
    if (runner_.failed()) return runner_.status();
    if (!step_.has_index && step_.selection.given()) take_selection();
    if (!out_.indices.empty() && step_.has_bounds()) mask_stage();
    if (!runner_.failed() && step_.has_attention)
      run_attention_stages(step_, options_, runner_, out_, report_);
    return runner_.status();
  }

 private:
  [[nodiscard]] std::int64_t visible_sum(RowChunk rows) const {
    std::int64_t sum = 0;
    for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) sum += step_.visible(r);
    return sum;
  }

  // Score, publish, select; in chunks of rows, so that the score matrix stays small.
  void index_stages() {
    StageReport logits = stage_named("mqa_logits"), blocks = stage_named("candidate_blocks"),
                topk = stage_named("topk");
    const std::int64_t rows = step_.rows, width = step_.width, k = step_.topk;
    const bool publishes = step_.role == Role::publish, consumes = step_.role == Role::consume;
    const std::int64_t budget = options_.keep_logits ? INT64_MAX : options_.score_bytes;
    const RowChunk largest = next_chunk(step_, 0, budget);
    Buffer<float> scores(largest.count * width);
    out_.indices = Buffer<std::int32_t>(rows * k);
    out_.counts = Buffer<std::int32_t>(rows);
    out_.k = k;
    if (publishes) out_.candidates = Buffer<std::int32_t>(rows * step_.candidate_count);
    const std::int64_t heads = step_.index_q.shape[1];
    logits.shape = plural(rows, "row") + " x " + plural(heads, "head") + " x " + plural(width, "key");
    blocks.shape = grouped(rows) + " x " + grouped(width) + " -> " + grouped(step_.candidate_count) +
                   " blocks of " + grouped(step_.block_size);
    topk.shape = grouped(rows) + " x " +
                 (consumes ? grouped(step_.candidates.shape[1]) + " blocks of " + grouped(step_.block_size)
                           : grouped(width)) +
                 " -> " + grouped(k);

    bool scored = true, published = publishes, selected = true;
    std::int64_t chunks = 0;
    for (RowChunk chunk; chunk.first < rows && scored; chunk.first += chunk.count) {
      chunk = next_chunk(step_, chunk.first, budget);
      ++chunks;
      const Tensor matrix_of_scores = matrix(scores.data(), DType::f32, chunk.count, width);
      MqaLogitsArgs args = logits_args(step_, chunk, matrix_of_scores);
      if (options_.keep_logits) args.tail = Tail::neg_inf;
      scored = runner_.call("mqa_logits", args, logits, options_.repeat);
      if (runner_.failed()) return;
      if (!scored) break;
      logits.bytes += logits_bytes(chunk);
      const double visible = static_cast<double>(visible_sum(chunk));
      if (published) {
        const Tensor target = matrix(out_.candidates.data() + chunk.first * step_.candidate_count, DType::i32,
                                     chunk.count, step_.candidate_count);
        published = runner_.call("candidate_blocks", blocks_args(step_, chunk, matrix_of_scores, target),
                                 blocks, options_.repeat);
        blocks.bytes += 4 * visible + 4.0 * static_cast<double>(chunk.count * step_.candidate_count);
      }
      if (runner_.failed()) return;
      if (selected) {
        const Tensor target = matrix(out_.indices.data() + chunk.first * k, DType::i32, chunk.count, k);
        const Tensor counts = Tensor::dense(out_.counts.data() + chunk.first, DType::i32, {chunk.count});
        selected = runner_.call("topk", topk_args(step_, chunk, matrix_of_scores, target, counts), topk,
                                options_.repeat);
        const double read =
            consumes
                ? std::min(visible,
                           static_cast<double>(chunk.count * step_.candidates.shape[1] * step_.block_size))
                : visible;
        topk.bytes += 4 * read + 4.0 * static_cast<double>(chunk.count * (k + 1));
      }
      if (runner_.failed()) return;
    }
    if (!scored) {
      blocks.skipped = topk.skipped = "mqa_logits gave no scores";
      published = selected = false;
    } else if (options_.keep_logits) {
      out_.logits = std::move(scores);
    }
    if (!published) out_.candidates = {};
    if (!selected) out_.indices = {}, out_.counts = {};
    for (StageReport* stage : {&logits, &blocks, &topk}) {
      stage->chunks = chunks;
      if (stage != &blocks || publishes) report_.stages.push_back(*stage);
    }
  }

  // Queries, weights and scores once; each request's keys once.
  [[nodiscard]] double logits_bytes(RowChunk rows) const {
    const std::int64_t heads = step_.index_q.shape[1], dim = step_.index_q.shape[2];
    const std::int64_t q_bytes = dtype_bytes(step_.index_q.dtype);
    const double key_bytes = static_cast<double>(dim * q_bytes + (q_bytes == 1 ? 4 : 0));
    double keys = 0;
    std::int64_t most = 0;
    for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) {
      most = std::max(most, step_.visible(r));
      const auto i = static_cast<std::size_t>(r);
      if (r + 1 == rows.first + rows.count || step_.row_request[i] != step_.row_request[i + 1]) {
        keys += static_cast<double>(most);
        most = 0;
      }
    }
    return static_cast<double>(rows.count * heads * (dim * q_bytes + dtype_bytes(step_.index_w.dtype))) +
           keys * key_bytes + 4.0 * static_cast<double>(visible_sum(rows));
  }

  // The selection of a file without index tensors.
  void take_selection() {
    out_.k = step_.selection.shape[1];
    out_.indices = Buffer<std::int32_t>(step_.rows * out_.k);
    out_.counts = Buffer<std::int32_t>(step_.rows);
    if (out_.indices.size() > 0) {
      std::memcpy(out_.indices.data(), step_.selection.data,
                  static_cast<std::size_t>(out_.indices.size()) * 4);
    }
    for (std::int64_t r = 0; r < step_.rows; ++r) {
      out_.counts[r] = static_cast<std::int32_t>(
          std::count_if(out_.indices.data() + r * out_.k, out_.indices.data() + (r + 1) * out_.k,
                        [](std::int32_t index) { return index >= 0; }));
    }
  }

  void mask_stage() {
    if (options_.mask == MaskWish::never) return;
    const std::int64_t most_rows = most_rows_of_a_request(step_);
    // Decode reads the index lists; --mask always shows the mask too.
    if (options_.mask == MaskWish::automatic && most_rows < kMaskLeastRows) return;
    StageReport stage = stage_named("packed_mask");
    const std::vector<std::int64_t> key_count = keys_of_requests(step_);
    const std::int64_t most_keys = *std::max_element(key_count.begin(), key_count.end());
    const PackedMaskShape shape = packed_mask_shape(step_.requests, most_rows, most_keys);
    stage.shape = printed("%s x %s x %s words", grouped(shape.requests).c_str(), grouped(shape.rows).c_str(),
                          grouped(shape.words).c_str());
    const double mask_bytes =
        4.0 * static_cast<double>(shape.requests) * static_cast<double>(shape.rows * shape.words);
    if (mask_bytes > kMaskBytes) {
      stage.skipped = "the mask would take " + bytes(mask_bytes);
      report_.stages.push_back(stage);
      return;
    }
    const std::int64_t words = shape.requests * shape.rows * shape.words;
    const std::int64_t tile_words = shape.requests * ((shape.rows + 127) / 128) * ((shape.words + 127) / 128);
    out_.mask = Buffer<std::uint32_t>(words);
    out_.mask_any = Buffer<std::uint32_t>(tile_words);
    out_.mask_all = Buffer<std::uint32_t>(tile_words);
    out_.mask_rows = shape.rows;
    out_.mask_words = shape.words;
    PackedMaskArgs args =
        mask_args(step_, shape, key_count, matrix(out_.indices.data(), DType::i32, step_.rows, out_.k));
    args.mask.data = out_.mask.data();
    args.any.data = out_.mask_any.data();
    args.all.data = out_.mask_all.data();
    if (runner_.call("packed_mask", args, stage, options_.repeat)) {
      stage.bytes = 4.0 * static_cast<double>(words + out_.indices.size() + 2 * out_.mask_any.size());
    } else {
      out_.mask = {}, out_.mask_any = {}, out_.mask_all = {};
    }
    if (!runner_.failed()) report_.stages.push_back(stage);
  }

  const Step& step_;
  const RunOptions& options_;
  StepOutputs& out_;
  io::StepReport& report_;
  StageRunner runner_;
};

}  // namespace

Status run_step(const Step& step, const RunOptions& options, StepOutputs& out, io::StepReport& report) {
  return Pipeline(step, options, out, report).run();
}

}  // namespace keysieve::cli

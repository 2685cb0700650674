#include "pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "stage_args.hpp"
#include "text.hpp"
#include "tracing.hpp"

namespace keysieve::cli {
namespace {

using io::Role;
using io::StageReport;
using io::Step;

constexpr double kRepeatSeconds = 1.0;  // a stage that took this long is not repeated
constexpr double kMaskBytes = 256 << 20;
constexpr std::int64_t kDenseBytes = std::int64_t{64} << 20;  // index lists of the comparison with all keys
constexpr std::int64_t kMaskLeastRows = 16;  // a mask tile of fewer query rows is mostly padding

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

StageReport stage_named(const char* name) {
  StageReport stage;
  stage.stage = name;
  return stage;
}

class Pipeline {
 public:
  Pipeline(const Step& step, const RunOptions& options, StepOutputs& out, io::StepReport& report)
      : step_(step), options_(options), out_(out), report_(report) {}

  Status run() {
    report_.name = step_.name;
    report_.role = io::role_name(step_.role);
    report_.rows = step_.rows;
    report_.requests = step_.requests;
    report_.topk = step_.has_index ? step_.topk : step_.selection.given() ? step_.selection.shape[1] : 0;
    if (step_.has_index) index_stages();
    if (failed()) return status_;
    if (!step_.has_index && step_.selection.given()) take_selection();
    if (!out_.indices.empty() && step_.has_bounds()) mask_stage();
    if (!failed() && step_.has_attention) attention_stages();
    return status_;
  }

 private:
  [[nodiscard]] bool failed() const { return !status_.ok(); }

  // Plans and times one call; false when it was refused or failed. Seconds add up over the chunks of a stage.
  template <class Args>
  bool call(const char* operation, const Args& args, StageReport& stage, int repeats) {
    if (options_.progress) options_.progress(step_.name + ": " + stage.stage);
    const PlannedChoice choice(options_.kernels, operation, options_.executor);
    Plan<Args> planned;
    Status status = plan(args, choice.options, planned);
    if (status.code == Code::unsupported) {
      stage.refusal = status.seen;
      return false;
    }
    if (!status.ok()) return stop(status);
    if (planned.workspace_bytes > workspace_bytes_) {
      workspace_ = Buffer<char>(static_cast<std::int64_t>(planned.workspace_bytes) + 64);
      workspace_bytes_ = planned.workspace_bytes;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    char* const aligned = workspace_.data() + (64 - address % 64) % 64;
    const Workspace workspace{planned.workspace_bytes > 0 ? aligned : nullptr, planned.workspace_bytes};
    const auto once = [&](const Executor* executor) {
      const auto start = Clock::now();
      status = keysieve::run(planned, args, workspace, Stream{nullptr, executor});
      return seconds_since(start);
    };
    double best = once(options_.executor);
    if (!status.ok()) return stop(status);
    double spent = best;
    int done = 1;
    for (; done < repeats && spent < kRepeatSeconds; ++done) {
      const double seconds = once(options_.executor);
      if (!status.ok()) return stop(status);
      best = std::min(best, seconds);
      spent += seconds;
    }
    if (options_.trace != nullptr) trace(stage, planned.kernel_name, once);
    if (!status.ok()) return stop(status);
    stage.kernel = planned.kernel_name;
    stage.seconds += best;
    stage.repeats = stage.repeats == 0 ? done : std::min(stage.repeats, done);
    return true;
  }

  template <class Once>
  void trace(const StageReport& stage, const char* kernel, const Once& once) {
    const auto start = Clock::now();
    if (options_.executor != nullptr) {
      TracingExecutor tracing(*options_.executor, stage.stage, *options_.trace);
      const Executor executor = tracing.executor();
      once(&executor);
    } else {
      once(nullptr);
    }
    options_.trace->push_back({step_.name + " " + stage.stage, "stage", microseconds(start),
                               microseconds(Clock::now()) - microseconds(start), 0, kernel});
  }

  bool stop(const Status& status) {
    status_ = status;
    return false;
  }

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
      scored = call("mqa_logits", args, logits, options_.repeat);
      if (failed()) return;
      if (!scored) break;
      logits.bytes += logits_bytes(chunk);
      const double visible = static_cast<double>(visible_sum(chunk));
      if (published) {
        const Tensor target = matrix(out_.candidates.data() + chunk.first * step_.candidate_count, DType::i32,
                                     chunk.count, step_.candidate_count);
        published = call("candidate_blocks", blocks_args(step_, chunk, matrix_of_scores, target), blocks,
                         options_.repeat);
        blocks.bytes += 4 * visible + 4.0 * static_cast<double>(chunk.count * step_.candidate_count);
      }
      if (failed()) return;
      if (selected) {
        const Tensor target = matrix(out_.indices.data() + chunk.first * k, DType::i32, chunk.count, k);
        const Tensor counts = Tensor::dense(out_.counts.data() + chunk.first, DType::i32, {chunk.count});
        selected =
            call("topk", topk_args(step_, chunk, matrix_of_scores, target, counts), topk, options_.repeat);
        const double read =
            consumes
                ? std::min(visible,
                           static_cast<double>(chunk.count * step_.candidates.shape[1] * step_.block_size))
                : visible;
        topk.bytes += 4 * read + 4.0 * static_cast<double>(chunk.count * (k + 1));
      }
      if (failed()) return;
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
    if (call("packed_mask", args, stage, options_.repeat)) {
      stage.bytes = 4.0 * static_cast<double>(words + out_.indices.size() + 2 * out_.mask_any.size());
    } else {
      out_.mask = {}, out_.mask_any = {}, out_.mask_all = {};
    }
    if (!failed()) report_.stages.push_back(stage);
  }

  void attention_stages() {
    StageReport stage = stage_named("sparse_mla");
    stage.shape =
        plural(step_.rows, "row") + " x " + plural(step_.heads, "head") + " x " + plural(out_.k, "key");
    if (out_.indices.empty()) {
      stage.skipped = "topk selected nothing";
      report_.stages.push_back(stage);
      return;
    }
    if (!fill_slots() || failed()) {
      stage.skipped = "translate was refused";
      if (!failed()) report_.stages.push_back(stage);
      return;
    }
    const std::int64_t heads = step_.rows * step_.heads;
    out_.out = Buffer<float>(heads * 512);
    out_.lse = Buffer<float>(heads);
    const RowChunk all{0, step_.rows};
    const bool ran =
        call("sparse_mla",
             attend(all, matrix(out_.slots.data(), DType::i32, step_.rows, out_.k), out_.out, out_.lse),
             stage, options_.repeat);
    if (failed()) return;
    if (ran) {
      const auto kept = std::count_if(out_.slots.data(), out_.slots.data() + out_.slots.size(),
                                      [](std::int32_t slot) { return slot >= 0; });
      stage.bytes = static_cast<double>(kept * step_.latent_dim * 2 +
                                        heads * (step_.latent_dim * 2 + 512 * 4 + 4) + out_.slots.size() * 4);
    } else {
      out_.out = {}, out_.lse = {};
    }
    report_.stages.push_back(stage);
    if (ran && options_.compare_dense) attend_to_all_keys();
  }

  [[nodiscard]] SparseMlaArgs attend(RowChunk rows, const Tensor& slots, Buffer<float>& out,
                                     Buffer<float>& lse) {
    return attention_args(step_, rows, slots,
                          Tensor::dense(out.data() + rows.first * step_.heads * 512, DType::f32,
                                        {rows.count, step_.heads, 512}),
                          matrix(lse.data() + rows.first * step_.heads, DType::f32, rows.count, step_.heads));
  }

  // Selected keys to rows of the latent pool: by the operation where the cache is paged, else by the file's
  // own borders and positions.
  bool fill_slots() {
    out_.slots = Buffer<std::int32_t>(step_.rows * out_.k);
    if (step_.latent.form == io::LatentCache::Form::paged) {
      StageReport stage = stage_named("translate");
      stage.shape = grouped(step_.rows) + " x " + grouped(out_.k);
      const Tensor request =
          Tensor::dense(const_cast<std::int32_t*>(step_.row_request.data()), DType::i32, {step_.rows});
      const bool ran =
          call("translate",
               translate_args(step_, matrix(out_.indices.data(), DType::i32, step_.rows, out_.k),
                              matrix(out_.slots.data(), DType::i32, step_.rows, out_.k), request),
               stage, options_.repeat);
      stage.bytes = 12.0 * static_cast<double>(out_.slots.size());
      if (!failed()) report_.stages.push_back(stage);
      if (!ran) out_.slots = {};
      return ran;
    }
    for (std::int64_t r = 0; r < step_.rows; ++r) {
      for (std::int64_t t = r * out_.k; t < (r + 1) * out_.k; ++t) {
        out_.slots[t] = static_cast<std::int32_t>(
            step_.latent.slot(step_.row_request[static_cast<std::size_t>(r)], out_.indices[t]));
      }
    }
    return true;
  }

  // The same attention over every key that a row sees, in chunks of rows.
  void attend_to_all_keys() {
    if (!step_.has_bounds()) {
      report_.summary.dense_missing = "the file does not say which keys the rows see";
      return;
    }
    std::int64_t most = 1;
    for (std::int64_t r = 0; r < step_.rows; ++r) {
      most = std::max(most, step_.visible(r));
      if (!step_.latent.complete(step_.row_request[static_cast<std::size_t>(r)], step_.visible(r))) {
        report_.summary.dense_missing = "the file holds the latent rows of selected keys only";
        return;
      }
    }
    const std::int64_t heads = step_.rows * step_.heads;
    out_.dense_out = Buffer<float>(heads * 512);
    out_.dense_lse = Buffer<float>(heads);
    const std::int64_t fitting = std::max<std::int64_t>(kDenseBytes / (4 * most), 1);
    Buffer<std::int32_t> slots(std::min(fitting, step_.rows) * most);
    StageReport stage = stage_named("attention to all keys");
    for (RowChunk rows; rows.first < step_.rows; rows.first += rows.count) {
      rows.count = std::min(fitting, step_.rows - rows.first);
      for (std::int64_t r = 0; r < rows.count; ++r) {
        const std::int64_t row = rows.first + r;
        const std::int64_t request = step_.row_request[static_cast<std::size_t>(row)];
        const std::int64_t visible = step_.visible(row);
        for (std::int64_t p = 0; p < most; ++p) {
          slots[r * most + p] = p < visible ? static_cast<std::int32_t>(step_.latent.slot(request, p)) : -1;
        }
      }
      if (!call("sparse_mla",
                attend(rows, matrix(slots.data(), DType::i32, rows.count, most), out_.dense_out,
                       out_.dense_lse),
                stage, 1)) {
        report_.summary.dense_missing = stage.refusal;
        out_.dense_out = {}, out_.dense_lse = {};
        return;
      }
    }
  }

  const Step& step_;
  const RunOptions& options_;
  StepOutputs& out_;
  io::StepReport& report_;
  Status status_;
  Buffer<char> workspace_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

Status run_step(const Step& step, const RunOptions& options, StepOutputs& out, io::StepReport& report) {
  return Pipeline(step, options, out, report).run();
}

}  // namespace keysieve::cli

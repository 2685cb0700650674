#include "attention_stages.hpp"

#include <algorithm>

#include "stage_args.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

using io::StageReport;
using io::Step;

constexpr std::int64_t kDenseBytes = std::int64_t{64} << 20;  // index lists of the comparison with all keys

class AttentionStages {
 public:
  AttentionStages(const Step& step, const RunOptions& options, StageRunner& runner, StepOutputs& out,
                  io::StepReport& report)
      : step_(step), options_(options), runner_(runner), out_(out), report_(report) {}

  void run() {
    StageReport stage = stage_named("sparse_mla");
    stage.shape =
        plural(step_.rows, "row") + " x " + plural(step_.heads, "head") + " x " + plural(out_.k, "key");
    if (out_.indices.empty()) {
      stage.skipped = "topk selected nothing";
      report_.stages.push_back(stage);
      return;
    }
    if (!fill_slots() || runner_.failed()) {
      stage.skipped = "translate was refused";
      if (!runner_.failed()) report_.stages.push_back(stage);
      return;
    }
    const std::int64_t heads = step_.rows * step_.heads;
    out_.out = Buffer<float>(heads * 512);
    out_.lse = Buffer<float>(heads);
    const RowChunk all{0, step_.rows};
    const bool ran = runner_.call(
        "sparse_mla",
        attend(all, matrix(out_.slots.data(), DType::i32, step_.rows, out_.k), out_.out, out_.lse), stage,
        options_.repeat);
    if (runner_.failed()) return;
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

 private:
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
          runner_.call("translate",
                       translate_args(step_, matrix(out_.indices.data(), DType::i32, step_.rows, out_.k),
                                      matrix(out_.slots.data(), DType::i32, step_.rows, out_.k), request),
                       stage, options_.repeat);
      stage.bytes = 12.0 * static_cast<double>(out_.slots.size());
      if (!runner_.failed()) report_.stages.push_back(stage);
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
      if (!runner_.call("sparse_mla",
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
  StageRunner& runner_;
  StepOutputs& out_;
  io::StepReport& report_;
};

}  // namespace

void run_attention_stages(const Step& step, const RunOptions& options, StageRunner& runner, StepOutputs& out,
                          io::StepReport& report) {
  AttentionStages(step, options, runner, out, report).run();
}

}  // namespace keysieve::cli

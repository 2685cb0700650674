#include "check_step.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "agreement.hpp"
#include "pipeline.hpp"
#include "stage_args.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

using io::FileDType;
using io::FileTensor;
using io::Step;

constexpr double kBf16Tolerance = 1e-4;      // float32 sums of exact products
constexpr double kStoredBf16 = 1.0 / 256;    // scores stored as bf16
constexpr double kFp8Tolerance = 1.0 / 128;  // tensor cores keep about 14 bits of an fp8 sum
constexpr std::int64_t kChunkBytes = std::int64_t{128} << 20;

float real(const Tensor& t, std::int64_t at) {
  if (t.dtype == DType::f32) return static_cast<const float*>(t.data)[at];
  return std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(t.data)[at]} << 16);
}
float real(const Tensor& t, std::int64_t row, std::int64_t column) {
  return real(t, row * t.stride[0] + column);
}

std::string key_with_score(std::int64_t key, float score) {
  return printed("%lld (score %.7g)", static_cast<long long>(key), static_cast<double>(score));
}

class Checker {
 public:
  Checker(const Step& step, double tolerance, const std::function<void(const std::string&)>& progress)
      : step_(step), dumped_(step.dumped), progress_(progress), tolerance_(tolerance) {
    if (tolerance_ > 0) return;
    tolerance_ = step.index_q.dtype == DType::u8 ? kFp8Tolerance : kBf16Tolerance;
    if (dumped_.logits != nullptr && dumped_.logits->dtype == FileDType::bf16)
      tolerance_ = std::max(tolerance_, kStoredBf16);
  }

  std::vector<Finding> run() {
    if (step_.has_index &&
        (dumped_.logits || dumped_.candidates || dumped_.indices || dumped_.mask || attends()))
      index_stages();
    if (dumped_.counts != nullptr) check_counts();
    if (dumped_.slots != nullptr) check_slots();
    if (dumped_.mask != nullptr) check_mask();
    if (attends()) check_attention();
    std::vector<Finding> all;
    for (const char* stage : {"mqa_logits", "candidate_blocks", "topk", "counts", "translate", "packed_mask",
                              "sparse_mla", "lse"}) {
      for (Finding& finding : findings_) {
        if (finding.stage == stage) all.push_back(std::move(finding));
      }
    }
    return all;
  }

 private:
  [[nodiscard]] bool attends() const { return step_.has_attention && (dumped_.out || dumped_.lse); }
  [[nodiscard]] std::int64_t request(std::int64_t row) const {
    return step_.row_request[static_cast<std::size_t>(row)];
  }

  Finding& finding(const char* stage) {
    for (Finding& f : findings_) {
      if (f.stage == stage) return f;
    }
    findings_.push_back({});
    findings_.back().stage = stage;
    return findings_.back();
  }
  void breaks(const char* stage, std::int64_t row, const char* rule, std::string values) {
    Finding& f = finding(stage);
    if (f.verdict == Finding::Verdict::broken) return;
    f.verdict = Finding::Verdict::broken;
    f.row = row;
    f.rule = rule;
    f.values = std::move(values);
  }
  void unchecked(const char* stage, std::string why) {
    Finding& f = finding(stage);
    if (f.verdict != Finding::Verdict::holds) return;
    f.verdict = Finding::Verdict::unchecked;
    f.values = std::move(why);
  }

  // Runs the reference; false with `why` when it has no kernel or refuses the arguments.
  template <class Args>
  bool reference(const char* what, const Args& args, std::string& why) {
    if (progress_) progress_(step_.name + ": reference " + what);
    PlanOptions options;
    options.backend = "reference";
    Plan<Args> planned;
    Status status = plan(args, options, planned);
    Buffer<char> workspace(static_cast<std::int64_t>(planned.workspace_bytes) + 64);
    const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
    if (status.ok()) {
      status = keysieve::run(planned, args,
                             {workspace.data() + (64 - address % 64) % 64, planned.workspace_bytes}, {});
    }
    if (!status.ok()) why = status.message();
    return status.ok();
  }

  void index_stages() {
    const bool need_reference =
        dumped_.logits != nullptr || dumped_.candidates || dumped_.indices || dumped_.mask || attends();
    const bool need_selection =
        dumped_.indices != nullptr || (attends() && !dumped_.slots) || dumped_.mask != nullptr;
    const std::int64_t k = step_.topk;
    reference_indices_ = Buffer<std::int32_t>(step_.rows * k);
    bool scored = need_reference;
    Buffer<float> scores;
    std::string why;
    for (RowChunk rows; rows.first < step_.rows; rows.first += rows.count) {
      rows = next_chunk(step_, rows.first, kChunkBytes);
      if (scores.size() < rows.count * step_.width) scores = Buffer<float>(rows.count * step_.width);
      const Tensor computed = matrix(scores.data(), DType::f32, rows.count, step_.width);
      scored = scored && reference("mqa_logits", logits_args(step_, rows, computed), why);
      Tensor source = computed;  // what the engine selected from, as far as known
      if (dumped_.logits != nullptr) {
        if (scored)
          check_scores(rows, computed);
        else
          unchecked("mqa_logits", why);
        source = tensor_rows(io::view(*dumped_.logits, 2), rows);
        source.shape[1] = step_.width;
      } else if (!scored) {
        for (const char* stage : {"candidate_blocks", "topk"}) unchecked(stage, why);
        return;
      }
      const bool own = dumped_.logits != nullptr;
      if (dumped_.candidates != nullptr) check_candidates(rows, source, own);
      if (need_selection) check_selection(rows, source, own);
    }
    if (!have_reference_indices_) reference_indices_ = {};
  }

  void check_scores(RowChunk rows, const Tensor& computed) {
    const Tensor seen = io::view(*dumped_.logits, 2);
    Finding& f = finding("mqa_logits");
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t row = rows.first + r;
      ++f.rows;
      const std::int64_t first = step_.first_column[static_cast<std::size_t>(row)],
                         count = step_.visible(row);
      const double allowed = tolerance_ * greatest(computed, r, first, count);
      for (std::int64_t c = 0; c < count; ++c) {
        const float expected = real(computed, r, first + c), got = real(seen, row, first + c);
        if (std::isfinite(expected) && std::isfinite(got) &&
            std::fabs(static_cast<double>(expected) - static_cast<double>(got)) <= allowed)
          continue;
        if (expected == got || (std::isnan(expected) && std::isnan(got))) continue;
        const char* rule = std::isfinite(expected) && std::isfinite(got)
                               ? "CHK-01 a score equals the reference within rounding"
                               : "CHK-02 a score is NaN or infinite only where the reference is";
        breaks("mqa_logits", row, rule,
               printed("key %lld has %.7g, the reference %.7g (allowed difference %.2g)",
                       static_cast<long long>(c), static_cast<double>(got), static_cast<double>(expected),
                       allowed));
        break;
      }
    }
  }

  static double greatest(const Tensor& scores, std::int64_t row, std::int64_t first, std::int64_t count) {
    double most = 0;
    for (std::int64_t c = 0; c < count; ++c) {
      const float value = real(scores, row, first + c);
      if (std::isfinite(value)) most = std::max(most, std::fabs(static_cast<double>(value)));
    }
    return most;
  }

  // NaN ranks first, as the operations do it.
  static double rank_score(float score) {
    return std::isnan(score) ? std::numeric_limits<double>::infinity() : static_cast<double>(score);
  }

  void check_candidates(RowChunk rows, const Tensor& source, bool own) {
    const Tensor list = io::view(*dumped_.candidates, 2);
    const std::int64_t columns = list.shape[1];
    Buffer<std::int32_t> wanted(rows.count * columns);
    std::string why;
    if (!reference("candidate_blocks",
                   blocks_args(step_, rows, source, matrix(wanted.data(), DType::i32, rows.count, columns)),
                   why)) {
      return unchecked("candidate_blocks", why);
    }
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t row = rows.first + r, visible = step_.visible(row);
      const std::int64_t blocks = (visible + step_.block_size - 1) / step_.block_size;
      ++finding("candidate_blocks").rows;
      const auto* ids = static_cast<const std::int32_t*>(list.data) + row * columns;
      std::set<std::int64_t> seen;
      for (std::int64_t j = 0; j < columns; ++j) {
        if (ids[j] < 0) continue;
        const bool twice = !seen.insert(ids[j]).second;
        if (!twice && ids[j] < blocks) continue;
        return breaks(
            "candidate_blocks", row, "CHK-03 block ids lie inside the row, none twice",
            printed("block %d %s", ids[j],
                    twice ? "twice" : printed("of %lld blocks", static_cast<long long>(blocks)).c_str()));
      }
      if (visible > 0 && columns > 0 && !seen.contains(blocks - 1)) {
        return breaks("candidate_blocks", row, "CHK-04 the newest block is published",
                      printed("block %lld is missing", static_cast<long long>(blocks - 1)));
      }
      const std::int64_t first = step_.first_column[static_cast<std::size_t>(row)];
      const auto score = [&](std::int64_t block) {
        double best = -std::numeric_limits<double>::infinity();
        for (std::int64_t c = block * step_.block_size; c < std::min(visible, (block + 1) * step_.block_size);
             ++c) {
          best = std::max(best, rank_score(real(source, r, first + c)));
        }
        return static_cast<float>(best);
      };
      const double slack = own ? 0 : 2 * tolerance_ * greatest(source, r, first, visible);
      compare_sets("candidate_blocks", row, "CHK-05 the best blocks are published, ties to the smaller id",
                   "block", wanted.data() + r * columns, columns, seen, score, slack);
    }
  }

  void check_selection(RowChunk rows, const Tensor& source, bool own) {
    const std::int64_t k = step_.topk;
    const Tensor target = matrix(reference_indices_.data() + rows.first * k, DType::i32, rows.count, k);
    std::string why;
    have_reference_indices_ = reference("topk", topk_args(step_, rows, source, target, {}), why);
    if (dumped_.indices == nullptr) return;
    if (!have_reference_indices_) return unchecked("topk", why);
    const Tensor list = io::view(*dumped_.indices, 2);
    if (list.shape[1] != k) {
      return breaks("topk", rows.first, "CHK-07 used places come first, in k columns",
                    printed("%lld columns for top-k %lld", static_cast<long long>(list.shape[1]),
                            static_cast<long long>(k)));
    }
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t row = rows.first + r, visible = step_.visible(row);
      ++finding("topk").rows;
      const auto* keys = static_cast<const std::int32_t*>(list.data) + row * k;
      std::set<std::int64_t> seen, blocks;
      if (step_.role == io::Role::consume) {
        const auto* ids =
            static_cast<const std::int32_t*>(step_.candidates.data) + row * step_.candidates.shape[1];
        blocks.insert(ids, ids + step_.candidates.shape[1]);
      }
      for (std::int64_t t = 0; t < k; ++t) {
        if (keys[t] < 0) continue;
        if (t > 0 && keys[t - 1] < 0) {
          return breaks("topk", row, "CHK-07 used places come first, in k columns",
                        printed("place %lld is unused, place %lld holds key %d",
                                static_cast<long long>(t - 1), static_cast<long long>(t), keys[t]));
        }
        const bool twice = !seen.insert(keys[t]).second;
        if (twice || keys[t] >= visible) {
          return breaks(
              "topk", row, "CHK-06 selected keys lie inside the row, none twice",
              printed("key %d %s", keys[t],
                      twice ? "twice"
                            : printed("of %lld visible keys", static_cast<long long>(visible)).c_str()));
        }
        if (step_.role == io::Role::consume && !blocks.contains(keys[t] / step_.block_size)) {
          return breaks("topk", row, "CHK-08 selected keys lie in candidate blocks",
                        printed("key %d of block %lld, which is not listed", keys[t],
                                static_cast<long long>(keys[t] / step_.block_size)));
        }
      }
      const std::int64_t first = step_.first_column[static_cast<std::size_t>(row)];
      const auto score = [&](std::int64_t key) { return real(source, r, first + key); };
      const double slack = own ? 0 : 2 * tolerance_ * greatest(source, r, first, visible);
      compare_sets("topk", row, "CHK-09 the k greatest scores are kept, ties to the smaller key", "key",
                   reference_indices_.data() + row * k, k, seen, score, slack);
    }
  }

  // The same members, or others whose scores lie within `slack` of those they replace.
  template <class Score>
  void compare_sets(const char* stage, std::int64_t row, const char* rule, const char* noun,
                    const std::int32_t* wanted, std::int64_t columns, const std::set<std::int64_t>& seen,
                    const Score& score, double slack) {
    std::set<std::int64_t> expected;
    for (std::int64_t j = 0; j < columns; ++j) {
      if (wanted[j] >= 0) expected.insert(wanted[j]);
    }
    if (expected == seen) return;
    if (expected.size() != seen.size()) {
      return breaks(stage, row, rule,
                    grouped(static_cast<std::int64_t>(seen.size())) + " " + noun +
                        "s are kept, the reference keeps " +
                        grouped(static_cast<std::int64_t>(expected.size())));
    }
    std::vector<std::int64_t> missing, extra;
    std::set_difference(expected.begin(), expected.end(), seen.begin(), seen.end(),
                        std::back_inserter(missing));
    std::set_difference(seen.begin(), seen.end(), expected.begin(), expected.end(),
                        std::back_inserter(extra));
    const auto by_score = [&](std::int64_t a, std::int64_t b) {
      return rank_score(score(a)) < rank_score(score(b));
    };
    const std::int64_t best_missing = *std::max_element(missing.begin(), missing.end(), by_score);
    const std::int64_t worst_extra = *std::min_element(extra.begin(), extra.end(), by_score);
    if (slack > 0 && rank_score(score(best_missing)) - rank_score(score(worst_extra)) <= slack) return;
    breaks(stage, row, rule,
           std::string(noun) + " " + key_with_score(best_missing, score(best_missing)) + " is missing, " +
               noun + " " + key_with_score(worst_extra, score(worst_extra)) + " is kept");
  }

  // What the engine selected: its own list, or the file's, or the reference's.
  [[nodiscard]] const std::int32_t* selection(std::int64_t& k) const {
    if (dumped_.indices != nullptr) {
      k = dumped_.indices->shape.back();
      return dumped_.indices->as<std::int32_t>();
    }
    if (step_.selection.given()) {
      k = step_.selection.shape[1];
      return static_cast<const std::int32_t*>(step_.selection.data);
    }
    k = step_.topk;
    return reference_indices_.empty() ? nullptr : reference_indices_.data();
  }

  void check_counts() {
    std::int64_t k = 0;
    const std::int32_t* keys = selection(k);
    if (keys == nullptr) return unchecked("counts", "the file holds no selection");
    for (std::int64_t row = 0; row < step_.rows; ++row) {
      ++finding("counts").rows;
      const auto used =
          std::count_if(keys + row * k, keys + (row + 1) * k, [](std::int32_t key) { return key >= 0; });
      const std::int32_t count = dumped_.counts->as<std::int32_t>()[row];
      if (count == used) continue;
      return breaks("counts", row, "CHK-10 out_counts counts the used places",
                    printed("%d for %lld used places", count, static_cast<long long>(used)));
    }
  }

  [[nodiscard]] std::int64_t dumped_slot(std::int64_t at) const {
    return dumped_.slots->dtype == FileDType::i64 ? dumped_.slots->as<std::int64_t>()[at]
                                                  : dumped_.slots->as<std::int32_t>()[at];
  }

  void check_slots() {
    if (!step_.has_attention) return unchecked("translate", "the file holds no latent cache");
    std::int64_t k = 0;
    const std::int32_t* keys = dumped_.indices != nullptr || step_.selection.given() ? selection(k) : nullptr;
    if (keys == nullptr) return unchecked("translate", "out_slots needs out_indices beside it");
    if (dumped_.slots->shape.back() != k) {
      return breaks("translate", 0, "CHK-11 out_slots holds the slot of each selected key",
                    printed("%lld columns for %lld selected keys",
                            static_cast<long long>(dumped_.slots->shape.back()), static_cast<long long>(k)));
    }
    for (std::int64_t row = 0; row < step_.rows; ++row) {
      ++finding("translate").rows;
      for (std::int64_t t = 0; t < k; ++t) {
        const std::int64_t key = keys[row * k + t], slot = dumped_slot(row * k + t);
        const std::int64_t wanted = key < 0 ? -1 : step_.latent.slot(request(row), key);
        if (slot == wanted || (slot < 0 && wanted < 0)) continue;
        return breaks(
            "translate", row, "CHK-11 out_slots holds the slot of each selected key",
            printed("key %lld has slot %lld, its row lies in slot %lld", static_cast<long long>(key),
                    static_cast<long long>(slot), static_cast<long long>(wanted)));
      }
    }
  }

  void check_mask() {
    std::int64_t k = 0;
    const std::int32_t* keys = selection(k);
    if (keys == nullptr) return unchecked("packed_mask", "the file holds no selection");
    const std::int64_t padded = dumped_.mask->shape[1], words = dumped_.mask->shape[2];
    std::vector<std::uint32_t> wanted(static_cast<std::size_t>(words));
    for (std::int64_t b = 0; b < step_.requests; ++b) {
      const std::int64_t first = step_.q_start[static_cast<std::size_t>(b)];
      const std::int64_t count = step_.q_start[static_cast<std::size_t>(b) + 1] - first;
      if (count > padded) {
        return breaks("packed_mask", first, "CHK-12 the mask keeps every selected key",
                      printed("%lld mask rows for %lld query rows", static_cast<long long>(padded),
                              static_cast<long long>(count)));
      }
      for (std::int64_t i = 0; i < padded; ++i) {
        std::fill(wanted.begin(), wanted.end(), 0);
        for (std::int64_t t = 0; i < count && t < k; ++t) {
          const std::int64_t key = keys[(first + i) * k + t];
          if (key >= 0 && key / 32 < words) wanted[static_cast<std::size_t>(key / 32)] |= 1u << (key % 32);
        }
        if (i < count) ++finding("packed_mask").rows;
        const std::uint32_t* seen = dumped_.mask->as<std::uint32_t>() + (b * padded + i) * words;
        for (std::int64_t w = 0; w < words; ++w) {
          const std::uint32_t difference = seen[w] ^ wanted[static_cast<std::size_t>(w)];
          if (difference == 0) continue;
          const int bit = std::countr_zero(difference);
          const bool missing = (wanted[static_cast<std::size_t>(w)] >> bit & 1) != 0;
          return breaks(
              "packed_mask", i < count ? first + i : -1,
              missing ? "CHK-12 the mask keeps every selected key" : "CHK-13 the mask keeps nothing else",
              printed("request %lld, mask row %lld%s: bit of key %lld is %d", static_cast<long long>(b),
                      static_cast<long long>(i), i < count ? "" : " (padding)",
                      static_cast<long long>(w * 32 + bit), missing ? 0 : 1));
        }
      }
    }
  }

  void check_attention() {
    std::int64_t k = 0;
    const std::int32_t* keys = selection(k);
    if (dumped_.slots != nullptr) k = dumped_.slots->shape.back();
    if (dumped_.slots == nullptr && keys == nullptr) {
      return unchecked(dumped_.out != nullptr ? "sparse_mla" : "lse", "the file holds no selection");
    }
    Buffer<std::int32_t> slots(step_.rows * k);
    for (std::int64_t row = 0; row < step_.rows; ++row) {
      for (std::int64_t t = row * k; t < (row + 1) * k; ++t) {
        // The engine's own slots, also wrong ones: this stage is judged on what went into it.
        const std::int64_t slot =
            dumped_.slots != nullptr ? dumped_slot(t) : step_.latent.slot(request(row), keys[t]);
        slots[t] = slot < 0 || slot >= step_.latent.slots() ? -1 : static_cast<std::int32_t>(slot);
      }
    }
    const std::int64_t heads = step_.heads;
    Buffer<float> out(step_.rows * heads * 512), lse(step_.rows * heads);
    std::string why;
    if (!reference("sparse_mla",
                   attention_args(step_, {0, step_.rows}, matrix(slots.data(), DType::i32, step_.rows, k),
                                  Tensor::dense(out.data(), DType::f32, {step_.rows, heads, 512}),
                                  matrix(lse.data(), DType::f32, step_.rows, heads)),
                   why)) {
      return unchecked(dumped_.out != nullptr ? "sparse_mla" : "lse", why);
    }
    if (dumped_.out != nullptr) compare_attention("sparse_mla", io::view(*dumped_.out, 1), out, heads, 512);
    if (dumped_.lse != nullptr) compare_attention("lse", io::view(*dumped_.lse, 1), lse, heads, 1);
  }

  void compare_attention(const char* stage, const Tensor& seen, const Buffer<float>& expected,
                         std::int64_t heads, std::int64_t width) {
    for (std::int64_t row = 0; row < step_.rows; ++row) {
      ++finding(stage).rows;
      for (std::int64_t h = 0; h < heads; ++h) {
        double xy = 0, xx = 0, yy = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          const std::int64_t at = (row * heads + h) * width + c;
          const double x = static_cast<double>(expected[at]), y = static_cast<double>(real(seen, at));
          xy += x * y, xx += x * x, yy += y * y;
          if (width > 1 ? near_output(x, y) : near_lse(x, y)) continue;
          return breaks(
              stage, row,
              width > 1 ? "CHK-14 the output equals the reference within tolerance"
                        : "CHK-15 the LSE equals the reference within tolerance",
              printed("head %lld%s has %.7g, the reference %.7g", static_cast<long long>(h),
                      width > 1 ? printed(", element %lld,", static_cast<long long>(c)).c_str() : "", y, x));
        }
        if (width > 1 && xx + yy > 0 && 1 - 2 * xy / (xx + yy) > kOutputCosine) {
          return breaks(stage, row, "CHK-14 the output equals the reference within tolerance",
                        printed("head %lld lies %.3g from the reference as a vector, allowed %.3g",
                                static_cast<long long>(h), 1 - 2 * xy / (xx + yy), kOutputCosine));
        }
      }
    }
  }

  const Step& step_;
  const io::Dumped& dumped_;
  const std::function<void(const std::string&)>& progress_;
  double tolerance_;
  std::vector<Finding> findings_;
  Buffer<std::int32_t> reference_indices_;
  bool have_reference_indices_ = false;
};

}  // namespace

std::vector<Finding> check_step(const Step& step, double score_tolerance,
                                const std::function<void(const std::string&)>& progress) {
  return Checker(step, score_tolerance, progress).run();
}

}  // namespace keysieve::cli

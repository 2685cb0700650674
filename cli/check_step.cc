#include "check_step.hpp"

#include <algorithm>

#include "checker.hpp"

namespace keysieve::cli {
namespace {

constexpr double kBf16Tolerance = 1e-4;      // float32 sums of exact products
constexpr double kStoredBf16 = 1.0 / 256;    // scores stored as bf16
constexpr double kFp8Tolerance = 1.0 / 128;  // tensor cores keep about 14 bits of an fp8 sum
constexpr std::int64_t kChunkBytes = std::int64_t{128} << 20;

}  // namespace

Checker::Checker(const io::Step& step, double tolerance,
                 const std::function<void(const std::string&)>& progress)
    : step_(step), dumped_(step.dumped), progress_(progress), tolerance_(tolerance) {
  if (tolerance_ > 0) return;
  tolerance_ = step.index_q.dtype == DType::u8 ? kFp8Tolerance : kBf16Tolerance;
  if (dumped_.logits != nullptr && dumped_.logits->dtype == io::FileDType::bf16)
    tolerance_ = std::max(tolerance_, kStoredBf16);
}

std::vector<Finding> Checker::run() {
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

Finding& Checker::finding(const char* stage) {
  for (Finding& f : findings_) {
    if (f.stage == stage) return f;
  }
  findings_.push_back({});
  findings_.back().stage = stage;
  return findings_.back();
}

void Checker::breaks(const char* stage, std::int64_t row, const char* rule, std::string values) {
  Finding& f = finding(stage);
  if (f.verdict == Finding::Verdict::broken) return;
  f.verdict = Finding::Verdict::broken;
  f.row = row;
  f.rule = rule;
  f.values = std::move(values);
}

void Checker::unchecked(const char* stage, std::string why) {
  Finding& f = finding(stage);
  if (f.verdict != Finding::Verdict::holds) return;
  f.verdict = Finding::Verdict::unchecked;
  f.values = std::move(why);
}

void Checker::index_stages() {
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

double greatest_score(const Tensor& scores, std::int64_t row, std::int64_t first, std::int64_t count) {
  double most = 0;
  for (std::int64_t c = 0; c < count; ++c) {
    const float value = real(scores, row, first + c);
    if (std::isfinite(value)) most = std::max(most, std::fabs(static_cast<double>(value)));
  }
  return most;
}

void Checker::check_scores(RowChunk rows, const Tensor& computed) {
  const Tensor seen = io::view(*dumped_.logits, 2);
  Finding& f = finding("mqa_logits");
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t row = rows.first + r;
    ++f.rows;
    const std::int64_t first = step_.first_column[static_cast<std::size_t>(row)], count = step_.visible(row);
    const double allowed = tolerance_ * greatest_score(computed, r, first, count);
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

std::vector<Finding> check_step(const io::Step& step, double score_tolerance,
                                const std::function<void(const std::string&)>& progress) {
  return Checker(step, score_tolerance, progress).run();
}

}  // namespace keysieve::cli

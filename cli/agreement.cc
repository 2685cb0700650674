#include "agreement.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "text.hpp"

namespace keysieve::cli {
namespace {

using io::AgreementReport;
using io::Step;

std::vector<std::int32_t> sorted_list(const std::int32_t* values, std::int64_t count) {
  std::vector<std::int32_t> list;
  for (std::int64_t i = 0; i < count; ++i) {
    if (values[i] >= 0) list.push_back(values[i]);
  }
  std::sort(list.begin(), list.end());
  return list;
}

// The last selected score less the best one left out, from the expected scores of the row; infinite where
// nothing is left out, NaN where the file has no scores for the row.
double gap_of_scores(const Step& step, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  if (step.expected.scores == nullptr || step.expected.score_start[r] < 0) return std::nan("");
  const double* scores = step.expected.scores->as<double>() + step.expected.score_start[r];
  const std::int64_t count = std::min(step.visible(row), step.expected.score_count[r]);
  std::vector<double> live;
  if (step.role == io::Role::consume) {
    const auto* blocks =
        static_cast<const std::int32_t*>(step.candidates.data) + row * step.candidates.shape[1];
    std::vector<std::int32_t> list = sorted_list(blocks, step.candidates.shape[1]);
    list.erase(std::unique(list.begin(), list.end()), list.end());
    for (const std::int64_t block : list) {
      for (std::int64_t c = block * step.block_size; c < std::min(count, (block + 1) * step.block_size);
           ++c) {
        live.push_back(scores[c]);
      }
    }
  } else {
    live.assign(scores, scores + count);
  }
  if (static_cast<std::int64_t>(live.size()) <= step.topk || step.topk == 0)
    return std::numeric_limits<double>::infinity();
  std::nth_element(live.begin(), live.begin() + step.topk, live.end(), std::greater<>());
  const double left_out = live[static_cast<std::size_t>(step.topk)];
  return *std::min_element(live.begin(), live.begin() + step.topk) - left_out;
}

double gap_of_row(const Step& step, std::int64_t row) {
  return step.expected.topk_gap != nullptr ? step.expected.topk_gap->as<double>()[row]
                                           : gap_of_scores(step, row);
}

bool same_selection(const Step& step, const StepOutputs& out, std::int64_t row) {
  const io::FileTensor* expected = step.expected.topk;
  if (expected == nullptr) return true;
  const std::int64_t k = expected->shape.back();
  return sorted_list(expected->as<std::int32_t>() + row * k, k) ==
         sorted_list(out.indices.data() + row * out.k, out.k);
}

AgreementReport scores_agreement(const Step& step, const StepOutputs& out) {
  AgreementReport a;
  a.what = "scores";
  double greatest = 0;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    if (step.expected.score_start[r] < 0) continue;
    ++a.rows;
    const double* expected = step.expected.scores->as<double>() + step.expected.score_start[r];
    const float* seen = out.logits.data() + row * step.width + step.first_column[r];
    double worst = 0;
    for (std::int64_t c = 0; c < std::min(step.visible(row), step.expected.score_count[r]); ++c) {
      const double difference = std::fabs(expected[c] - static_cast<double>(seen[c]));
      worst =
          std::max(worst, difference == difference ? difference : std::numeric_limits<double>::infinity());
      greatest = std::max(greatest, std::fabs(expected[c]));
    }
    if (worst == 0) ++a.exact;
    if (worst > 0 && worst <= 10 * kGapRounding) ++a.within;
    a.worst = std::max(a.worst, worst);
  }
  a.holds = a.exact + a.within == a.rows;
  a.detail = plural(a.rows, "row") +
             printed(", greatest difference %.2g where scores reach %.3g", a.worst, greatest);
  return a;
}

AgreementReport selection_agreement(const Step& step, const StepOutputs& out) {
  AgreementReport a;
  a.what = "topk";
  a.rows = step.rows;
  std::int64_t broken = -1;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    if (same_selection(step, out, row)) {
      ++a.exact;
      continue;
    }
    const double gap = gap_of_row(step, row);
    a.worst = std::max(a.worst, std::isnan(gap) ? 0 : gap);
    // A row whose gap nobody knows cannot be excused.
    if (gap <= kGapRounding)
      ++a.within;
    else if (broken < 0)
      broken = row;
  }
  a.holds = broken < 0;
  a.detail = grouped(a.exact) + " of " + plural(a.rows, "row") + " select exactly the expected keys";
  if (a.within > 0)
    a.detail += ", " + grouped(a.within) + " differ where the gap at the cut is below rounding";
  if (broken >= 0)
    a.detail += printed("; row %lld differs across a gap of %.3g", static_cast<long long>(broken),
                        gap_of_row(step, broken));
  return a;
}

// The greatest score of a block, as its row sees it; NaN without kept scores.
double block_score(const Step& step, const StepOutputs& out, std::int64_t row, std::int64_t block) {
  if (out.logits.empty()) return std::nan("");
  const float* scores =
      out.logits.data() + row * step.width + step.first_column[static_cast<std::size_t>(row)];
  double best = -std::numeric_limits<double>::infinity();
  for (std::int64_t c = block * step.block_size;
       c < std::min(step.visible(row), (block + 1) * step.block_size); ++c) {
    best = std::max(best, static_cast<double>(scores[c]));
  }
  return best;
}

// A publisher against the blocks that the author's own model published.
AgreementReport candidates_agreement(const Step& step, const StepOutputs& out) {
  AgreementReport a;
  a.what = "candidate_blocks";
  a.rows = step.rows;
  std::int64_t different = 0, listed = 0, broken = -1;
  const std::int64_t expected_columns = step.candidates.shape[1];
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const auto expected = sorted_list(
        static_cast<const std::int32_t*>(step.candidates.data) + row * expected_columns, expected_columns);
    const auto seen = sorted_list(out.candidates.data() + row * step.candidate_count, step.candidate_count);
    listed += static_cast<std::int64_t>(expected.size());
    if (expected == seen) {
      ++a.exact;
      continue;
    }
    std::vector<std::int32_t> missing, extra;
    std::set_difference(expected.begin(), expected.end(), seen.begin(), seen.end(),
                        std::back_inserter(missing));
    std::set_difference(seen.begin(), seen.end(), expected.begin(), expected.end(),
                        std::back_inserter(extra));
    different += static_cast<std::int64_t>(std::max(missing.size(), extra.size()));
    // Both choices are right where the blocks exchanged score alike; a shorter or longer list never is.
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const auto* list : {&missing, &extra}) {
      for (const std::int64_t block : *list) {
        low = std::min(low, block_score(step, out, row, block));
        high = std::max(high, block_score(step, out, row, block));
      }
    }
    if (missing.size() == extra.size() && high - low <= kGapRounding) {
      ++a.within;
    } else {
      if (broken < 0) broken = row;
      a.worst = std::max(a.worst, high - low);
    }
  }
  a.holds = broken < 0;
  a.detail = grouped(a.exact) + " of " + plural(a.rows, "row") + " publish exactly the expected blocks, " +
             grouped(different) + " of " + grouped(listed) + " blocks differ";
  if (a.within > 0) a.detail += ", in " + plural(a.within, "row") + " within rounding";
  if (broken >= 0) a.detail += "; first in row " + grouped(broken);
  return a;
}

AgreementReport attention_agreement(const Step& step, const StepOutputs& out,
                                    const io::FileTensor& expected) {
  const bool lse = &expected == step.expected.lse;
  AgreementReport a;
  a.what = lse ? "lse" : "attention output";
  const std::int64_t row_size = step.heads * (lse ? 1 : 512);
  const float* seen = lse ? out.lse.data() : out.out.data();
  std::int64_t other_selection = 0;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const std::int64_t place = step.expected.checked[static_cast<std::size_t>(row)];
    if (place < 0) continue;
    if (!same_selection(step, out, row)) {
      ++other_selection;
      continue;
    }
    ++a.rows;
    const double* e = expected.as<double>() + place * row_size;
    bool near = true, exact = true;
    double xy = 0, xx = 0, yy = 0;
    for (std::int64_t i = 0; i < row_size; ++i) {
      const double x = e[i], y = static_cast<double>(seen[row * row_size + i]);
      near = near && (lse ? near_lse(x, y) : near_output(x, y));
      exact = exact && static_cast<float>(x) == static_cast<float>(y);
      if (x != y)
        a.worst =
            std::max(a.worst, std::isnan(x - y) ? std::numeric_limits<double>::infinity() : std::fabs(x - y));
      xy += x * y, xx += x * x, yy += y * y;
    }
    if (!lse) near = near && (xx + yy == 0 || 1 - 2 * xy / (xx + yy) <= kOutputCosine);
    if (exact)
      ++a.exact;
    else if (near)
      ++a.within;
  }
  a.holds = a.exact + a.within == a.rows;
  a.detail = plural(a.rows, "row") + printed(", greatest difference %.2g", a.worst);
  if (other_selection > 0)
    a.detail += ", " + plural(other_selection, "row") + " with another selection not compared";
  return a;
}

}  // namespace

bool near_output(double expected, double seen) {
  if (std::isnan(expected)) return std::isnan(seen);
  const double difference = std::fabs(expected - seen);
  return difference <= 1e-3 || (std::isfinite(expected) && difference <= std::fabs(expected) * 2 / 128);
}

bool near_lse(double expected, double seen) {
  if (expected == seen) return true;
  if (std::isnan(expected)) return std::isnan(seen);
  const double difference = std::fabs(expected - seen);
  // Relative to an infinity everything would be near.
  return difference <= 1e-5 || (std::isfinite(expected) && difference <= std::fabs(expected) * 1.2e-4);
}

std::vector<AgreementReport> judge_agreement(const Step& step, const StepOutputs& out) {
  std::vector<AgreementReport> all;
  if (!out.logits.empty() && step.expected.scores != nullptr) all.push_back(scores_agreement(step, out));
  if (!out.candidates.empty() && step.candidates.given()) all.push_back(candidates_agreement(step, out));
  if (step.has_index && !out.indices.empty() && step.expected.topk != nullptr)
    all.push_back(selection_agreement(step, out));
  if (!out.out.empty() && step.expected.out != nullptr)
    all.push_back(attention_agreement(step, out, *step.expected.out));
  if (!out.lse.empty() && step.expected.lse != nullptr)
    all.push_back(attention_agreement(step, out, *step.expected.lse));
  return all;
}

}  // namespace keysieve::cli

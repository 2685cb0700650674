#include <cinttypes>

#include "io/step_loader.hpp"

namespace keysieve::io {

void StepLoader::expected() {
  Expected& expected = step_.expected;
  const char* lists = "STP-03 expected selections are I32 [rows, k]";
  expected.topk = row_tensor("expected_topk", {FileDType::i32}, {-1}, lists);
  expected.topk_unrestricted = row_tensor("expected_topk_unrestricted", {FileDType::i32}, {-1}, lists);
  expected.topk_gap =
      row_tensor("expected_topk_gap", {FileDType::f64}, {}, "STP-03 expected_topk_gap is F64 [rows]");
  if (failed()) return;
  if (step_.has_index) {
    step_.topk = metadata_.topk.value_or(expected.topk != nullptr ? expected.topk->shape.back() : -1);
    if (step_.topk < 0) return fail(kCompleteRule, "topk", "no metadata of this name");
    if (step_.topk * step_.rows > Limits::kMaxRowEntries) {
      return fail(kLimitRule, "topk", "%" PRId64 " for %" PRId64 " rows", step_.topk, step_.rows);
    }
  }
  // Every row is checked, or those that checked_rows lists.
  expected.checked.assign(static_cast<std::size_t>(step_.rows), -1);
  const FileTensor* checked_rows =
      plain_tensor("checked_rows", kIntegers, {-1}, "STP-03 checked_rows is I32 or I64 [n]");
  if (failed()) return;
  const std::int64_t count = checked_rows != nullptr ? checked_rows->elements() : step_.rows;
  if (count > step_.rows) {
    return fail("STP-03 checked_rows names rows", "checked_rows", "%" PRId64 " of %" PRId64 " rows", count,
                step_.rows);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = checked_rows != nullptr ? integer_at(*checked_rows, i) : i;
    if (row < 0 || row >= step_.rows) {
      return fail("STP-03 checked_rows names rows", "checked_rows", "%" PRId64 " of %" PRId64 " rows", row,
                  step_.rows);
    }
    expected.checked[static_cast<std::size_t>(row)] = i;
  }
  expected_scores();
  if (failed() || !step_.has_attention) return;
  const auto by_checked = [&](const char* name, std::int64_t elements) -> const FileTensor* {
    const FileTensor* tensor = find(name);
    if (tensor == nullptr || failed()) return nullptr;
    if (tensor->dtype == FileDType::f64 && tensor->elements() == elements) return tensor;
    fail("STP-03 expected_out is F64 [checked rows, heads, 512] and expected_lse F64 [checked rows, heads]",
         name, "%s for %" PRId64 " checked rows of %" PRId64 " heads", tensor->describe().c_str(), count,
         step_.heads);
    return nullptr;
  };
  expected.out = by_checked("expected_out", count * step_.heads * 512);
  expected.lse = by_checked("expected_lse", count * step_.heads);
}

// [checked rows, keys] of one request, or flat: for each request in turn, its rows over all of its keys.
void StepLoader::expected_scores() {
  Expected& expected = step_.expected;
  const FileTensor* scores = find("expected_scores");
  if (failed() || scores == nullptr || !step_.has_index) return;
  const char* rule =
      "STP-03 expected_scores is F64 [checked rows, keys], or flat: each request's rows over its keys";
  if (scores->dtype != FileDType::f64) return fail(rule, "expected_scores", "%s", scores->describe().c_str());
  const auto rows = static_cast<std::size_t>(step_.rows);
  expected.score_start.assign(rows, -1);
  expected.score_count.assign(rows, 0);
  if (scores->shape.size() == 2 && step_.requests == 1) {
    for (std::size_t r = 0; r < rows; ++r) {
      if (expected.checked[r] < 0) continue;
      if (expected.checked[r] >= scores->shape[0])
        return fail(rule, "expected_scores", "%s", scores->describe().c_str());
      expected.score_start[r] = expected.checked[r] * scores->shape[1];
      expected.score_count[r] = scores->shape[1];
    }
  } else if (scores->shape.size() == 1 && step_.index_k.given()) {
    const std::vector<std::int64_t> k_start = step_.requests > 1 ? starts("k_start", step_.index_k.shape[0])
                                                                 : std::vector<std::int64_t>{0, step_.width};
    if (failed()) return;
    if (k_start.empty()) return fail(kCompleteRule, "k_start", "no tensor of this name");
    std::int64_t at = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto b = static_cast<std::size_t>(step_.row_request[r]);
      expected.score_start[r] = at;
      expected.score_count[r] = k_start[b + 1] - k_start[b];
      at += expected.score_count[r];
    }
    if (at != scores->elements()) {
      return fail(rule, "expected_scores", "%s where the rows take %" PRId64, scores->describe().c_str(), at);
    }
  } else {
    return fail(rule, "expected_scores", "%s", scores->describe().c_str());
  }
  expected.scores = scores;
}

void StepLoader::dumped() {
  Dumped& dumped = step_.dumped;
  const std::int64_t words = step_.width == 0 ? -1 : (step_.width + 31) / 32;
  dumped.logits = row_tensor("out_logits", {FileDType::f32, FileDType::bf16}, {-1},
                             "STP-03 out_logits is F32 or BF16 [rows, width]");
  dumped.candidates =
      row_tensor("out_candidates", {FileDType::i32}, {-1}, "STP-03 out_candidates is I32 [rows, candidates]");
  dumped.indices = row_tensor("out_indices", {FileDType::i32}, {-1}, "STP-03 out_indices is I32 [rows, k]");
  dumped.counts = row_tensor("out_counts", {FileDType::i32}, {}, "STP-03 out_counts is I32 [rows]");
  dumped.slots = row_tensor("out_slots", kIntegers, {-1}, "STP-03 out_slots is I32 or I64 [rows, k]");
  dumped.mask = plain_tensor("out_mask", {FileDType::u32, FileDType::i32}, {step_.requests, -1, -1},
                             "STP-03 out_mask is U32 or I32 [requests, padded rows, words]");
  dumped.out = row_tensor("out_latent", {FileDType::bf16, FileDType::f32}, {step_.heads, 512},
                          "STP-03 out_latent is BF16 or F32 [rows, heads, 512]");
  dumped.lse = row_tensor("out_lse", {FileDType::f32}, {step_.heads}, "STP-03 out_lse is F32 [rows, heads]");
  if (failed()) return;
  if (dumped.logits != nullptr && dumped.logits->shape.back() < step_.width) {
    return fail("STP-03 out_logits has a column for each key", "out_logits", "%s for %" PRId64 " columns",
                dumped.logits->describe().c_str(), step_.width);
  }
  if (dumped.mask != nullptr && words > 0 && step_.requests == 1 && dumped.mask->shape[2] < words) {
    fail("STP-03 out_mask has a bit for each key", "out_mask", "%s for %" PRId64 " keys",
         dumped.mask->describe().c_str(), step_.width);
  }
}

}  // namespace keysieve::io

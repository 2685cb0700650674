#include <algorithm>
#include <cinttypes>

#include "io/step_loader.hpp"

namespace keysieve::io {
namespace {

// Floor division: -1 / 4 is -1, so that a negative length stays negative.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

// first_column and end_column of every row, the width, and the form that is handed on.
void StepLoader::bounds() {
  const FileTensor* row_end = find("row_end");
  const FileTensor* query_pos = find("query_pos");
  const FileTensor* lengths = find("lengths");
  const FileTensor* context_len = find("context_len");
  const int forms = int{row_end != nullptr} + int{query_pos != nullptr} + int{lengths != nullptr};
  if (forms > 1) {
    return fail("STP-06 one of row_end, query_pos and lengths", "query_pos", "%d of them", forms);
  }
  step_.ratio = metadata_.ratio.value_or(1);
  if (row_end != nullptr) return bounds_from_rows(*row_end);
  if (query_pos != nullptr) return bounds_from_positions(*query_pos);
  if (lengths != nullptr) return bounds_from_lengths(*lengths, metadata_.length_unit == LengthUnit::tokens);
  if (context_len != nullptr && step_.rows_per_request > 0) return bounds_from_lengths(*context_len, true);
  if (step_.has_index) {
    fail("STP-06 one of row_end, query_pos, lengths and context_len", "query_pos", "none of them");
  }
}

void StepLoader::bounds_from_rows(const FileTensor& row_end) {
  if (!step_.index_k.given()) {
    return fail("STP-06 row_end counts columns of contiguous index_k", "row_end", "no index_k");
  }
  const std::int64_t repeat = metadata_.row_repeat.value_or(1);
  const std::int64_t entries = (step_.rows + repeat - 1) / repeat;
  const FileTensor* end =
      plain_tensor("row_end", kIntegers, {entries}, "STP-03 row_end is I32 or I64 [rows / row_repeat]");
  const FileTensor* start =
      plain_tensor("row_start", kIntegers, {entries}, "STP-03 row_start is I32 or I64 [rows / row_repeat]");
  if (failed()) return;
  step_.width = step_.index_k.shape[0];
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    const std::int64_t last = std::clamp<std::int64_t>(integer_at(row_end, r / repeat), 0, step_.width);
    const std::int64_t first = start == nullptr ? 0 : integer_at(*start, r / repeat);
    step_.first_column.push_back(std::clamp<std::int64_t>(first, 0, last));
    step_.end_column.push_back(last);
  }
  step_.file_bounds.form = BoundsForm::ends;
  step_.file_bounds.end = view(*end, 1);
  if (start != nullptr) step_.file_bounds.start = view(*start, 1);
  step_.file_bounds.row_repeat = repeat;
}

void StepLoader::bounds_from_positions(const FileTensor& query_pos) {
  if (row_tensor("query_pos", kIntegers, {}, "STP-03 query_pos is I32 or I64 [rows]") == nullptr) return;
  std::vector<std::int64_t> visible;
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    // + 1 after the division would be wrong, before it overflows at the largest position.
    const std::int64_t position = std::min(integer_at(query_pos, r), INT64_MAX - 1);
    visible.push_back(floor_divide(position + 1, step_.ratio));
  }
  end_rows_at(visible);
}

void StepLoader::bounds_from_lengths(const FileTensor& lengths, bool tokens) {
  const std::size_t rank = lengths.shape.size();
  const std::int64_t next_n = step_.rows_per_request;
  const bool fits = next_n > 0 && (lengths.dtype == FileDType::i32 || lengths.dtype == FileDType::i64) &&
                    (rank == 1 || rank == 2) && lengths.shape[0] == step_.requests &&
                    (rank == 1 || lengths.shape[1] == next_n);
  if (!fits) {
    return fail("STP-03 lengths is I32 or I64 [requests] or [requests, next_n]", "lengths",
                "%s for %" PRId64 " requests of %" PRId64 " rows", lengths.describe().c_str(), step_.requests,
                next_n);
  }
  if (rank == 1 && !tokens && step_.ratio > 1 && next_n > 1) {
    return fail("STP-06 compressed lengths of several draft rows come as [requests, next_n]", "lengths",
                "ratio %" PRId64 " and %" PRId64 " rows", step_.ratio, next_n);
  }
  std::vector<std::int64_t> visible;
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    const std::int64_t length = integer_at(lengths, rank == 1 ? r / next_n : r);
    const std::int64_t value =
        rank == 2 || length < INT64_MIN + next_n ? length : length - next_n + r % next_n + 1;
    visible.push_back(tokens ? floor_divide(value, step_.ratio) : value);
  }
  end_rows_at(visible);
  if (failed() || !step_.index_cache.given()) return;
  step_.file_bounds = {};
  step_.file_bounds.form = BoundsForm::lengths;
  step_.file_bounds.end = view(lengths, static_cast<int>(rank));
  step_.file_bounds.next_n = next_n;
  step_.file_bounds.ratio = step_.ratio;
  step_.file_bounds.unit = tokens ? LengthUnit::tokens : LengthUnit::compressed;
}

// Rows that count their own request's keys: adds where the request's keys start, and never runs past them.
void StepLoader::end_rows_at(const std::vector<std::int64_t>& visible) {
  std::vector<std::int64_t> k_start;
  std::int64_t most = Limits::kMaxWidth;
  if (step_.index_k.given()) {
    k_start = starts("k_start", step_.index_k.shape[0]);
    if (failed()) return;
    if (k_start.empty() && step_.requests > 1) {
      return fail(kCompleteRule, "k_start", "no tensor of this name for %" PRId64 " requests",
                  step_.requests);
    }
    if (k_start.empty()) k_start = {0, step_.index_k.shape[0]};
    step_.width = k_start.back();
  } else if (step_.index_cache.given()) {
    // A cache without pages may claim any number of tokens in each.
    if (__builtin_mul_overflow(step_.index_page_table.shape[1], step_.index_page_tokens, &most))
      most = INT64_MAX;
  }
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    const auto b = static_cast<std::size_t>(step_.row_request[static_cast<std::size_t>(r)]);
    const std::int64_t first = k_start.empty() ? 0 : k_start[b];
    const std::int64_t keys = k_start.empty() ? most : k_start[b + 1] - first;
    const std::int64_t count = std::clamp<std::int64_t>(visible[static_cast<std::size_t>(r)], 0, keys);
    step_.first_column.push_back(first);
    step_.end_column.push_back(first + count);
    if (k_start.empty()) step_.width = std::max(step_.width, count);
  }
  if (step_.width > Limits::kMaxWidth) fail(kLimitRule, "query_pos", "%" PRId64 " keys", step_.width);
}

}  // namespace keysieve::io

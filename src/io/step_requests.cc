#include <cinttypes>

#include "io/step_loader.hpp"

namespace keysieve::io {

// Which stages there are, and how many rows.
void StepLoader::sizes() {
  const FileTensor* index_q = find("index_q");
  const FileTensor* mla_q = find("mla_q");
  step_.has_index = index_q != nullptr;
  step_.has_attention = mla_q != nullptr;
  const FileTensor* q = index_q != nullptr ? index_q : mla_q;
  if (q == nullptr) return fail("STP-09 index_q or mla_q", "index_q", "neither");
  const std::size_t rank = q->shape.size();
  if (rank != 3 && rank != 4) {
    return fail("STP-03 queries are [rows, heads, dim] or [requests, next_n, heads, dim]",
                index_q != nullptr ? "index_q" : "mla_q", "%s", q->describe().c_str());
  }
  if (q->elements() == 0) return fail("STP-09 at least one query", "index_q", "%s", q->describe().c_str());
  step_.rows = extents_product(q->shape, rank - 2);
  if (step_.rows > Limits::kMaxRows) return fail(kLimitRule, "index_q", "%" PRId64 " rows", step_.rows);
  if (rank == 4) step_.requests = q->shape[0];
}

// How many requests, and which rows each has.
void StepLoader::requests() {
  const char* source = step_.requests > 0 ? "index_q" : "";
  const auto agree = [&](const char* name, std::int64_t count) {
    if (count < 1) return fail("STP-04 at least one request", name, "%" PRId64, count);
    if (step_.requests == 0) {
      step_.requests = count;
      source = name;
    } else if (step_.requests != count) {
      fail("STP-04 all tensors speak of the same requests", name, "%" PRId64 " requests, %s has %" PRId64,
           count, source, step_.requests);
    }
  };
  for (const char* name : {"q_start", "k_start", "kv_start"}) {
    const FileTensor* tensor = find(name);
    if (tensor != nullptr && tensor->shape.size() == 1) agree(name, tensor->shape[0] - 1);
  }
  for (const char* name : {"index_page_table", "kv_page_table", "page_table"}) {
    const FileTensor* tensor = find(name);
    if (tensor != nullptr && tensor->shape.size() == 2) agree(name, tensor->shape[0]);
  }
  for (const char* name : {"lengths", "context_len"}) {
    const FileTensor* tensor = find(name);
    if (tensor != nullptr && !tensor->shape.empty()) agree(name, tensor->shape[0]);
  }
  if (step_.requests == 0) agree("index_q", 1);
  if (failed()) return;

  const std::vector<std::int64_t> given = starts("q_start", step_.rows);
  if (failed()) return;
  if (!given.empty() && given.back() != step_.rows) {
    return fail(kStartsRule, "q_start", "the end %" PRId64 " of %" PRId64 " rows", given.back(), step_.rows);
  }
  if (given.empty() && step_.rows % step_.requests != 0) {
    return fail("STP-04 without q_start every request has the same number of rows", "q_start",
                "%" PRId64 " rows of %" PRId64 " requests", step_.rows, step_.requests);
  }
  const std::int64_t each = step_.rows / step_.requests;
  bool uniform = true;
  for (std::int64_t b = 0; b <= step_.requests; ++b) {
    step_.q_start.push_back(
        static_cast<std::int32_t>(given.empty() ? b * each : given[static_cast<std::size_t>(b)]));
    uniform = uniform && step_.q_start.back() == b * each;
  }
  step_.rows_per_request = uniform ? each : 0;
  for (std::int64_t b = 0; b < step_.requests; ++b) {
    step_.row_request.resize(static_cast<std::size_t>(step_.q_start[static_cast<std::size_t>(b) + 1]),
                             static_cast<std::int32_t>(b));
  }
  const std::int64_t next_n = metadata_.next_n.value_or(each);
  if (uniform && next_n != each && step_.requests > 1) {
    fail("STP-04 rows = requests * next_n", "next_n",
         "%" PRId64 " for %" PRId64 " rows of %" PRId64 " requests", next_n, step_.rows, step_.requests);
  }
}

}  // namespace keysieve::io

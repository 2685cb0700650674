#include <cinttypes>

#include "io/step_loader.hpp"

namespace keysieve::io {

void StepLoader::index() {
  const FileTensor* q = row_tensor("index_q", {FileDType::bf16, FileDType::u8, FileDType::f8_e4m3}, {-1, -1},
                                   "STP-03 index_q is BF16 or U8 [rows, heads, dim]", Need::required);
  if (q == nullptr) return;
  step_.index_q = view(*q, 3);
  const std::int64_t heads = step_.index_q.shape[1];
  const std::int64_t dim = step_.index_q.shape[2];
  const bool fp8 = q->dtype != FileDType::bf16;
  const FileTensor* w = row_tensor("index_w", {FileDType::f32, FileDType::bf16}, {heads},
                                   "STP-03 index_w is F32 or BF16 [rows, heads]", Need::required);
  if (w == nullptr) return;
  step_.index_w = view(*w, 2);

  const bool paged = find("index_cache") != nullptr;
  if (paged == (find("index_k") != nullptr)) {
    return fail(kCompleteRule, "index_k", "%s",
                paged ? "both index_k and index_cache" : "neither index_k nor index_cache");
  }
  if (!paged) {
    const FileTensor* k = fp8 ? plain_tensor("index_k", {FileDType::u8, FileDType::f8_e4m3}, {-1, dim},
                                             "STP-03 index_k is U8 [keys, dim], as index_q")
                              : plain_tensor("index_k", {FileDType::bf16}, {-1, dim},
                                             "STP-03 index_k is BF16 [keys, dim], as index_q");
    if (k == nullptr) return;
    step_.index_k = view(*k, 2);
    if (fp8) {
      const FileTensor* scale = plain_tensor("index_k_scale", {FileDType::f32}, {k->shape[0]},
                                             "STP-03 index_k_scale is F32 [keys]", Need::required);
      if (scale != nullptr) step_.index_k_scale = view(*scale, 1);
    }
    return;
  }
  const FileTensor* cache = fp8 ? plain_tensor("index_cache", {FileDType::u8}, {-1, -1},
                                               "STP-03 an fp8 index_cache is U8 [pages, bytes of a page]")
                                : plain_tensor("index_cache", {FileDType::bf16}, {-1, -1, dim},
                                               "STP-03 a bf16 index_cache is BF16 [pages, page_tokens, dim]");
  if (cache == nullptr) return;
  step_.index_cache = view(*cache, static_cast<int>(cache->shape.size()));
  step_.index_page_tokens = fp8 ? metadata_.index_page_tokens.value_or(64) : cache->shape[1];
  if (fp8 && cache->shape[1] < step_.index_page_tokens * (dim + 4)) {
    return fail("STP-03 a page holds index_page_tokens * (dim + 4) bytes", "index_cache",
                "%s for %" PRId64 " tokens", cache->describe().c_str(), step_.index_page_tokens);
  }
  const char* table_name = find("index_page_table") != nullptr ? "index_page_table" : "page_table";
  const FileTensor* table = plain_tensor(table_name, {FileDType::i32}, {step_.requests, -1},
                                         "STP-03 page tables are I32 [requests, columns]", Need::required);
  if (table == nullptr) return;
  if (step_.rows_per_request == 0) {
    return fail("STP-04 paged keys need the same number of rows for every request", "q_start",
                "unequal numbers");
  }
  step_.index_page_table = view(*table, 2);
}

void StepLoader::candidates() {
  step_.block_size = metadata_.candidate_block.value_or(8);
  const char* name = find("candidate_blocks_in") != nullptr ? "candidate_blocks_in" : "candidate_blocks";
  const FileTensor* blocks =
      row_tensor(name, {FileDType::i32}, {-1}, "STP-03 candidate_blocks is I32 [rows, candidates]");
  if (failed()) return;
  if (blocks != nullptr) step_.candidates = view(*blocks, 2);
  const Role unsaid = blocks == nullptr ? Role::none : publishes_ ? Role::publish : Role::consume;
  step_.role = metadata_.role.value_or(unsaid);
  if (!step_.has_index) return;
  if (step_.role == Role::consume && blocks == nullptr) {
    return fail(kCompleteRule, "candidate_blocks", "no tensor of this name for a consumer");
  }
  step_.candidate_count =
      metadata_.candidate_count.value_or(blocks != nullptr ? step_.candidates.shape[1] : -1);
  if (step_.role == Role::publish && step_.candidate_count < 0) {
    return fail(kCompleteRule, "candidate_count", "no metadata and no candidate_blocks for a publisher");
  }
  if (step_.role == Role::publish && step_.candidate_count * step_.rows > Limits::kMaxRowEntries) {
    return fail(kLimitRule, "candidate_count", "%" PRId64 " for %" PRId64 " rows", step_.candidate_count,
                step_.rows);
  }
}

}  // namespace keysieve::io

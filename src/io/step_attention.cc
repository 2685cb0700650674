#include <algorithm>
#include <cinttypes>

#include "io/step_loader.hpp"

namespace keysieve::io {

void StepLoader::attention() {
  const FileTensor* q = row_tensor("mla_q", {FileDType::bf16}, {-1, -1},
                                   "STP-03 mla_q is BF16 [rows, heads, dim]", Need::required);
  if (q == nullptr) return;
  step_.mla_q = view(*q, 3);
  step_.heads = step_.mla_q.shape[1];
  step_.latent_dim = step_.mla_q.shape[2];
  if (step_.latent_dim != 576 && step_.latent_dim != 512) {
    return fail("STP-03 mla_q has 576 or 512 dims", "mla_q", "%s", q->describe().c_str());
  }
  if (!metadata_.softmax_scale) return fail(kCompleteRule, "softmax_scale", "no metadata of this name");
  step_.softmax_scale = *metadata_.softmax_scale;
  const FileTensor* sink =
      plain_tensor("attn_sink", {FileDType::f32}, {step_.heads}, "STP-03 attn_sink is F32 [heads]");
  if (sink != nullptr) step_.sink = view(*sink, 1);
  latent();
  if (failed()) return;
  const FileTensor* topk = row_tensor("topk", {FileDType::i32}, {-1}, "STP-03 topk is I32 [rows, k]");
  if (topk != nullptr) step_.selection = view(*topk, 2);
  if (!failed() && !step_.has_index && topk == nullptr) {
    fail(kCompleteRule, "topk", "no tensor of this name, and no index_q to select with");
  }
}

void StepLoader::latent() {
  LatentCache& latent = step_.latent;
  const bool paged = find("kv_cache") != nullptr;
  if (paged == (find("kv") != nullptr)) {
    return fail(kCompleteRule, "kv", "%s", paged ? "both kv and kv_cache" : "neither kv nor kv_cache");
  }
  if (paged) {
    const FileTensor* pool = plain_tensor("kv_cache", {FileDType::bf16}, {-1, -1, step_.latent_dim},
                                          "STP-03 kv_cache is BF16 [pages, page_tokens, dim of mla_q]");
    const char* table_name = find("kv_page_table") != nullptr ? "kv_page_table" : "page_table";
    const FileTensor* table = plain_tensor(table_name, {FileDType::i32}, {step_.requests, -1},
                                           "STP-03 page tables are I32 [requests, columns]", Need::required);
    if (failed()) return;
    if (pool->shape[1] < 1)
      return fail("STP-03 a page of kv_cache holds a token", "kv_cache", "%s", pool->describe().c_str());
    latent.pool = view(*pool, 3);
    latent.page_table = view(*table, 2);
    latent.form = LatentCache::Form::paged;
    return;
  }
  const FileTensor* kv = plain_tensor("kv", {FileDType::bf16}, {-1, step_.latent_dim},
                                      "STP-03 kv is BF16 [rows of the pool, dim of mla_q]");
  if (kv == nullptr) return;
  latent.pool = Tensor::dense(view(*kv, 2).data, DType::bf16, {kv->shape[0], 1, step_.latent_dim});
  latent.start = starts("kv_start", kv->shape[0]);
  if (failed()) return;
  if (latent.start.empty() && step_.requests > 1) {
    // Full rows lie as the index keys do.
    const FileTensor* index_k = find("index_k");
    if (index_k != nullptr && !index_k->shape.empty() && index_k->shape[0] == kv->shape[0]) {
      latent.start = starts("k_start", kv->shape[0]);
    }
    if (!failed() && latent.start.empty()) {
      return fail(kCompleteRule, "kv_start", "no tensor of this name for %" PRId64 " requests",
                  step_.requests);
    }
  }
  if (failed()) return;
  if (latent.start.empty()) latent.start = {0, kv->shape[0]};
  latent.form = LatentCache::Form::full;
  const FileTensor* kv_pos =
      plain_tensor("kv_pos", {FileDType::i32}, {kv->shape[0]}, "STP-03 kv_pos is I32 [rows of kv]");
  if (kv_pos != nullptr) compact_positions(*kv_pos);
}

void StepLoader::compact_positions(const FileTensor& kv_pos) {
  LatentCache& latent = step_.latent;
  latent.form = LatentCache::Form::compact;
  for (std::int64_t slot = 0; slot < latent.start.back(); ++slot) {
    latent.positions.emplace_back(kv_pos.as<std::int32_t>()[slot], slot);
  }
  for (std::size_t b = 0; b + 1 < latent.start.size(); ++b) {
    const auto first = latent.positions.begin() + latent.start[b];
    const auto last = latent.positions.begin() + latent.start[b + 1];
    std::sort(first, last);
    const auto twice =
        std::adjacent_find(first, last, [](const auto& a, const auto& c) { return a.first == c.first; });
    if (twice != last) {
      return fail("STP-10 no position of a request stands twice in kv_pos", "kv_pos",
                  "position %d of request %zu twice", twice->first, b);
    }
  }
}

}  // namespace keysieve::io

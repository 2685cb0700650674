// sparse_mla, as defined: list the row's keys, then attend to them head by head.
#include "keysieve/sparse_mla.hpp"

#include "reference/attention.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

struct Key {
  const Tensor* cache;
  std::int64_t page;
  std::int64_t token;
};

// MLA-19, MLA-20: slots outside the pool and entries past the length are not there.
void list_keys(const Tensor& cache, const Tensor& indices, const Tensor& lengths, std::int64_t row,
               std::vector<Key>& keys) {
  if (!indices.given()) return;
  std::int64_t count = indices.shape[1];
  if (lengths.given() && integer_at(lengths, row) < count) count = integer_at(lengths, row);
  const std::int64_t page_tokens = cache.shape[1];
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t slot = integer_at(indices, row, j);
    if (slot < 0 || slot >= cache.shape[0] * page_tokens) continue;
    keys.push_back({&cache, slot / page_tokens, slot % page_tokens});
  }
}

Status run(const SparseMlaArgs& a, const Launch&) {
  const std::int64_t heads = a.q.shape[1], dim = a.q.shape[2], columns = a.out.shape[2];
  for (std::int64_t row = 0; row < a.q.shape[0]; ++row) {
    std::vector<Key> keys;
    list_keys(a.cache, a.indices, a.lengths, row, keys);
    list_keys(a.extra_cache, a.extra_indices, a.extra_lengths, row, keys);
    for (std::int64_t head = 0; head < heads; ++head) {
      std::vector<double> score(keys.size(), 0.0);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        for (std::int64_t d = 0; d < dim; ++d)
          score[i] += double{real_at(a.q, row, head, d)} *
                      double{real_at(*keys[i].cache, keys[i].page, keys[i].token, d)};
        score[i] *= double{a.softmax_scale};
      }
      const Attended attended = attend(score, columns, [&](std::size_t i, std::int64_t c) {
        return double{real_at(*keys[i].cache, keys[i].page, keys[i].token, c)};
      });
      const double sink = a.sink.given() ? double{at<float>(a.sink, head)} : kNoKeys;
      const double share = attended.lse == kNoKeys ? 0.0 : sink_share(attended.lse, sink);
      for (std::int64_t c = 0; c < columns; ++c)
        set_real(a.out, static_cast<float>(attended.lse == kNoKeys ? 0.0 : attended.mean[c] * share), row,
                 head, c);
      if (a.lse.given()) at<float>(a.lse, row, head) = written_lse(attended.lse, a.lse_form, sink);
    }
  }
  return {};
}

}  // namespace

extern const Kernel<SparseMlaArgs> kSparseMlaKernels[] = {
    {"reference.sparse_mla", [](const SparseMlaArgs&) -> const char* { return nullptr; },
     [](const SparseMlaArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

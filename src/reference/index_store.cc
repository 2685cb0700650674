// index_store, as defined: token by token, byte by byte.
#include "keysieve/index_store.hpp"

#include <cstring>

#include "reference/access.hpp"
#include "reference/quantise.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

void store_fp8(const IndexStoreArgs& a, const std::vector<float>& x, unsigned char* page,
               std::int64_t place) {
  const Fp8Key key = quantise_fp8(x, 1e-4F, a.scale == KeyScale::ue8m0, a.reciprocal);
  const std::int64_t dim = a.keys.shape[1];
  for (std::int64_t d = 0; d < dim; ++d)
    page[place * dim + d] = static_cast<unsigned char>(key.codes[static_cast<std::size_t>(d)]);
  std::memcpy(page + a.page_tokens * dim + place * 4, &key.scale, sizeof(key.scale));
}

void store_mxfp4(const IndexStoreArgs& a, const std::vector<float>& x, unsigned char* page,
                 std::int64_t place) {
  const Mxfp4Key key = quantise_mxfp4(x, a.ties_down);
  const std::int64_t dim = a.keys.shape[1], groups = dim / 32;
  for (std::int64_t d = 0; d < dim; d += 2) {
    const auto at = static_cast<std::size_t>(d);
    page[(place * dim + d) / 2] = static_cast<unsigned char>(key.codes[at] | key.codes[at + 1] << 4);
  }
  for (std::int64_t g = 0; g < groups; ++g)
    page[a.page_tokens * dim / 2 + place * groups + g] =
        static_cast<unsigned char>(key.scales[static_cast<std::size_t>(g)]);
}

Status run(const IndexStoreArgs& a, const Launch&) {
  for (std::int64_t token = 0; token < a.keys.shape[0]; ++token) {
    const std::int64_t slot = integer_at(a.slots, token);
    if (slot < 0 || slot / a.page_tokens >= a.cache.shape[0]) continue;
    auto* page = static_cast<unsigned char*>(a.cache.data) + slot / a.page_tokens * a.cache.stride[0];
    std::vector<float> x;
    for (std::int64_t d = 0; d < a.keys.shape[1]; ++d) x.push_back(real_at(a.keys, token, d));
    if (a.format == KeyFormat::fp8)
      store_fp8(a, x, page, slot % a.page_tokens);
    else
      store_mxfp4(a, x, page, slot % a.page_tokens);
  }
  return {};
}

}  // namespace

extern const Kernel<IndexStoreArgs> kIndexStoreKernels[] = {
    {"reference.index_store", [](const IndexStoreArgs&) -> const char* { return nullptr; },
     [](const IndexStoreArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

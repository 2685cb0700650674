// cpu.index_store.slots: each task owns every n-th page and takes all tokens in order, so that of tokens that name one
// slot the last stays, whoever runs the tasks (IXS-16). Each token writes its own bytes and no others (IXS-15).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/denormals.hpp"
#include "cpu/parallel.hpp"
#include "cpu/quantise_key.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/index_store.hpp"

namespace keysieve::cpu {
namespace {

void store_fp8(const IndexStoreArgs& a, const float* key, unsigned char* page, std::int64_t place) {
  const std::int64_t dim = a.keys.shape[1];
  const float scale =
      quantise_fp8(key, dim, 1e-4f, a.scale == KeyScale::ue8m0, a.reciprocal, page + place * dim);
  std::memcpy(page + a.page_tokens * dim + place * 4, &scale, sizeof(scale));
}

void store_mxfp4(const IndexStoreArgs& a, const float* key, unsigned char* page, std::int64_t place) {
  const std::int64_t dim = a.keys.shape[1];
  quantise_mxfp4(key, dim, a.ties_down, page + place * dim / 2,
                 page + a.page_tokens * dim / 2 + place * dim / kScaleGroup);
}

const char* refuses(const IndexStoreArgs&) { return nullptr; }

std::size_t workspace_bytes(const IndexStoreArgs&, std::int32_t) { return 0; }

Status run(const IndexStoreArgs& a, const Launch& launch) {
  const std::int64_t tokens = a.keys.shape[0], pages = a.cache.shape[0];
  const std::int64_t tasks =
      std::clamp<std::int64_t>(launch.concurrency, 1, std::max<std::int64_t>(tokens / 16, 1));
  for_each_task(launch, tasks, [&](std::int64_t task, int) {
    const KeepDenormals keep_denormals;
    float key[kMostKeyDim];
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int64_t slot = load_int(a.slots, token);
      if (slot < 0) continue;  // IXS-17
      const std::int64_t page = slot / a.page_tokens;
      if (page >= pages || page % tasks != task) continue;
      load_floats(a.keys, token * a.keys.stride[0], a.keys.shape[1], key);
      auto* bytes = static_cast<unsigned char*>(a.cache.data) + page * a.cache.stride[0];
      const std::int64_t place = slot - page * a.page_tokens;
      if (a.format == KeyFormat::fp8)
        store_fp8(a, key, bytes, place);
      else
        store_mxfp4(a, key, bytes, place);
    }
  });
  return {};
}

}  // namespace

extern const Kernel<IndexStoreArgs> kIndexStoreKernels[] = {
    {"cpu.index_store.slots", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu

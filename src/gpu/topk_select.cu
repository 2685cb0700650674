// cuda.topk.select: a thread block a row; topk_select.cuh has the method.
#include <algorithm>

#include "gpu/kernels.hpp"
#include "gpu/topk_select.cuh"
#include "gpu/topk_select.hpp"

namespace keysieve::gpu {
namespace {

constexpr int kThreads = 512;

template <class Scores, bool kHeld, bool kListed, bool kDense>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor<kDense>)
    topk_select_kernel(const __grid_constant__ TopkParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  topk_select_row<Scores, kThreads, kHeld, kListed, kDense>(p, Solo{}, blockIdx.x, memory);
}

}  // namespace

const char* topk_select_refuses(const TopkArgs& a) {
  if (a.k > kSelectMaxK) return "k is above 4096";
  if (a.candidates.given() && a.candidates.shape[1] > kSelectMaxCandidates)
    return "a row lists more than 8192 candidate blocks";
  return nullptr;
}

void topk_select_plan(TopkParams& p, std::uint32_t parts, std::size_t shared_bytes) {
  p.parts = parts;
  p.capacity = p.k <= 512 ? 4096 : p.k <= 2048 ? 8192 : 12288;
  select_memory(p);
  while (p.capacity > 4096 && p.shared_bytes + kSelectStaticBytes > shared_bytes) {
    p.capacity -= 512;
    select_memory(p);
  }
  // The maximum of the right rank among 128 estimates a quantile to some 13 to 25 per cent, so aim well above
  // k.
  p.target = p.k <= 512 ? std::max(3 * p.k, 256u) : p.k + 1024 + p.k * 3 / 10;
  p.target = std::min(p.target, p.capacity * 3 / 4);
  p.hold = std::min(p.capacity, 2 * p.target);
}

const char* TopkSelect::refuses(const TopkArgs& a) {
  if (a.scores.shape[0] > kMaxInt32) return "2^31 rows or more";
  return topk_select_refuses(a);
}

std::size_t TopkSelect::workspace_bytes(const TopkArgs&, std::int32_t) { return 0; }

Status TopkSelect::run(const TopkArgs& a, const Launch& launch) {
  TopkParams p = topk_params(a);
  topk_select_plan(p, 1, device_facts(launch.device).shared_bytes);
  const Grid grid{static_cast<std::uint32_t>(p.rows), kThreads, p.shared_bytes, false};
  const bool dense = p.rows > device_facts(launch.device).processors;
  return select_variant(a, p, kThreads, [&](auto scores, auto held, auto listed) {
    using Scores = decltype(scores);
    if (dense && !listed.value)
      return launch_kernel("topk", launch, grid, topk_select_kernel<Scores, held.value, false, true>, p);
    return launch_kernel("topk", launch, grid, topk_select_kernel<Scores, held.value, listed.value, false>,
                         p);
  });
}

}  // namespace keysieve::gpu

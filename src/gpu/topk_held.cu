// cuda.topk.held: rows of up to 16,384 elements, each by one thread block that keeps all keys in registers.
//
// One read of the scores, a cut (topk_cut.cuh), one write. Threads: 512 up to 8,192 elements, so that two rows share
// a processor, else 1,024. Shared memory: 21 KiB and 4 bytes a place, by score up to 16 more, with candidates 32 KiB
// and 4 or 8 bytes for each. No workspace.
#include "gpu/device.hpp"
#include "gpu/kernels.hpp"
#include "gpu/topk_held.cuh"
#include "gpu/topk_variant.hpp"

namespace keysieve::gpu {
namespace {

struct HeldParams {
  TopkParams topk;
  HeldLayout layout;
};

template <class Scores, int kThreads, bool kListed>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    topk_held_kernel(const __grid_constant__ HeldParams params) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ CutMemory m;
  __shared__ HeldRow<Scores, kListed> held;
  __shared__ HeldMemory<kThreads> registers;
  CutBlock block = block_begin<kThreads>(m);
  block_begin_held(registers);
  block_begin_row<kThreads>(params.topk, params.layout, blockIdx.x, memory, held);
  block_select_held<kThreads>(params.topk, params.layout, blockIdx.x, held, memory, registers, block);
}

constexpr std::int64_t kMostElements = 1024 * kHeldKeys;

}  // namespace

const char* TopkHeld::refuses(const TopkArgs& a) {
  if (a.scores.shape[0] > kMaxInt32) return "2^31 rows or more";
  if (a.k > kHeldMaxK) return "k is above 4096";
  if (a.candidates.given() && a.candidates.shape[1] > kListMostEntries)
    return "a row lists more than 8192 candidate blocks";
  if (topk_elements(a) > kMostElements) return "rows may have more than 16,384 elements";
  if (held_layout(topk_params(a), ListLayout{}).bytes + kHeldStaticBytes >
      device_facts(a.scores.device).shared_bytes)
    return "the device has too little shared memory for this k and so many candidates";
  return nullptr;
}

std::size_t TopkHeld::workspace_bytes(const TopkArgs&, std::int32_t) { return 0; }

Status TopkHeld::run(const TopkArgs& a, const Launch& launch) {
  HeldParams p{topk_params(a), {}};
  p.layout = held_layout(p.topk, ListLayout{});
  const auto rows = static_cast<std::uint32_t>(p.topk.rows);
  return topk_variant(a, [&](auto scores, auto listed) {
    using Scores = decltype(scores);
    if (topk_elements(a) <= 512 * kHeldKeys)
      return launch_kernel("topk", launch, Grid{rows, 512, p.layout.bytes, false},
                           topk_held_kernel<Scores, 512, listed.value>, p);
    return launch_kernel("topk", launch, Grid{rows, 1024, p.layout.bytes, false},
                         topk_held_kernel<Scores, 1024, listed.value>, p);
  });
}

}  // namespace keysieve::gpu

// cuda.sm90.topk.cluster: a cluster of thread blocks a row, for few or long rows; gpu/topk_select.cuh has the
// method. sm_90: clusters of up to 16, whose thread blocks read each other's shared memory.
#include <algorithm>

#include "cuda/sm90/topk_cluster.hpp"
#include "gpu/topk_select.cuh"
#include "gpu/topk_select.hpp"

namespace keysieve::cuda {
namespace {

using namespace gpu;

struct Cluster {
  static constexpr bool kMany = true;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ static std::uint32_t rank(const TopkParams&) {
    std::uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
  }
  __device__ static void arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
  __device__ static void wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
  template <class T>
  __device__ static const T* of(const T* mine, std::uint32_t rank) {
    return static_cast<const T*>(__cluster_map_shared_rank(mine, rank));
  }
#else
  __device__ static std::uint32_t rank(const TopkParams&) { return 0; }
  __device__ static void arrive() {}
  __device__ static void wait() {}
  template <class T>
  __device__ static const T* of(const T* mine, std::uint32_t) {
    return mine;
  }
#endif
  __device__ static void sync() {
    arrive();
    wait();
  }
};

constexpr int kThreads = 512;

template <class Scores, bool kHeld, bool kListed>
__global__ void __launch_bounds__(kThreads, 1) topk_cluster_kernel(const __grid_constant__ TopkParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  topk_select_row<Scores, kThreads, kHeld, kListed, false>(p, Cluster{}, blockIdx.x / p.parts, memory);
}

template <class Kernel>
Status launch_cluster(const Launch& launch, Kernel* kernel, const TopkParams& p) {
  const CurrentDevice current(launch.device);
  if (current.error() != kSuccess) return device_error("topk", current.error());
  const std::size_t bytes = p.shared_bytes;
  Error error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == kSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
  if (error == kSuccess && p.parts > 8)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != kSuccess) return device_error("topk", error);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(p.rows) * p.parts);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = static_cast<StreamHandle>(launch.stream);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = p.parts;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelEx(&config, kernel, p);
  return error == kSuccess ? Status{} : device_error("topk", error);
}

// Measured on 132 processors: a thread block has a processor to itself, and a cluster waits until it fits
// into one group of 16 or 18 of them, so clusters of 4, 8 and 16 fill the last ones badly. A part of fewer
// than 16,384 scores costs more in meeting than it saves in reading.
std::uint32_t parts_for(const TopkArgs& a) {
  const std::int64_t rows = a.scores.shape[0], elements = topk_elements(a);
  const std::int64_t processors = device_facts(a.scores.device).processors;
  std::uint32_t parts = 1;
  while (parts < 16 && elements / (parts * 2) >= 16384 &&
         rows * parts * 2 <= processors - 4 * (2 * parts - 1))
    parts *= 2;
  return parts;
}

}  // namespace

const char* TopkCluster::refuses(const TopkArgs& a) {
  if (device_facts(a.scores.device).architecture < 90) return "the device has no thread block clusters";
  if (const char* refusal = topk_select_refuses(a)) return refusal;
  if (parts_for(a) == 1) return "one thread block a row is as fast";
  return nullptr;
}

std::size_t TopkCluster::workspace_bytes(const TopkArgs&, std::int32_t) { return 0; }

Status TopkCluster::run(const TopkArgs& a, const Launch& launch) {
  return run_in_parts(a, launch, parts_for(a));
}

Status TopkCluster::run_in_parts(const TopkArgs& a, const Launch& launch, std::uint32_t parts) {
  TopkParams p = topk_params(a);
  if (p.rows == 0) return {};
  topk_select_plan(p, parts, device_facts(launch.device).shared_bytes);
  return select_variant(a, p, kThreads, [&](auto scores, auto held, auto listed) {
    return launch_cluster(launch, topk_cluster_kernel<decltype(scores), held.value, listed.value>, p);
  });
}

}  // namespace keysieve::cuda

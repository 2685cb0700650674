// vendor: the only file that knows the names of CUDA and of HIP. Everything else says gpu::.
//
// Host part (any compiler): devices, memory, streams, graphs. Device part (nvcc, hipcc): the wave, which is a
// warp of 32 lanes on one vendor and may be 64 on another; code asks kWave and never writes the number.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime.h>
#define KEYSIEVE_VENDOR(name) hip##name
#else
#include <cuda_runtime_api.h>
#define KEYSIEVE_VENDOR(name) cuda##name
#endif

namespace keysieve::gpu {

using Error = KEYSIEVE_VENDOR(Error_t);
using StreamHandle = KEYSIEVE_VENDOR(Stream_t);
using EventHandle = KEYSIEVE_VENDOR(Event_t);
using GraphHandle = KEYSIEVE_VENDOR(Graph_t);
using GraphExecHandle = KEYSIEVE_VENDOR(GraphExec_t);

inline constexpr Error kSuccess = KEYSIEVE_VENDOR(Success);

inline const char* error_text(Error error) { return KEYSIEVE_VENDOR(GetErrorString)(error); }
// Forgets the last error, so that the caller's own checks do not find ours.
inline Error take_last_error() { return KEYSIEVE_VENDOR(GetLastError)(); }

inline Error device_count(int* count) { return KEYSIEVE_VENDOR(GetDeviceCount)(count); }
inline Error current_device(int* device) { return KEYSIEVE_VENDOR(GetDevice)(device); }
inline Error set_device(int device) { return KEYSIEVE_VENDOR(SetDevice)(device); }

// 0 where the driver does not answer.
enum class Attribute { processors, major, minor, shared_bytes };
inline int device_attribute(Attribute attribute, int device) {
#if defined(__HIP_PLATFORM_AMD__)
  constexpr hipDeviceAttribute_t kNames[] = {
      hipDeviceAttributeMultiprocessorCount, hipDeviceAttributeComputeCapabilityMajor,
      hipDeviceAttributeComputeCapabilityMinor, hipDeviceAttributeMaxSharedMemoryPerBlock};
#else
  constexpr cudaDeviceAttr kNames[] = {cudaDevAttrMultiProcessorCount, cudaDevAttrComputeCapabilityMajor,
                                       cudaDevAttrComputeCapabilityMinor,
                                       cudaDevAttrMaxSharedMemoryPerBlockOptin};
#endif
  int value = 0;
  const auto name = kNames[static_cast<int>(attribute)];
  return KEYSIEVE_VENDOR(DeviceGetAttribute)(&value, name, device) == kSuccess ? value : 0;
}

// For programs and tests; the library itself allocates nothing.
inline Error allocate(void** data, std::size_t bytes) { return KEYSIEVE_VENDOR(Malloc)(data, bytes); }
inline Error release(void* data) { return KEYSIEVE_VENDOR(Free)(data); }
inline Error copy_to_device(void* to, const void* from, std::size_t bytes) {
  return KEYSIEVE_VENDOR(Memcpy)(to, from, bytes, KEYSIEVE_VENDOR(MemcpyHostToDevice));
}
inline Error copy_to_host(void* to, const void* from, std::size_t bytes) {
  return KEYSIEVE_VENDOR(Memcpy)(to, from, bytes, KEYSIEVE_VENDOR(MemcpyDeviceToHost));
}
inline Error copy_on_device(void* to, const void* from, std::size_t bytes, StreamHandle stream) {
  return KEYSIEVE_VENDOR(MemcpyAsync)(to, from, bytes, KEYSIEVE_VENDOR(MemcpyDeviceToDevice), stream);
}
inline Error fill_bytes(void* data, int value, std::size_t bytes, StreamHandle stream = nullptr) {
  return KEYSIEVE_VENDOR(MemsetAsync)(data, value, bytes, stream);
}
inline Error synchronize() { return KEYSIEVE_VENDOR(DeviceSynchronize)(); }
inline Error synchronize(StreamHandle stream) { return KEYSIEVE_VENDOR(StreamSynchronize)(stream); }
inline Error make_stream(StreamHandle* stream) { return KEYSIEVE_VENDOR(StreamCreate)(stream); }
inline Error end_stream(StreamHandle stream) { return KEYSIEVE_VENDOR(StreamDestroy)(stream); }
inline Error begin_capture(StreamHandle stream) {
  return KEYSIEVE_VENDOR(StreamBeginCapture)(stream, KEYSIEVE_VENDOR(StreamCaptureModeGlobal));
}
inline Error end_capture(StreamHandle stream, GraphHandle* graph) {
  return KEYSIEVE_VENDOR(StreamEndCapture)(stream, graph);
}
inline Error instantiate(GraphExecHandle* exec, GraphHandle graph) {
  return KEYSIEVE_VENDOR(GraphInstantiateWithFlags)(exec, graph, 0);
}
inline Error replay(GraphExecHandle exec, StreamHandle stream) {
  return KEYSIEVE_VENDOR(GraphLaunch)(exec, stream);
}
inline void end_graph(GraphHandle graph, GraphExecHandle exec) {
  if (exec != nullptr) (void)KEYSIEVE_VENDOR(GraphExecDestroy)(exec);
  if (graph != nullptr) (void)KEYSIEVE_VENDOR(GraphDestroy)(graph);
}
inline Error make_event(EventHandle* event) { return KEYSIEVE_VENDOR(EventCreate)(event); }
inline Error end_event(EventHandle event) { return KEYSIEVE_VENDOR(EventDestroy)(event); }
inline Error record(EventHandle event, StreamHandle stream) {
  return KEYSIEVE_VENDOR(EventRecord)(event, stream);
}
inline Error synchronize(EventHandle event) { return KEYSIEVE_VENDOR(EventSynchronize)(event); }
inline Error elapsed_ms(float* ms, EventHandle from, EventHandle to) {
  return KEYSIEVE_VENDOR(EventElapsedTime)(ms, from, to);
}

}  // namespace keysieve::gpu

#if defined(__CUDACC__) || defined(__HIPCC__)

namespace keysieve::gpu {

#if defined(__HIP_PLATFORM_AMD__)
using LaneMask = std::uint64_t;
#if defined(__AMDGCN_WAVEFRONT_SIZE) && __AMDGCN_WAVEFRONT_SIZE == 32
inline constexpr int kWave = 32;
#else
inline constexpr int kWave = 64;
#endif
#else
using LaneMask = std::uint32_t;
inline constexpr int kWave = 32;
#endif
inline constexpr LaneMask kAllLanes = ~LaneMask{0};

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWave; }
__device__ inline int wave_id() { return static_cast<int>(threadIdx.x) / kWave; }
// Lanes before this one.
__device__ inline LaneMask lanes_before() { return (LaneMask{1} << lane_id()) - 1; }
__device__ inline int popcount(std::uint32_t bits) { return __popc(bits); }
__device__ inline int popcount(std::uint64_t bits) { return __popcll(bits); }
// The lowest set bit of a mask that has one.
__device__ inline int first_lane(std::uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }
__device__ inline int first_lane(std::uint64_t bits) { return __ffsll(static_cast<long long>(bits)) - 1; }

// All lanes of the wave call these together.
#if defined(__HIP_PLATFORM_AMD__)
__device__ inline LaneMask wave_ballot(bool holds) { return __ballot(holds); }
template <class T>
__device__ inline T wave_shuffle(T value, int lane) {
  return __shfl(value, lane);
}
template <class T>
__device__ inline T wave_shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask);
}
template <class T>
__device__ inline T wave_shuffle_up(T value, int distance) {
  return __shfl_up(value, static_cast<unsigned>(distance));
}
template <class T>
__device__ inline T wave_shuffle_down(T value, int distance) {
  return __shfl_down(value, static_cast<unsigned>(distance));
}
template <class Combine>
__device__ inline std::uint32_t wave_combine(std::uint32_t value, Combine combine) {
#pragma unroll
  for (int step = kWave / 2; step > 0; step /= 2) value = combine(value, wave_shuffle_xor(value, step));
  return value;
}
__device__ inline std::uint32_t wave_sum(std::uint32_t value) {
  return wave_combine(value, [](std::uint32_t a, std::uint32_t b) { return a + b; });
}
__device__ inline std::uint32_t wave_min(std::uint32_t value) {
  return wave_combine(value, [](std::uint32_t a, std::uint32_t b) { return a < b ? a : b; });
}
__device__ inline std::uint32_t wave_max(std::uint32_t value) {
  return wave_combine(value, [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; });
}
__device__ inline void wave_sync() { __builtin_amdgcn_wave_barrier(); }
#else
__device__ inline LaneMask wave_ballot(bool holds) { return __ballot_sync(kAllLanes, holds); }
template <class T>
__device__ inline T wave_shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <class T>
__device__ inline T wave_shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
template <class T>
__device__ inline T wave_shuffle_up(T value, int distance) {
  return __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(distance));
}
template <class T>
__device__ inline T wave_shuffle_down(T value, int distance) {
  return __shfl_down_sync(kAllLanes, value, static_cast<unsigned>(distance));
}
// sm_80 and newer: one instruction each.
__device__ inline std::uint32_t wave_sum(std::uint32_t value) { return __reduce_add_sync(kAllLanes, value); }
__device__ inline std::uint32_t wave_min(std::uint32_t value) { return __reduce_min_sync(kAllLanes, value); }
__device__ inline std::uint32_t wave_max(std::uint32_t value) { return __reduce_max_sync(kAllLanes, value); }
__device__ inline void wave_sync() { __syncwarp(); }
#endif

// One bit pattern for both zeros (+0), one for all NaNs (no sign, all other bits set).
__device__ inline float canonical(float x) {
#if defined(__HIP_PLATFORM_AMD__)
  return x != x ? __uint_as_float(0x7fffffffu) : x + 0.f;
#else
  return x + 0.f;  // results that are NaN have this pattern
#endif
}
// NaN where either is.
__device__ inline float max_or_nan(float a, float b) {
#if defined(__HIP_PLATFORM_AMD__)
  return a != a || a > b ? a : b;
#else
  float greater;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(a), "f"(b));
  return greater;
#endif
}

// Programmatic dependent launch, where the hardware has it (sm_90 and newer): the next kernel of a chain may
// start while this one runs, and waits before it reads what this one wrote.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// chained: may start before the kernel enqueued just before it has ended, which calls
// let_next_kernel_start(). most_shared_bytes: what the device gives one thread block, static memory included.
template <class... Parameters, class... Arguments>
Error enqueue(void (*kernel)(Parameters...), std::uint32_t blocks, std::uint32_t threads,
              std::size_t shared_bytes, std::size_t most_shared_bytes, bool chained, bool room_for_next,
              StreamHandle stream, Arguments&&... arguments) {
#if defined(__HIP_PLATFORM_AMD__)
  (void)most_shared_bytes;
  (void)chained;
  (void)room_for_next;
  kernel<<<dim3(blocks), dim3(threads), shared_bytes, stream>>>(Parameters(arguments)...);
  return take_last_error();
#else
  // 48 KiB, of which static shared memory takes its part.
  constexpr std::size_t kSharedWithoutAsking = 16 * 1024;
  if (chained || shared_bytes > kSharedWithoutAsking) {
    cudaFuncAttributes facts;
    Error error = cudaFuncGetAttributes(&facts, kernel);
    if (error != kSuccess) return error;
    // To the most there is, once: a limit that followed each call would be lowered by another thread's call
    // between here and the launch.
    if (shared_bytes > static_cast<std::size_t>(facts.maxDynamicSharedSizeBytes)) {
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(most_shared_bytes - facts.sharedSizeBytes));
      if (error != kSuccess) return error;
    }
    // Code for older architectures, which newer devices run as well, has no wait_for_previous_kernel().
    chained = chained && facts.ptxVersion >= 90;
  }
  if (room_for_next) {
    const Error error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                             cudaSharedmemCarveoutMaxShared);
    if (error != kSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = chained ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
#endif
}

}  // namespace keysieve::gpu

#endif

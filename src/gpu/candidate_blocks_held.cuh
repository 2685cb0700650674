// candidate_blocks_held: the selection half of cuda.candidate_blocks.radix for rows of up to 16,384 blocks in
// ascending order of ids: all keys of a row in the registers of one thread block.
#pragma once

#include "gpu/block_maxima.hpp"
#include "gpu/held_keys.cuh"

namespace keysieve::gpu {

inline constexpr std::int64_t kHeldMaxBlocks = 1024 * kHeldKeys;

struct HeldBlocksParams {
  const std::uint32_t* keys;
  std::int64_t key_row_stride, width;  // the stride is a multiple of 4
  RowBounds bounds;
  Divisor block_size;
  std::int32_t* candidates;
  std::int64_t list_row_stride, list_stride;
  std::uint32_t places;
  Faults faults;
};

__global__ void __launch_bounds__(1024, 1)
    candidate_blocks_held_kernel(const __grid_constant__ HeldBlocksParams p) {
  constexpr int kThreads = 1024, kVectors = kHeldKeys / 4;
  __shared__ CutMemory m;
  __shared__ HeldMemory<kThreads> registers;
  const std::uint32_t row = blockIdx.x;
  CutBlock block = block_begin<kThreads>(m);
  block_begin_held(registers);
  const RowRange visible = row_range(p.bounds, row, p.width);
  const auto live = static_cast<std::uint32_t>(visible.end - visible.start);
  const std::uint32_t blocks = live == 0 ? 0 : p.block_size.divide(live - 1) + 1;
  std::int32_t* list = p.candidates + row * p.list_row_stride;
  __syncthreads();
  wait_for_previous_kernel();
  std::uint32_t keys[kHeldKeys];
  const auto* fours = reinterpret_cast<const uint4*>(p.keys + row * p.key_row_stride);
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const std::uint32_t v = u * kThreads + threadIdx.x;
    const uint4 four = v * 4 < blocks ? fours[v] : make_uint4(0, 0, 0, 0);  // zeros fill the last four
    keys[u * 4] = four.x;
    keys[u * 4 + 1] = four.y;
    keys[u * 4 + 2] = four.z;
    keys[u * 4 + 3] = four.w;
  }
  const auto each = [&](auto&& f) {
#pragma unroll
    for (int i = 0; i < kHeldKeys; ++i) f(keys[i]);
  };
  // The newest block is no part of the contest and takes the last place.
  const std::uint32_t wanted = blocks > 0 ? p.places - 1 : 0;
  Cut cut{~0u, 0, true, 0};
  if (wanted > 0)
    cut = blocks > wanted ? block_cut<kThreads>(each, wanted, 1, ~0u, 0, block) : Cut{1, 0, false, 0};
  if (p.faults.on(kTieToLarger) && cut.partial) --cut.ties;
  std::uint32_t taken =
      block_pick_held<kThreads, 4>(keys, cut, registers, m, [&](std::uint32_t place, std::uint32_t id) {
        list[place * p.list_stride] = static_cast<std::int32_t>(p.faults.on(kIdOff) ? id + 1 : id);
      });
  if (blocks > 0) {
    if (threadIdx.x == 0) list[taken * p.list_stride] = static_cast<std::int32_t>(blocks - 1);
    ++taken;
  }
  for (std::uint32_t i = taken + threadIdx.x; i < p.places; i += kThreads) list[i * p.list_stride] = -1;
}

}  // namespace keysieve::gpu

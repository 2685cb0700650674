// topk_candidates: a list of candidate blocks, in any order and with repeats, as distinct blocks in order.
#pragma once

#include "gpu/block.hpp"
#include "gpu/topk_row.hpp"

namespace keysieve::gpu {

inline constexpr std::uint32_t kListBitmapWords = 4096;  // lists are sorted 131,072 ids at a time
inline constexpr std::uint32_t kListScratchBytes = kListBitmapWords * 8;
inline constexpr std::uint32_t kListMostEntries = 8192;

struct CandidateMemory {
  std::uint32_t waves[32];
  std::uint32_t listed;
};

// Most lists come from a selection: ascending, without repeats, -1 behind the end. One pass copies and judges.
template <int kThreads>
__device__ bool block_copy_candidates(const TopkParams& p, std::int64_t row, std::uint32_t live,
                                      std::uint32_t* blocks, std::uint32_t* places, CandidateMemory& m) {
  const std::uint32_t count = p.candidate_count;
  const std::int32_t* list = &p.candidates.at(row, 0);
  const std::int64_t stride = p.candidates.column_stride;
  if (threadIdx.x == 0) m.listed = 0;
  __syncthreads();
  bool ordered = true;
#pragma unroll 4
  for (std::uint32_t j = threadIdx.x; j < count; j += kThreads) {
    // A negative id is far above all others when read without its sign.
    const auto id = static_cast<std::uint32_t>(__ldg(list + j * stride));
    const auto next = j + 1 < count ? static_cast<std::uint32_t>(__ldg(list + (j + 1) * stride)) : ~0u;
    if (next < live) ordered = ordered && id < next;
    if (id >= live) continue;
    if (next >= live) atomicMax(&m.listed, j + 1);  // by one thread, if the list is ordered
    blocks[j] = id;
    if (places != nullptr) places[j] = j;
  }
  return __syncthreads_or(ordered ? 0 : 1) == 0;
}

// The distinct listed blocks below `live`, ascending, in blocks[]; their first places in the list in places[]
// where the scores are compact. Returns how many.
template <int kThreads>
__device__ std::uint32_t block_list_candidates(const TopkParams& p, std::int64_t row, std::uint32_t live,
                                               std::uint32_t* scratch, std::uint32_t* blocks,
                                               std::uint32_t* places, CandidateMemory& m) {
  if (block_copy_candidates<kThreads>(p, row, live, blocks, places, m)) return m.listed;
  constexpr std::uint32_t kRound = kListBitmapWords * 32;
  std::uint32_t* bitmap = scratch;
  std::uint32_t* prefix = scratch + kListBitmapWords;
  const std::uint32_t count = p.candidate_count;
  const std::int32_t* list = &p.candidates.at(row, 0);
  const std::int64_t stride = p.candidates.column_stride;
  if (places != nullptr)
    for (std::uint32_t j = threadIdx.x; j < count; j += kThreads) places[j] = ~0u;
  std::uint32_t found = 0;
  for (std::uint32_t first = 0; first < live; first += kRound) {
    const std::uint32_t ids = min(kRound, live - first);
    const std::uint32_t each = (ids + 32 * kThreads - 1) / (32 * kThreads);  // words of a thread
    for (std::uint32_t w = threadIdx.x; w < each * kThreads; w += kThreads) bitmap[w] = 0;
    __syncthreads();
    // Bit t: this thread's t-th entry is the first that named its block. At most 32 entries a thread.
    std::uint32_t named_first = 0, turn = 0;
#pragma unroll 4
    for (std::uint32_t j = threadIdx.x; j < count; j += kThreads) {
      const std::uint32_t id = static_cast<std::uint32_t>(__ldg(list + j * stride)) - first;
      const std::uint32_t bit = 1u << (id & 31);
      if (id < ids && (atomicOr(&bitmap[id >> 5], bit) & bit) == 0) named_first |= 1u << turn;
      ++turn;
    }
    __syncthreads();
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < each; ++i) sum += __popc(bitmap[threadIdx.x * each + i]);
    std::uint32_t total;
    std::uint32_t before = found + block_sum_before<kThreads>(sum, m.waves, total);
    for (std::uint32_t i = 0; i < each; ++i) {
      prefix[threadIdx.x * each + i] = before;
      before += __popc(bitmap[threadIdx.x * each + i]);
    }
    __syncthreads();
    turn = 0;
#pragma unroll 4
    for (std::uint32_t j = threadIdx.x; j < count; j += kThreads) {
      const std::uint32_t id = static_cast<std::uint32_t>(__ldg(list + j * stride)) - first;
      if (id < ids) {
        const std::uint32_t at = prefix[id >> 5] + __popc(bitmap[id >> 5] & ((1u << (id & 31)) - 1));
        if ((named_first >> turn & 1) != 0) blocks[at] = first + id;
        if (places != nullptr) atomicMin(&places[at], j);
      }
      ++turn;
    }
    found += total;
    __syncthreads();
  }
  return found;
}

}  // namespace keysieve::gpu

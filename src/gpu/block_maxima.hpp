// block_maxima: step 1 of cuda.candidate_blocks.radix, one key for each live block of each row.
//
//   aligned rows   a lane reads 16 bytes, neighbours reduce to a block by shuffles; four loads in flight
//   other rows     up to a wave of lanes per block, element by element, still coalesced
//
// A key of 0 means that the block must not be selected: -inf, dropped, or the newest, which needs no contest.
// Zeros follow the last key up to a multiple of four.
#pragma once

#include "gpu/divide.hpp"
#include "gpu/faults.hpp"
#include "gpu/row_range.hpp"
#include "gpu/score_key.hpp"
#include "keysieve/candidate_blocks.hpp"

namespace keysieve::gpu {

struct BlockMaximaParams {
  const char* scores;
  std::int64_t row_stride, column_stride, width;
  RowBounds bounds;
  Divisor block_size;
  Divisor parts;  // thread blocks per row
  NanPolicy nan;
  std::uint32_t* keys;
  std::int64_t key_row_stride;
  Faults faults;
};

enum BlocksFault { kBlockEarly, kStrideIgnored, kTieToLarger, kNewestNotPinned, kNanLost, kIdOff };

#if defined(__CUDACC__) || defined(__HIPCC__)

inline constexpr int kMaximaThreads = 256;

struct RunningMax {
  float max = -__builtin_huge_valf();
  bool nan = false;
  __device__ void add(float score) {
    max = fmaxf(max, score);  // takes the number if one is NaN
    nan = nan || score != score;
  }
  __device__ std::uint32_t key(NanPolicy policy) const {
    return nan && policy != NanPolicy::ignore ? kNanKey : score_key(max);
  }
};

__device__ inline std::uint32_t contest_key(std::uint32_t key, NanPolicy policy) {
  if (key <= kMinusInfinityKey) return 0;
  return key == kNanKey && policy == NanPolicy::drop ? 0 : key;
}

template <class Score, bool kUnitStride>
__global__ void __launch_bounds__(kMaximaThreads) block_maxima_kernel(const BlockMaximaParams p) {
  using Word = typename Score::Word;
  constexpr int kVector = Score::kPerVector;
  let_next_kernel_start();
  const std::uint32_t row = p.parts.divide(blockIdx.x);
  const std::uint32_t part = blockIdx.x - row * p.parts.value;
  const RowRange visible = row_range(p.bounds, row, p.width);
  const auto size = static_cast<std::int32_t>(visible.end - visible.start);
  if (size == 0) return;
  const std::int32_t block_size = static_cast<std::int32_t>(p.block_size.value);
  const auto blocks =
      static_cast<std::int32_t>(p.block_size.divide(static_cast<std::uint32_t>(size - 1))) + 1;
  const std::int32_t newest = p.faults.on(kNewestNotPinned) ? -1 : blocks - 1;
  constexpr std::int64_t kPartAlignment = 32;
  const std::int64_t part_blocks =
      (p.parts.divide64(blocks - 1) + kPartAlignment) / kPartAlignment * kPartAlignment;
  const std::int64_t first64 = part * part_blocks;
  if (first64 >= blocks) return;
  const auto first = static_cast<std::int32_t>(first64);
  const auto last = static_cast<std::int32_t>(min(first64 + part_blocks, std::int64_t{blocks}));
  const std::int64_t stride = p.faults.on(kStrideIgnored) ? 1 : p.column_stride;
  const Word* scores = reinterpret_cast<const Word*>(p.scores) + row * p.row_stride + visible.start * stride;
  std::uint32_t* keys = p.keys + row * p.key_row_stride;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const NanPolicy policy = p.faults.on(kNanLost) ? NanPolicy::ignore : p.nan;
  const std::int32_t live = p.faults.on(kBlockEarly) ? max(size - block_size, 0) : size;

  if (last == blocks && thread < 4 && blocks + thread < (blocks + 3) / 4 * 4) keys[blocks + thread] = 0;
  const std::int32_t lanes = block_size / kVector;  // per block, on the fast way
  const bool aligned = kUnitStride && block_size % kVector == 0 && lanes <= kWave &&
                       (lanes & (lanes - 1)) == 0 && reinterpret_cast<std::uintptr_t>(scores) % 16 == 0;
  if (aligned) {
    int lane_bits = 0;
    while ((1 << lane_bits) < lanes) ++lane_bits;
    const std::int32_t last_vector = last << lane_bits;
    const std::int32_t whole =
        min(last_vector, live / kVector);  // what follows the row's last column is not read
    constexpr int kInFlight = 4;
    for (std::int32_t base = first << lane_bits; base < last_vector; base += kInFlight * kMaximaThreads) {
      uint4 vectors[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int32_t v = base + i * kMaximaThreads + thread;
        if (v < whole) vectors[i] = reinterpret_cast<const uint4*>(scores)[v];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int32_t v = base + i * kMaximaThreads + thread;
        RunningMax running;
        if (v < whole) {
#pragma unroll
          for (int e = 0; e < kVector; ++e) running.add(Score::value(vectors[i], e));
        } else if (v < last_vector) {
          for (std::int32_t c = v * kVector; c < live; ++c) running.add(Score::value(scores[c]));
        }
        std::uint32_t key = running.key(policy);
        for (int step = lanes / 2; step > 0; step /= 2) key = max(key, wave_shuffle_xor(key, step));
        if (v < last_vector && (v & (lanes - 1)) == 0) {
          const std::int32_t block = v >> lane_bits;
          keys[block] = block == newest ? 0 : contest_key(key, policy);
        }
      }
    }
    return;
  }

  std::int32_t group = 1;  // lanes per block
  while (group * 2 <= min(block_size, kWave)) group *= 2;
  const std::int32_t groups = kMaximaThreads / group;
  for (std::int32_t base = first; base < last; base += groups) {
    const std::int32_t block = base + thread / group;
    RunningMax running;
    if (block < last) {
      const std::int64_t begin = std::int64_t{block} * block_size;
      const std::int64_t end = min(begin + block_size, std::int64_t{live});
      for (std::int64_t c = begin + thread % group; c < end; c += group)
        running.add(Score::value(scores[c * stride]));
    }
    std::uint32_t key = running.key(policy);
    for (int step = group / 2; step > 0; step /= 2) key = max(key, wave_shuffle_xor(key, step));
    if (block < last && thread % group == 0) keys[block] = block == newest ? 0 : contest_key(key, policy);
  }
}

#endif

}  // namespace keysieve::gpu

// cpu.candidate_mask.gaps: writes -inf over the gaps between listed blocks.
//
//   1. Mark the row's listed blocks, one byte a block, over the live blocks only. Bytes, not bits: neighbours
//      of a sorted list would wait for each other's bit in one word. An id that marks nothing goes to a byte
//      behind.
//   2. Where marks are dense and blocks are 16, 32 or 64 bytes, write every block; a kept block's store goes
//      to a scrap buffer instead, or AVX-512 masks it. No branch: a gap is often one or two blocks, and
//      mispredicting its end costs more than writing ten blocks.
//   3. Otherwise walk the marks; every run of unmarked blocks is one contiguous fill.
//
// Kept scores are never read nor written, so they keep their bits (MSK-09). Scratch: one byte a block of the
// widest row, per worker, of which a row clears only what its own live blocks need (MSK-12).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/candidate_mask_gaps.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "contract/mutant.hpp"
#include "contract/sizes.hpp"
#include "cpu/parallel.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/candidate_mask.hpp"

#ifndef KEYSIEVE_CPU_CANDIDATE_MASK_GAPS
#define KEYSIEVE_CPU_CANDIDATE_MASK_GAPS
namespace keysieve::cpu::candidate_mask_gaps {

// A block wider than the matrix covers what one as wide does, and sums with it cannot overflow.
inline std::int64_t block_columns(const CandidateMaskArgs& a) {
  return std::clamp<std::int64_t>(a.scores.shape[1], 1, a.block_size);
}

// Bytes of one worker's marks: every block, the place behind them, and a word for the walk to read past it.
inline std::size_t mark_bytes(const CandidateMaskArgs& a) {
  const std::int64_t blocks = (a.scores.shape[1] + block_columns(a) - 1) / block_columns(a);
  return static_cast<std::size_t>((blocks + 1 + 8 + 63) / 64 * 64);
}

}  // namespace keysieve::cpu::candidate_mask_gaps
#endif

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::candidate_mask_gaps::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Fewer than 2 * kLanes elements. Two stores that may overlap instead of a loop: a gap is often one block.
template <std::size_t kLanes, class T>
HWY_INLINE void fill_short(T* first, std::int64_t count, T value) {
  if constexpr (kLanes >= 1) {
    if (count < static_cast<std::int64_t>(kLanes)) return fill_short<kLanes / 2>(first, count, value);
    const hn::CappedTag<T, kLanes> d;
    const auto v = hn::Set(d, value);
    hn::StoreU(v, d, first);
    hn::StoreU(v, d, first + count - static_cast<std::int64_t>(kLanes));
  }
}

template <class T>
HWY_INLINE void fill(T* first, std::int64_t count, T value) {
  constexpr std::int64_t kLanes = HWY_LANES(T);
  if (count < kLanes) return fill_short<HWY_LANES(T) / 2>(first, count, value);
  const hn::ScalableTag<T> d;
  const auto v = hn::Set(d, value);
  for (std::int64_t i = 0; i < count - kLanes; i += kLanes) hn::StoreU(v, d, first + i);
  if (mutant("candidate_mask.fill_tail")) return;
  hn::StoreU(v, d, first + count - kLanes);
}

template <class T>
struct Row {
  T* scores;
  std::int64_t column_stride;
  T minus_infinity;

  HWY_INLINE void erase(std::int64_t first, std::int64_t last) const {
    if (first >= last) return;
    if (column_stride == 1) return fill(scores + first, last - first, minus_infinity);
    for (std::int64_t column = first; column < last; ++column)
      scores[column * column_stride] = minus_infinity;
  }
};

// First block at or after `block` that is marked, or not, at most `blocks`.
HWY_INLINE std::int64_t run_end(const std::uint8_t* marks, std::int64_t block, std::int64_t blocks,
                                bool marked) {
  const std::uint64_t other = marked ? 0 : ~std::uint64_t{0};
  for (; block < blocks; block += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, marks + block, 8);
    if (eight != other) return std::min(blocks, block + std::countr_zero(eight ^ other) / 8);
  }
  return blocks;
}

// 2. Writes blocks [0, blocks) of kBytes each.
template <std::size_t kBytes, class T>
HWY_INLINE void write_blocks(T* first, const std::uint8_t* marks, std::int64_t blocks, T value) {
  const hn::CappedTag<T, kBytes / sizeof(T)> d;
  constexpr std::size_t kStores = kBytes / sizeof(T) / HWY_MIN(HWY_LANES(T), kBytes / sizeof(T));
  const auto v = hn::Set(d, value);
  alignas(64) T scrap[kBytes / sizeof(T)];
  const auto to = reinterpret_cast<std::uintptr_t>(first);
  const auto aside = reinterpret_cast<std::uintptr_t>(scrap);
#pragma GCC unroll 8
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::uintptr_t own = to + static_cast<std::uintptr_t>(block) * kBytes;
    // 0 or all ones.
    const auto kept =
        static_cast<std::uintptr_t>(static_cast<std::intptr_t>(static_cast<std::int8_t>(marks[block])));
    T* at = reinterpret_cast<T*>(own + ((aside - own) & kept));
    for (std::size_t i = 0; i < kStores; ++i) hn::StoreU(v, d, at + i * hn::Lanes(d));
  }
}

#if HWY_TARGET == HWY_AVX3
// 2. Blocks of 8: a mark's 8 bits are the store's mask for the block's lanes, 2 or 4 blocks a store. Masked
// stores that miss the cache wait for each line: without the prefetch they ran at half the speed of write_blocks
// in memory, with it they are 1.1 times as fast there and in L3. A prefetch past the row's end changes nothing.
template <class T>
HWY_INLINE std::int64_t write_eights(T* first, const std::uint8_t* marks, std::int64_t blocks, T value) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kBlocks = HWY_LANES(T) / 8;
  const auto v = hn::Set(d, value);
  std::int64_t block = 0;
#pragma GCC unroll 4
  for (; block + kBlocks <= blocks; block += kBlocks) {
    hwy::Prefetch(reinterpret_cast<const char*>(first + block * 8) + 2048);
    hn::BlendedStore(v, hn::Not(hn::LoadMaskBits(d, marks + block)), d, first + block * 8);
  }
  return block;
}
#endif

// Writes what whole blocks it can, returns how many.
template <class T>
HWY_INLINE std::int64_t write_whole_blocks(const Row<T>& row, std::int64_t first, const std::uint8_t* marks,
                                           std::int64_t blocks, std::int64_t block_size) {
  if (row.column_stride != 1) return 0;
#if HWY_TARGET == HWY_AVX3
  if (block_size == 8) return write_eights(row.scores + first, marks, blocks, row.minus_infinity);
#endif
  switch (block_size * static_cast<std::int64_t>(sizeof(T))) {
    case 16:
      return write_blocks<16>(row.scores + first, marks, blocks, row.minus_infinity), blocks;
    case 32:
      return write_blocks<32>(row.scores + first, marks, blocks, row.minus_infinity), blocks;
    case 64:
      return write_blocks<64>(row.scores + first, marks, blocks, row.minus_infinity), blocks;
    default:
      return 0;
  }
}

template <class T>
void mask_row(const CandidateMaskArgs& a, std::int64_t row_index, std::uint8_t* marks, T minus_infinity) {
  const std::int64_t width = a.scores.shape[1], block_size = block_columns(a);
  const RowRange range = row_range(a.bounds, row_index, width);
  const std::int64_t column_stride = mutant("candidate_mask.column_stride") ? 1 : a.scores.stride[1];
  const Row<T> row{static_cast<T*>(a.scores.data) + row_index * a.scores.stride[0], column_stride,
                   minus_infinity};
  // MSK-06: blocks are anchored at the row's start, not at column 0.
  const std::int64_t anchor = mutant("candidate_mask.anchor") ? 0 : range.start;
  const std::int64_t blocks = (range.end - anchor + block_size - 1) / block_size;

  // 1. MSK-08, MSK-11: an id is compared, unsigned, with the blocks that a 31-bit id can name.
  const std::int64_t live = mutant("candidate_mask.partial_block") ? range.size() / block_size : blocks;
  const auto nameable = static_cast<std::uint32_t>(std::min(live, std::int64_t{1} << 31));
  std::memset(marks, 0, static_cast<std::size_t>(blocks) + 1);
  const auto* list = static_cast<const std::int32_t*>(a.candidates.data) + row_index * a.candidates.stride[0];
  std::int32_t greatest = -1;
  for (std::int64_t j = 0; j < a.candidates.shape[1]; ++j) {
    const std::int32_t block = list[j * a.candidates.stride[1]];
    marks[std::min(static_cast<std::uint32_t>(block), nameable)] = 0xff;
    greatest = std::max(greatest, block);
  }
  marks[nameable] = 0;
  // MSK-10: column width - 1 can only stay where the row sees it.
  const std::int64_t edge_block = (width - range.start + block_size - 1) / block_size;
  const bool sees_edge = range.size() > 0 && (range.end == width || mutant("candidate_mask.edge_unseen"));
  const std::int64_t last_erasable =
      a.edge && greatest >= 0 && greatest >= edge_block && sees_edge ? range.end - 1 : range.end;

  // MSK-07: what lies outside the write range is not touched.
  if (a.write_range != WriteRange::window) row.erase(0, range.start);
  // 2. A list of fewer than one in 32 blocks leaves gaps long enough to walk.
  std::int64_t block = 0;
  if (a.candidates.shape[1] >= blocks / 32)
    block = write_whole_blocks(row, anchor, marks, (last_erasable - anchor) / block_size, block_size);
  // 3.
  while (block < blocks) {
    const std::int64_t gap = run_end(marks, block, blocks, false);
    const std::int64_t next = run_end(marks, gap, blocks, true);
    row.erase(anchor + gap * block_size, std::min(last_erasable, anchor + next * block_size));
    block = next;
  }
  if (a.write_range == WriteRange::full) row.erase(range.end, width);
  if (mutant("candidate_mask.live_line")) row.erase(range.end, std::min(width, (range.end + 15) / 16 * 16));
}

void mask_rows(const CandidateMaskArgs& a, const Launch& launch) {
  const std::size_t slice = mark_bytes(a);
  for_each_task(launch, a.scores.shape[0], [&](std::int64_t row, int worker) {
    auto* marks = worker_scratch<std::uint8_t>(launch, worker, slice);
    if (a.scores.dtype == DType::bf16)
      mask_row<std::uint16_t>(a, row, marks, 0xff80);
    else
      mask_row<std::uint32_t>(a, row, marks, 0xff800000u);
  });
}

}  // namespace keysieve::cpu::candidate_mask_gaps::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {
namespace candidate_mask_gaps {
namespace {

HWY_EXPORT(mask_rows);

const char* refuses(const CandidateMaskArgs&) { return nullptr; }

std::size_t workspace_bytes(const CandidateMaskArgs& a, std::int32_t concurrency) {
  return size_product(mark_bytes(a), static_cast<std::size_t>(concurrency));
}

Status run(const CandidateMaskArgs& a, const Launch& launch) {
  HWY_DYNAMIC_DISPATCH(mask_rows)(a, launch);
  return {};
}

}  // namespace
}  // namespace candidate_mask_gaps

extern const Kernel<CandidateMaskArgs> kCandidateMaskKernels[] = {
    {"cpu.candidate_mask.gaps", candidate_mask_gaps::refuses, candidate_mask_gaps::workspace_bytes,
     candidate_mask_gaps::run}};

}  // namespace keysieve::cpu
#endif

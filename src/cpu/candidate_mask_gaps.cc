// cpu.candidate_mask.gaps: writes -inf over the gaps between listed blocks.
//
//   1. Mark the row's listed blocks in a bitmap, one bit a block, over the live blocks only.
//   2. Walk the bitmap; every run of unmarked blocks is one contiguous fill.
//
// Kept scores are never read nor written, so they keep their bits (MSK-09). The right choice for any list: a
// row of 16,384 blocks has a bitmap of 2 KB. Scratch: one bit a block of the widest row, per worker, of which
// a row clears only what its own live blocks need (MSK-12).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/candidate_mask_gaps.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "contract/mutant.hpp"
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

// Bytes of one worker's bitmap.
inline std::size_t bitmap_bytes(const CandidateMaskArgs& a) {
  const std::int64_t blocks = (a.scores.shape[1] + block_columns(a) - 1) / block_columns(a);
  return static_cast<std::size_t>((blocks + 63) / 64) * 8;
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

// First block at or after `block` whose bit differs from `marked`, at most `blocks`.
HWY_INLINE std::int64_t run_end(const std::uint64_t* bitmap, std::int64_t block, std::int64_t blocks,
                                bool marked) {
  while (block < blocks) {
    const std::uint64_t word = marked ? ~bitmap[block / 64] : bitmap[block / 64];
    const std::uint64_t rest = word >> (block % 64);
    if (rest != 0) return std::min(blocks, block + std::countr_zero(rest));
    block = (block / 64 + 1) * 64;
  }
  return blocks;
}

template <class T>
void mask_row(const CandidateMaskArgs& a, std::int64_t row_index, std::uint64_t* bitmap, T minus_infinity) {
  const std::int64_t width = a.scores.shape[1], block_size = block_columns(a);
  const RowRange range = row_range(a.bounds, row_index, width);
  const std::int64_t column_stride = mutant("candidate_mask.column_stride") ? 1 : a.scores.stride[1];
  const Row<T> row{static_cast<T*>(a.scores.data) + row_index * a.scores.stride[0], column_stride,
                   minus_infinity};
  // MSK-06: blocks are anchored at the row's start, not at column 0.
  const std::int64_t anchor = mutant("candidate_mask.anchor") ? 0 : range.start;
  const std::int64_t blocks = (range.end - anchor + block_size - 1) / block_size;
  std::memset(bitmap, 0, static_cast<std::size_t>((blocks + 63) / 64) * 8);

  // 1. MSK-08, MSK-11: every id is compared in 64 bits with the live blocks; the others mark nothing.
  const std::int64_t edge_block = (width - range.start + block_size - 1) / block_size;
  bool past_width = false;
  const auto* list = static_cast<const std::int32_t*>(a.candidates.data) + row_index * a.candidates.stride[0];
  const std::int64_t usable = mutant("candidate_mask.partial_block") ? range.size() / block_size : blocks;
  for (std::int64_t j = 0; j < a.candidates.shape[1]; ++j) {
    const std::int64_t block = list[j * a.candidates.stride[1]];
    if (block < 0) continue;
    if (block < usable) bitmap[block / 64] |= std::uint64_t{1} << (block % 64);
    past_width |= block >= edge_block;
  }
  // MSK-10: column width - 1 can only stay where the row sees it.
  const bool sees_edge = range.size() > 0 && (range.end == width || mutant("candidate_mask.edge_unseen"));
  const std::int64_t last_erasable = a.edge && past_width && sees_edge ? range.end - 1 : range.end;

  // 2. MSK-07: what lies outside the write range is not touched.
  if (a.write_range != WriteRange::window) row.erase(0, range.start);
  for (std::int64_t block = 0; block < blocks;) {
    const std::int64_t gap = run_end(bitmap, block, blocks, true);
    const std::int64_t next = run_end(bitmap, gap, blocks, false);
    row.erase(anchor + gap * block_size, std::min(last_erasable, anchor + next * block_size));
    block = next;
  }
  if (a.write_range == WriteRange::full) row.erase(range.end, width);
  if (mutant("candidate_mask.live_line")) row.erase(range.end, std::min(width, (range.end + 15) / 16 * 16));
}

void mask_rows(const CandidateMaskArgs& a, const Launch& launch) {
  const std::size_t slice = bitmap_bytes(a);
  for_each_task(launch, a.scores.shape[0], [&](std::int64_t row, int worker) {
    auto* bitmap = worker_scratch<std::uint64_t>(launch, worker, slice);
    if (a.scores.dtype == DType::bf16)
      mask_row<std::uint16_t>(a, row, bitmap, 0xff80);
    else
      mask_row<std::uint32_t>(a, row, bitmap, 0xff800000u);
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
  return bitmap_bytes(a) * static_cast<std::size_t>(concurrency);
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

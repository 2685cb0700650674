// cpu.candidate_mask.gaps: writes -inf over the gaps between listed blocks.
//
//   1. Mark the row's listed blocks in a bitmap, one bit a block, over the live blocks only.
//   2. Walk the bitmap; every run of unmarked blocks is one contiguous fill.
//
// Kept scores are never read nor written. Scratch: one bit a block of the widest row, per worker.
#include <algorithm>
#include <bit>
#include <cstring>

#include "contract/mutant.hpp"
#include "cpu/parallel.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/candidate_mask.hpp"

namespace keysieve::cpu {
namespace {

std::int64_t bitmap_words(const CandidateMaskArgs& a) {
  return (a.scores.shape[1] / a.block_size + 1 + 63) / 64;
}

// First block at or after `block` whose bit differs from `marked`, at most `blocks`.
std::int64_t run_end(const std::uint64_t* bitmap, std::int64_t block, std::int64_t blocks, bool marked) {
  while (block < blocks) {
    const std::uint64_t word = marked ? ~bitmap[block / 64] : bitmap[block / 64];
    const std::uint64_t rest = word >> (block % 64);
    if (rest != 0) return std::min(blocks, block + std::countr_zero(rest));
    block = (block / 64 + 1) * 64;
  }
  return blocks;
}

template <class T>
struct Row {
  T* scores;
  std::int64_t column_stride;
  T minus_infinity;

  void erase(std::int64_t first, std::int64_t last) const {
    if (first >= last) return;
    if (column_stride == 1) {
      std::fill(scores + first, scores + last, minus_infinity);
      return;
    }
    for (std::int64_t column = first; column < last; ++column)
      scores[column * column_stride] = minus_infinity;
  }
};

template <class T>
void mask_row(const CandidateMaskArgs& a, std::int64_t row_index, std::uint64_t* bitmap, T minus_infinity) {
  const std::int64_t width = a.scores.shape[1];
  const RowRange range = row_range(a.bounds, row_index, width);
  const Row<T> row{static_cast<T*>(a.scores.data) + row_index * a.scores.stride[0], a.scores.stride[1],
                   minus_infinity};
  const std::int64_t blocks = (range.size() + a.block_size - 1) / a.block_size;
  std::memset(bitmap, 0, static_cast<std::size_t>((blocks + 63) / 64) * 8);
  // MSK-07: the first block that lies wholly at or past the width.
  const std::int64_t edge_block = (width - range.start + a.block_size - 1) / a.block_size;
  bool keep_edge = false;
  const auto* list = static_cast<const std::int32_t*>(a.candidates.data) + row_index * a.candidates.stride[0];
  for (std::int64_t j = 0; j < a.candidates.shape[1]; ++j) {
    const std::int64_t block = list[j * a.candidates.stride[1]];
    if (block < 0) continue;
    if (block < blocks) bitmap[block / 64] |= std::uint64_t{1} << (block % 64);
    keep_edge = keep_edge || block >= edge_block;
  }
  keep_edge = keep_edge && a.edge && range.size() > 0 && range.end == width;
  const std::int64_t last_erasable = keep_edge ? range.end - 1 : range.end;

  if (a.write_range != WriteRange::window) row.erase(0, range.start);
  for (std::int64_t block = 0; block < blocks;) {
    const std::int64_t gap = run_end(bitmap, block, blocks, true);
    const std::int64_t next = run_end(bitmap, gap, blocks, false);
    row.erase(range.start + gap * a.block_size, std::min(last_erasable, range.start + next * a.block_size));
    block = next;
  }
  if (a.write_range == WriteRange::full) row.erase(range.end, width);
}

const char* refuses(const CandidateMaskArgs&) { return nullptr; }

std::size_t workspace_bytes(const CandidateMaskArgs& a, std::int32_t concurrency) {
  return static_cast<std::size_t>(bitmap_words(a)) * 8 * static_cast<std::size_t>(concurrency);
}

Status run(const CandidateMaskArgs& a, const Launch& launch) {
  const std::size_t slice = workspace_bytes(a, 1);
  for_each_task(launch, a.scores.shape[0], [&](std::int64_t row, int worker) {
    auto* bitmap = worker_scratch<std::uint64_t>(launch, worker, slice);
    if (a.scores.dtype == DType::bf16)
      mask_row<std::uint16_t>(a, row, bitmap, 0xff80);
    else
      mask_row<std::uint32_t>(a, row, bitmap, 0xff800000u);
  });
  return {};
}

}  // namespace

extern const Kernel<CandidateMaskArgs> kCandidateMaskKernels[] = {
    {"cpu.candidate_mask.gaps", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu

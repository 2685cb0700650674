// cuda.candidate_mask.bitmap: flags and -inf in one launch.
//
//   1. A row's write range is cut into as many parts as the grid has for each row, on 128-byte borders.
//   2. The thread block of a part reads the row's list once and marks, one bit a block, the listed blocks
//      that touch its part. A part with more blocks than the bitmap holds takes several turns.
//   3. It walks its part in 16-byte vectors: all kept, nothing; all dropped, one store; else single stores.
//
// The grid comes from shapes; each row's end is read on the device, so parts beyond it leave at once and
// nothing past it is touched. Kept scores are never read nor written. Shared memory: 16 KiB. No workspace.
#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/divide.hpp"
#include "gpu/faults.hpp"
#include "gpu/kernels.hpp"
#include "gpu/row_range.hpp"
#include "gpu/tuning.hpp"

namespace keysieve::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kBitmapWords = 4096;
constexpr std::int64_t kBitmapBlocks = std::int64_t{kBitmapWords} * 32;
constexpr std::int64_t kMaxTurnColumns = std::int64_t{1} << 30;  // offsets inside a turn fit 31 bits
constexpr int kPartAlignment = 8;                                // vectors: 128 bytes, a cache line

enum Fault { kTileEarly, kNoColumnStride, kOneBitOff, kLiveTile, kNoEdge };

struct MaskParams {
  char* scores;
  std::int64_t row_stride, column_stride, width;
  const std::int32_t* candidates;
  std::int64_t list_row_stride, list_stride, list_size;
  RowBounds bounds;
  Divisor block_size;
  Divisor parts;
  WriteRange write_range;
  bool edge;
  Faults faults;
};

// f32 and bf16 as raw words: masking never looks at a value.
struct F32Words {
  using Word = std::uint32_t;
  static constexpr Word kMinusInfinity = 0xff800000u;
  static constexpr std::uint32_t kVectorWord = 0xff800000u;
};
struct Bf16Words {
  using Word = std::uint16_t;
  static constexpr Word kMinusInfinity = 0xff80u;
  static constexpr std::uint32_t kVectorWord = 0xff80ff80u;
};

// The first vectors of a list, asked for before anything else: their latency hides behind that of the bounds.
// 2048 candidates are read by now.
struct FirstIds {
  static constexpr int kVectors = 2;
  int4 ids[kVectors];
  bool vectors;  // the list is contiguous and aligned
};

__device__ FirstIds block_read_first_ids(const MaskParams& p, std::uint32_t row) {
  const std::int32_t* list = p.candidates + row * p.list_row_stride;
  FirstIds first;
  first.vectors = p.list_stride == 1 && reinterpret_cast<std::uintptr_t>(list) % 16 == 0;
#pragma unroll
  for (int i = 0; i < FirstIds::kVectors; ++i) {
    const std::int64_t v = i * kThreads + static_cast<int>(threadIdx.x);
    first.ids[i] = first.vectors && v < p.list_size / 4 ? reinterpret_cast<const int4*>(list)[v]
                                                        : make_int4(-1, -1, -1, -1);
  }
  return first;
}

// Marks the listed blocks of [first, first + blocks) and tells whether any list entry is at or past `beyond`.
__device__ bool block_mark_listed(const MaskParams& p, std::uint32_t row, const FirstIds& first_ids,
                                  std::int64_t first, int blocks, std::int64_t beyond,
                                  std::uint32_t* bitmap) {
  const std::int32_t* list = p.candidates + row * p.list_row_stride;
  bool past = false;
  // Ids, the turn's first block and its size are below 2^31, so negative ids wrap to offsets that are too
  // large.
  const auto first32 = static_cast<std::uint32_t>(first);
  const auto blocks32 = static_cast<std::uint32_t>(blocks);
  const auto beyond32 = static_cast<std::int32_t>(min(beyond, kMaxInt32));
  const auto mark = [&](std::int32_t id) {
    const std::uint32_t offset = static_cast<std::uint32_t>(id) - first32;
    if (id >= 0 && offset < blocks32) atomicOr(&bitmap[offset >> 5], 1u << (offset & 31u));
    past = past || id >= beyond32;
  };
  if (first_ids.vectors) {
    const auto mark_vector = [&](const int4& ids) {
      mark(ids.x);
      mark(ids.y);
      mark(ids.z);
      mark(ids.w);
    };
#pragma unroll
    for (int i = 0; i < FirstIds::kVectors; ++i) mark_vector(first_ids.ids[i]);
    const std::int64_t vectors = p.list_size / 4;
    for (std::int64_t v = FirstIds::kVectors * kThreads + threadIdx.x; v < vectors; v += kThreads)
      mark_vector(reinterpret_cast<const int4*>(list)[v]);
    for (std::int64_t j = vectors * 4 + threadIdx.x; j < p.list_size; j += kThreads) mark(list[j]);
  } else {
    for (std::int64_t j = threadIdx.x; j < p.list_size; j += kThreads) mark(list[j * p.list_stride]);
  }
  return past;
}

template <class Words, bool kUnitStride>
__global__ void __launch_bounds__(kThreads) candidate_mask_bitmap_kernel(const MaskParams p) {
  using Word = typename Words::Word;
  constexpr int kVector = kUnitStride ? 16 / static_cast<int>(sizeof(Word)) : 1;
  __shared__ std::uint32_t bitmap[kBitmapWords];

  const std::uint32_t row = p.parts.divide(blockIdx.x);
  const std::uint32_t part = blockIdx.x - row * p.parts.value;
  const FirstIds first_ids = block_read_first_ids(p, row);
  const RowRange visible = row_range(p.bounds, row, p.width);
  std::int64_t write_first = p.write_range == WriteRange::window ? visible.start : 0;
  std::int64_t write_last = p.write_range == WriteRange::full ? p.width : visible.end;
  if (p.faults.on(kLiveTile) && write_last < p.width) ++write_last;

  // 1. Vectors are counted from the aligned address at or before column 0, so vector u starts at column
  //    u * kVector - misaligned.
  Word* scores = reinterpret_cast<Word*>(p.scores) + row * p.row_stride;
  const int misaligned =
      static_cast<int>((reinterpret_cast<std::uintptr_t>(scores) / sizeof(Word)) % kVector);
  const std::int64_t first_vector = (write_first + misaligned) / kVector;
  const std::int64_t vectors = (write_last + misaligned + kVector - 1) / kVector - first_vector;
  // Divisions of 64 bits would take longer than a short row's whole mask.
  std::int64_t part_vectors = vectors <= 0 ? 0 : p.parts.divide64(vectors - 1) + 1;
  part_vectors = (part_vectors + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  const std::int64_t part_first =
      max((first_vector + part * part_vectors) * kVector - misaligned, write_first);
  const std::int64_t part_last =
      min((first_vector + (part + 1) * part_vectors) * kVector - misaligned, write_last);
  if (write_first >= write_last || part_first >= part_last) return;

  const std::uint32_t block_size = p.block_size.value;
  // The first block that begins at or past the width, for the edge rule (MSK-10).
  const std::int64_t edge_block =
      p.width > visible.start ? p.block_size.divide64(p.width - visible.start - 1) + 1 : 0;
  const std::int64_t most_columns = min(kMaxTurnColumns, (kBitmapBlocks - 2) * block_size);

  for (std::int64_t turn_first = part_first; turn_first < part_last;) {
    std::int64_t turn_last = min(part_last, turn_first + most_columns);
    if (turn_last < part_last)  // stay on vector borders between turns
      turn_last = (turn_last + misaligned) / kVector * kVector - misaligned;

    // 2. Columns before `origin` lie in no block of this turn; origin is a block's first column.
    const std::int64_t seen_first = max(turn_first, visible.start);
    const std::int64_t seen_last = min(turn_last, visible.end);
    bool keep_edge = false;
    std::int64_t origin = turn_first;
    if (seen_first < seen_last) {
      const std::int64_t first_block = p.block_size.divide64(seen_first - visible.start);
      const int blocks =
          static_cast<int>(p.block_size.divide64(seen_last - 1 - visible.start) - first_block) + 1;
      origin = visible.start + first_block * block_size;
      for (int w = static_cast<int>(threadIdx.x); w < (blocks + 31) / 32; w += kThreads) bitmap[w] = 0;
      __syncthreads();
      const bool past = block_mark_listed(p, row, first_ids, first_block, blocks, edge_block, bitmap);
      keep_edge = __syncthreads_or(past ? 1 : 0) != 0 && p.edge && !p.faults.on(kNoEdge);
    }

    // 3. Offsets from `origin`; they are negative before the row's start.
    const int seen_from = static_cast<int>(seen_first < seen_last ? seen_first - origin : 0);
    const int seen_to = static_cast<int>(seen_first < seen_last ? seen_last - origin : 0);
    const int edge_offset =
        keep_edge && p.width - 1 < seen_last ? static_cast<int>(p.width - 1 - origin) : -1;
    const auto stays = [&](int offset) {
      if (offset < seen_from || offset >= seen_to) return false;
      std::uint32_t block = p.block_size.divide(static_cast<std::uint32_t>(offset));
      if (p.faults.on(kOneBitOff)) block ^= 1;
      return ((bitmap[block >> 5] >> (block & 31u)) & 1u) != 0 || offset == edge_offset;
    };
    const int from = static_cast<int>(turn_first - origin);
    const int to = static_cast<int>(turn_last - origin) - (p.faults.on(kTileEarly) ? 1 : 0);
    if constexpr (kVector == 1) {
      const std::int64_t stride = p.faults.on(kNoColumnStride) ? 1 : p.column_stride;
      for (int v = static_cast<int>(threadIdx.x); v < to - from; v += kThreads)
        if (!stays(from + v)) scores[(origin + from + v) * stride] = Words::kMinusInfinity;
    } else {
      // Whole vectors share a block if blocks begin on vector borders.
      const bool one_block = block_size % kVector == 0 && (origin + misaligned) % kVector == 0;
      const int before = static_cast<int>((turn_first + misaligned) % kVector);
      Word* turn_scores = scores + origin;
      const int turn_vectors = (to - from + before + kVector - 1) / kVector;
      for (int v = static_cast<int>(threadIdx.x); v < turn_vectors; v += kThreads) {
        const int offset = from - before + v * kVector;
        const bool whole = offset >= from && offset <= to - kVector;
        if (whole && one_block && offset >= seen_from && offset <= seen_to - kVector && edge_offset < 0) {
          const std::uint32_t block = p.block_size.divide(static_cast<std::uint32_t>(offset));
          if (((bitmap[block >> 5] >> (block & 31u)) & 1u) == 0)
            *reinterpret_cast<uint4*>(turn_scores + offset) =
                make_uint4(Words::kVectorWord, Words::kVectorWord, Words::kVectorWord, Words::kVectorWord);
          continue;
        }
        std::uint32_t kept = 0;
        if (offset > seen_from - kVector && offset < seen_to)
#pragma unroll
          for (int i = 0; i < kVector; ++i) kept |= (stays(offset + i) ? 1u : 0u) << i;
        if (whole && kept == 0) {
          *reinterpret_cast<uint4*>(turn_scores + offset) =
              make_uint4(Words::kVectorWord, Words::kVectorWord, Words::kVectorWord, Words::kVectorWord);
          continue;
        }
        for (int i = 0; i < kVector; ++i)
          if (((kept >> i) & 1u) == 0 && offset + i >= from && offset + i < to)
            turn_scores[offset + i] = Words::kMinusInfinity;
      }
    }
    turn_first = turn_last;
    if (turn_first < part_last) __syncthreads();
  }
}

std::int64_t parts_per_row(const CandidateMaskArgs& a, const Tuning& t, int processors) {
  const std::int64_t rows = std::max<std::int64_t>(a.scores.shape[0], 1);
  const std::int64_t wanted = (std::int64_t{t.mask_blocks_per_processor} * processors + rows - 1) / rows;
  const std::int64_t most = (a.scores.shape[1] + t.mask_min_columns - 1) / t.mask_min_columns;
  return std::max<std::int64_t>(1, std::min({wanted, most, std::int64_t{t.mask_max_parts}}));
}

}  // namespace

const char* CandidateMaskBitmap::refuses(const CandidateMaskArgs& a) {
  if (a.scores.shape[1] > kMaxInt32) return "more than 2^31 - 1 columns";
  if (a.scores.shape[0] > kMaxInt32 / 4096) return "more than 2^19 rows";
  return nullptr;
}

std::size_t CandidateMaskBitmap::workspace_bytes(const CandidateMaskArgs&, std::int32_t) { return 0; }

Status CandidateMaskBitmap::run(const CandidateMaskArgs& a, const Launch& launch) {
  const DeviceFacts& facts = device_facts(launch.device);
  if (a.scores.elements() == 0) return {};
  const std::int64_t parts = parts_per_row(a, tuning(facts.architecture), facts.processors);
  MaskParams p{};
  p.scores = static_cast<char*>(a.scores.data);
  p.row_stride = a.scores.stride[0];
  p.column_stride = a.scores.stride[1];
  p.width = a.scores.shape[1];
  p.candidates = static_cast<const std::int32_t*>(a.candidates.data);
  p.list_row_stride = a.candidates.stride[0];
  p.list_stride = a.candidates.stride[1];
  p.list_size = a.candidates.shape[1];
  p.bounds = row_bounds(a.bounds);
  // A block wider than the matrix is the same as one of its width.
  p.block_size = Divisor(static_cast<std::uint32_t>(std::min(a.block_size, p.width)));
  p.parts = Divisor(static_cast<std::uint32_t>(parts));
  p.write_range = a.write_range;
  p.edge = a.edge;
  p.faults = active_fault({"gpu.candidate_mask.tile_early", "gpu.candidate_mask.no_column_stride",
                           "gpu.candidate_mask.one_bit_off", "gpu.candidate_mask.live_tile",
                           "gpu.candidate_mask.no_edge"});
  const bool unit = p.column_stride == 1 || p.width == 1;
  const bool narrow = a.scores.dtype == DType::bf16;
  const auto kernel = narrow ? (unit ? candidate_mask_bitmap_kernel<Bf16Words, true>
                                     : candidate_mask_bitmap_kernel<Bf16Words, false>)
                             : (unit ? candidate_mask_bitmap_kernel<F32Words, true>
                                     : candidate_mask_bitmap_kernel<F32Words, false>);
  const Grid grid{static_cast<std::uint32_t>(a.scores.shape[0] * parts), kThreads, 0, false};
  return launch_kernel("candidate_mask", launch, grid, kernel, p);
}

}  // namespace keysieve::gpu

// cuda.candidate_mask.bitmap: flags and -inf in one launch.
//
//   1. A row's write range is cut into as many parts as the grid has for each row, on 128-byte borders. One
//      wave of a part's thread block works out where the part lies, in 32 bits; the others meanwhile ask for
//      the row's list and clear the bitmap.
//   2. The thread block reads the list once and marks, one bit a block, the listed blocks that touch its part.
//   3. It walks its part in 16-byte vectors: all kept, nothing; all dropped, one store; else single stores.
//
// The grid comes from shapes; each row's end is read on the device, so parts beyond it leave at once and
// nothing past it is touched. Kept scores are never read nor written. A long row keeps the stores busy and a
// short one costs a launch and the list, so what counts is the instructions before the first store: they are
// executed by every wave of every part. Shared memory: a bit for each block of a part, at most 16 KiB; a wide
// row of small blocks gets more parts. No workspace.
#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/kernels.hpp"
#include "gpu/mask_part.hpp"
#include "gpu/tuning.hpp"

namespace keysieve::gpu {
namespace {

using namespace mask_part;  // NOLINT: this file is where it belongs

constexpr std::int64_t kMaxBitmapBlocks = 4096 * 32;
constexpr std::int64_t kMostParts = 4096;  // of a row, if their blocks fit the bitmap

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

template <class Words, bool kUnitStride>
__global__ void __launch_bounds__(kThreads) candidate_mask_bitmap_kernel(const MaskParams p) {
  using Word = typename Words::Word;
  constexpr int kVector = kUnitStride ? 16 / static_cast<int>(sizeof(Word)) : 1;
  extern __shared__ uint4 shared_bitmap[];
  __shared__ Part shared_part;
  auto* bitmap = reinterpret_cast<std::uint32_t*>(shared_bitmap);

  // 1.
  const std::uint32_t row = p.parts.divide(blockIdx.x);
  const FirstIds first_ids = block_read_first_ids(p, row);
  Word* scores = reinterpret_cast<Word*>(p.scores) + row * p.row_stride;
  const auto misaligned =
      static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(scores) / sizeof(Word)) % kVector;
#pragma unroll 1
  for (std::uint32_t v = threadIdx.x; v < p.bitmap_words / 4; v += kThreads)
    shared_bitmap[v] = make_uint4(0, 0, 0, 0);
  if (wave_id() == 0) {
    const Part g = row_part<kVector>(p, row, blockIdx.x - row * p.parts.value, misaligned);
    if (lane_id() == 0) shared_part = g;
  }
  __syncthreads();
  const Part g = shared_part;
  if (g.first_vector >= g.last_vector) return;

  // 2.
  if (g.blocks != 0) block_for_each_id(p, row, first_ids, Marker{g.first_block, g.blocks, bitmap});
  std::uint32_t edge = kNoEdge;  // the position that stays beside the listed blocks
  if (g.edge_block == kNoEdge) {
    __syncthreads();
  } else {
    Finder past{static_cast<std::int32_t>(g.edge_block)};
    block_for_each_id(p, row, first_ids, past);
    if (__syncthreads_or(past.found ? 1 : 0) != 0) edge = g.seen_to - 1;
  }

  // 3.
  const auto listed = [&](std::uint32_t position) {
    std::uint32_t block = p.block_size.divide(position - g.origin);
    if (p.faults.on(kOneBitOff)) block ^= 1;
    return ((bitmap[block >> 5] >> (block & 31u)) & 1u) != 0;
  };
  const auto stays = [&](std::uint32_t position) {
    return position >= g.seen_from && position < g.seen_to && (position == edge || listed(position));
  };
  const std::uint32_t to = g.to - (p.faults.on(kTileEarly) ? 1 : 0);
  if constexpr (kVector == 1) {
    const std::int64_t stride = p.faults.on(kNoColumnStride) ? 1 : p.column_stride;
#pragma unroll 2
    for (std::uint32_t c = g.from + threadIdx.x; c < to; c += kThreads)
      if (!stays(c)) scores[c * stride] = Words::kMinusInfinity;
  } else {
    auto* vectors = reinterpret_cast<uint4*>(scores - misaligned);
    const uint4 dropped =
        make_uint4(Words::kVectorWord, Words::kVectorWord, Words::kVectorWord, Words::kVectorWord);
    // Vectors [plain_from, plain_to) lie in the bounds and touch at most two blocks.
    const std::uint32_t block_size = p.block_size.value;
    std::uint32_t plain_from = (g.seen_from + kVector - 1) / kVector, plain_to = min(g.seen_to, to) / kVector;
    if (edge != kNoEdge) plain_to = min(plain_to, edge / kVector);
    if (block_size < kVector || plain_from >= plain_to) plain_from = plain_to = g.first_vector;
    const bool one_block = block_size % kVector == 0 && g.origin % kVector == 0;
    const auto drop_elements = [&](std::uint32_t v) {
      auto* elements = reinterpret_cast<Word*>(vectors + v);
#pragma unroll 1
      for (int i = 0; i < kVector; ++i) {
        const std::uint32_t position = v * kVector + i;
        if (position >= g.from && position < to && !stays(position)) elements[i] = Words::kMinusInfinity;
      }
    };
    if (one_block) {
#pragma unroll 4
      for (std::uint32_t v = plain_from + threadIdx.x; v < plain_to; v += kThreads)
        if (!listed(v * kVector)) vectors[v] = dropped;
    } else {
#pragma unroll 2
      for (std::uint32_t v = plain_from + threadIdx.x; v < plain_to; v += kThreads) {
        const bool first = listed(v * kVector), last = listed(v * kVector + kVector - 1);
        if (!first && !last)
          vectors[v] = dropped;
        else if (first != last)
          drop_elements(v);
      }
    }
    // The others: at the borders, out of bounds, or of tiny blocks.
    const std::uint32_t before = plain_from - g.first_vector;
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < before + g.last_vector - plain_to; i += kThreads) {
      const std::uint32_t v = i < before ? g.first_vector + i : plain_to + (i - before);
      const std::uint32_t position = v * kVector;
      const bool unseen = position + kVector <= g.seen_from || position >= g.seen_to;
      if (unseen && position >= g.from && position + kVector <= to)
        vectors[v] = dropped;
      else
        drop_elements(v);
    }
  }
}

// A part's vectors are rounded up to kPartAlignment, and its row may begin and end inside one of at most 8
// columns. Its blocks may begin and end outside it.
constexpr std::int64_t kRounding = 16 * 8;
std::int64_t part_blocks(const CandidateMaskArgs& a, std::int64_t parts) {
  return std::max(a.scores.shape[1] / parts + kRounding, std::int64_t{kThreads} * 8) / a.block_size + 2;
}
// So that the blocks of a part fit the bitmap.
std::int64_t least_parts(const CandidateMaskArgs& a) {
  if (part_blocks(a, 1) <= kMaxBitmapBlocks) return 1;
  return a.scores.shape[1] / ((kMaxBitmapBlocks - 2) * a.block_size - kRounding) + 1;
}
std::int64_t parts_per_row(const CandidateMaskArgs& a, const Tuning& t, int processors) {
  const std::int64_t rows = a.scores.shape[0], width = a.scores.shape[1];
  const std::int64_t wanted = (std::int64_t{t.mask_blocks_per_processor} * processors + rows - 1) / rows;
  const std::int64_t most = (width + t.mask_min_columns - 1) / t.mask_min_columns;
  return std::max(least_parts(a), std::min({wanted, most, std::int64_t{t.mask_max_parts}}));
}

}  // namespace

const char* CandidateMaskBitmap::refuses(const CandidateMaskArgs& a) {
  if (a.scores.shape[1] > kMaxInt32) return "more than 2^31 - 1 columns";
  if (a.scores.shape[0] > kMaxInt32 / std::max(least_parts(a), kMostParts))
    return "more than 2^31 - 1 parts of rows";
  return nullptr;
}

std::size_t CandidateMaskBitmap::workspace_bytes(const CandidateMaskArgs&, std::int32_t) { return 0; }

Status CandidateMaskBitmap::run(const CandidateMaskArgs& a, const Launch& launch) {
  const DeviceFacts& facts = device_facts(launch.device);
  if (a.scores.elements() == 0) return {};
  const std::int64_t parts = parts_per_row(a, tuning(facts.architecture), facts.processors);
  const std::int64_t bitmap_words = (part_blocks(a, parts) + 127) / 128 * 4;
  MaskParams p{};
  p.scores = static_cast<char*>(a.scores.data);
  p.row_stride = a.scores.stride[0];
  p.column_stride = a.scores.stride[1];
  p.width = a.scores.shape[1];
  p.candidates = static_cast<const std::int32_t*>(a.candidates.data);
  p.list_row_stride = a.candidates.stride[0];
  p.list_stride = a.candidates.stride[1];
  p.list_size = a.candidates.shape[1];
  p.first_vectors =
      static_cast<std::uint32_t>(std::min<std::int64_t>(p.list_size / 4, FirstIds::kVectors * kThreads));
  p.bounds = row_bounds(a.bounds);
  // A block wider than the matrix is the same as one of its width.
  p.block_size = Divisor(static_cast<std::uint32_t>(std::min(a.block_size, p.width)));
  p.parts = Divisor(static_cast<std::uint32_t>(parts));
  p.bitmap_words = static_cast<std::uint32_t>(bitmap_words);
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
  const Grid grid{static_cast<std::uint32_t>(a.scores.shape[0] * parts), kThreads,
                  static_cast<std::size_t>(bitmap_words) * sizeof(std::uint32_t), false};
  return launch_kernel("candidate_mask", launch, grid, kernel, p);
}

}  // namespace keysieve::gpu

// mask_part: steps 1 and 2 of cuda.candidate_mask.bitmap: where a thread block's part of a row lies, and which of
// its blocks the row's list names.
#pragma once

#include "gpu/divide.hpp"
#include "gpu/faults.hpp"
#include "gpu/row_range.hpp"
#include "keysieve/candidate_mask.hpp"

namespace keysieve::gpu::mask_part {

inline constexpr int kThreads = 256;
inline constexpr std::uint32_t kPartAlignment = 8;  // vectors: 128 bytes, a cache line

enum Fault { kTileEarly, kNoColumnStride, kOneBitOff, kLiveTile, kEdgeIgnored };

struct MaskParams {
  char* scores;
  std::int64_t row_stride, column_stride, width;
  const std::int32_t* candidates;
  std::int64_t list_row_stride, list_stride, list_size;
  std::uint32_t first_vectors;  // those of a list that are asked for at once
  RowBounds bounds;
  Divisor block_size;
  Divisor parts;
  std::uint32_t bitmap_words;
  WriteRange write_range;
  bool edge;
  Faults faults;
};

#if defined(__CUDACC__) || defined(__HIPCC__)

// The first vectors of a list, asked for before anything else: their latency hides behind that of the bounds.
// 2048 candidates are read by now.
struct FirstIds {
  static constexpr int kVectors = 2;
  int4 ids[kVectors];
  bool vectors;  // the list is contiguous and aligned
};

__device__ inline FirstIds block_read_first_ids(const MaskParams& p, std::uint32_t row) {
  const std::int32_t* list = p.candidates + row * p.list_row_stride;
  FirstIds first;
  first.vectors = p.list_stride == 1 && reinterpret_cast<std::uintptr_t>(list) % 16 == 0;
#pragma unroll
  for (int i = 0; i < FirstIds::kVectors; ++i) {
    const std::uint32_t v = i * kThreads + threadIdx.x;
    first.ids[i] = first.vectors && v < p.first_vectors ? reinterpret_cast<const int4*>(list)[v]
                                                        : make_int4(-1, -1, -1, -1);
  }
  return first;
}

// A part, in positions: columns plus what the row's first one is past a 16-byte border, so that vector v is
// positions v * kVector and on. Below 2^32.
struct Part {
  std::uint32_t first_vector, last_vector;
  std::uint32_t from, to;            // written
  std::uint32_t seen_from, seen_to;  // those that are in the row's bounds
  std::uint32_t origin;              // of block `first_block`, the one of seen_from
  std::uint32_t first_block, blocks;
  // The least id that makes the row's last column stay, by the edge rule (MSK-10); kNoEdge: it is not here.
  std::uint32_t edge_block;
};
inline constexpr std::uint32_t kNoEdge = ~std::uint32_t{0};

template <int kVector>
__device__ Part row_part(const MaskParams& p, std::uint32_t row, std::uint32_t part,
                         std::uint32_t misaligned) {
  const RowRange visible = row_range(p.bounds, row, p.width);
  const auto start = static_cast<std::uint32_t>(visible.start) + misaligned;
  const auto end = static_cast<std::uint32_t>(visible.end) + misaligned;
  const auto width = static_cast<std::uint32_t>(p.width) + misaligned;
  const std::uint32_t from = p.write_range == WriteRange::window ? start : misaligned;
  std::uint32_t to = p.write_range == WriteRange::full ? width : end;
  if (p.faults.on(kLiveTile) && to < width) ++to;
  Part g{};
  if (from >= to) return g;
  const std::uint32_t first = from / kVector, last = (to + kVector - 1) / kVector;
  std::uint32_t vectors = p.parts.divide(last - first - 1) + 1;
  vectors = (vectors + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  vectors = max(vectors, std::uint32_t{kThreads});  // one a thread: less is not worth reading a list
  g.first_vector = first + part * vectors;
  g.last_vector = min(g.first_vector + vectors, last);
  g.from = max(g.first_vector * kVector, from);
  g.to = min(g.last_vector * kVector, to);
  g.seen_from = max(g.from, start);
  g.seen_to = min(g.to, end);
  g.edge_block = kNoEdge;
  if (g.seen_from < g.seen_to) {
    g.first_block = p.block_size.divide(g.seen_from - start);
    g.blocks = p.block_size.divide(g.seen_to - 1 - start) - g.first_block + 1;
    g.origin = start + g.first_block * p.block_size.value;
    if (p.edge && g.seen_to == width && !p.faults.on(kEdgeIgnored))
      g.edge_block = p.block_size.divide(width - start - 1) + 1;
  } else {
    g.seen_from = g.seen_to = g.origin = g.from;
  }
  return g;
}

// Calls f(id) for each entry of the row's list, f(ids) for four at once.
template <class F>
__device__ void block_for_each_id(const MaskParams& p, std::uint32_t row, const FirstIds& first_ids, F&& f) {
  const std::int32_t* list = p.candidates + row * p.list_row_stride;
  std::int64_t rest = threadIdx.x;
  if (first_ids.vectors) {
#pragma unroll
    for (int i = 0; i < FirstIds::kVectors; ++i) f(first_ids.ids[i]);
    if (p.first_vectors * std::int64_t{4} == p.list_size) return;
#pragma unroll 1
    for (std::int64_t v = p.first_vectors + threadIdx.x; v < p.list_size / 4; v += kThreads)
      f(reinterpret_cast<const int4*>(list)[v]);
    rest += p.list_size / 4 * 4;
  }
#pragma unroll 1
  for (std::int64_t j = rest; j < p.list_size; j += kThreads) f(list[j * p.list_stride]);
}

// Sets the bits of listed blocks.
struct Marker {
  std::uint32_t first_block, blocks;
  std::uint32_t* bitmap;

  __device__ void operator()(std::int32_t id) const {
    const std::uint32_t offset = static_cast<std::uint32_t>(id) - first_block;
    if (id >= 0 && offset < blocks) atomicOr(&bitmap[offset >> 5], 1u << (offset & 31u));
  }
  __device__ void operator()(const int4& ids) const {
    // A part sees few of a list's vectors.
    const std::uint32_t offsets[] = {
        static_cast<std::uint32_t>(ids.x) - first_block, static_cast<std::uint32_t>(ids.y) - first_block,
        static_cast<std::uint32_t>(ids.z) - first_block, static_cast<std::uint32_t>(ids.w) - first_block};
    if (min(min(offsets[0], offsets[1]), min(offsets[2], offsets[3])) >= blocks) return;
    // Neighbours of a sorted list share words, and atomics on one word take turns.
    const std::int32_t all[] = {ids.x, ids.y, ids.z, ids.w};
    std::uint32_t word = 0, bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (all[i] < 0 || offsets[i] >= blocks) continue;
      if (bits != 0 && offsets[i] >> 5 != word) {
        atomicOr(&bitmap[word], bits);
        bits = 0;
      }
      word = offsets[i] >> 5;
      bits |= 1u << (offsets[i] & 31u);
    }
    if (bits != 0) atomicOr(&bitmap[word], bits);
  }
};

// Tells whether any listed id is at or past `block`.
struct Finder {
  std::int32_t block;
  bool found = false;

  __device__ void operator()(std::int32_t id) { found = found || id >= block; }
  __device__ void operator()(const int4& ids) { (*this)(max(max(ids.x, ids.y), max(ids.z, ids.w))); }
};

#endif

}  // namespace keysieve::gpu::mask_part

// topk_row: what every device top-k shares: the call as a flat struct, keys whose integer order is the order
// of scores, and a row as a sequence of elements in ascending column order, wherever their scores lie.
#pragma once

#include <cstdint>

#include "gpu/divide.hpp"
#include "gpu/faults.hpp"
#include "gpu/page_slot.hpp"
#include "gpu/row_range.hpp"
#include "gpu/vendor.hpp"
#include "keysieve/topk.hpp"

namespace keysieve::gpu {

template <class T>
struct Matrix {
  T* data = nullptr;  // null: not given
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
#if defined(__CUDACC__) || defined(__HIPCC__)
  __device__ T& at(std::int64_t row, std::int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
#endif
};

template <class T>
Matrix<T> matrix(const Tensor& t) {
  if (!t.given()) return {};
  return {static_cast<T*>(t.data), t.stride[0], t.rank > 1 ? t.stride[1] : 0};
}

enum TopkFault { kTieShort, kEdgeLost, kMisled, kJoinOrder, kFloorIgnored };

// What every call reads comes first: each further 64 bytes of a kernel's parameters cost a miss.
struct TopkParams {
  const void* scores;
  std::int64_t row_stride, width;
  RowBounds bounds;
  std::uint32_t k;
  bool plain;  // one store a place is all: columns as i32, in order, side by side, and no other outputs
  bool compact, skip_minus_infinity, by_score, out_wide;
  TopkSpace space;
  void* out;
  std::int64_t out_row_stride, out_column_stride;
  IntList offset;
  Matrix<std::int32_t> counts, raw;
  Matrix<float> values;
  Matrix<const std::int32_t> candidates;
  std::uint32_t candidate_count;
  Divisor block_size;
  std::int64_t rows;
  PageSlots pages;
  Faults faults;
};

inline TopkParams topk_params(const TopkArgs& a) {
  TopkParams p{};
  p.scores = a.scores.data;
  p.rows = a.scores.shape[0];
  p.width = a.scores.shape[1];
  p.row_stride = a.scores.stride[0];
  p.bounds = row_bounds(a.bounds);
  p.candidates = matrix<const std::int32_t>(a.candidates);
  p.candidate_count = a.candidates.given() ? static_cast<std::uint32_t>(a.candidates.shape[1]) : 0;
  p.block_size = Divisor(static_cast<std::uint32_t>(std::min(a.block_size, kMaxInt32)));
  p.compact = a.candidates.given() && a.layout == ScoreLayout::compact;
  p.skip_minus_infinity = a.skip_neg_inf;
  p.by_score = a.order == TopkOrder::by_score;
  p.space = a.space;
  if (a.space == TopkSpace::offset) p.offset = int_list(a.offset);
  if (a.space == TopkSpace::paged) p.pages = page_slots(a.pages, a.out.dtype);
  p.k = static_cast<std::uint32_t>(std::min(a.k, kMaxInt32));
  p.out = a.out.data;
  p.out_wide = a.out.dtype == DType::i64;
  p.out_row_stride = a.out.stride[0];
  p.out_column_stride = a.out.stride[1];
  p.values = matrix<float>(a.values);
  p.counts = matrix<std::int32_t>(a.counts);
  p.raw = matrix<std::int32_t>(a.raw);
  p.plain = p.space != TopkSpace::paged && !p.by_score && !p.out_wide && p.out_column_stride == 1 &&
            p.values.data == nullptr && p.raw.data == nullptr && p.counts.data == nullptr;
  p.faults = active_fault({"gpu.topk.tie_short", "gpu.topk.edge_lost", "gpu.topk.misled",
                           "gpu.topk.join_order", "gpu.topk.floor_ignored"});
  return p;
}

// The most elements that a row of these shapes can have.
inline std::int64_t topk_elements(const TopkArgs& a) {
  const std::int64_t width = a.scores.shape[1];
  if (!a.candidates.given() || a.layout == ScoreLayout::compact || a.block_size >= width) return width;
  // The product may not fit 64 bits: a list that is only read may repeat one element without end.
  return a.candidates.shape[1] > width / a.block_size ? width : a.candidates.shape[1] * a.block_size;
}

#if defined(__CUDACC__) || defined(__HIPCC__)

inline constexpr std::uint32_t kKeyMinusInfinity = 0x007fffffu;

// Greater scores have greater keys; both zeros share one, and so do all NaNs, above infinity (TOP-K order).
__device__ inline std::uint32_t key_of(float score) {
  const std::uint32_t bits = __float_as_uint(canonical(score));
  return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u);
}
// The least key that may be selected.
__device__ inline std::uint32_t floor_key(const TopkParams& p) {
  return p.skip_minus_infinity && !p.faults.on(kFloorIgnored) ? kKeyMinusInfinity + 1 : kKeyMinusInfinity;
}
__device__ inline float score_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

// Scores as stored: a vector is 16 bytes.
struct F32Scores {
  using Word = std::uint32_t;
  static constexpr int kVector = 4;
  __device__ static float value(Word word) { return __uint_as_float(word); }
  // Four aligned scores as the bits of floats.
  __device__ static void load_four(const Word* at, std::uint32_t (&bits)[4]) {
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(at));
    bits[0] = four.x, bits[1] = four.y, bits[2] = four.z, bits[3] = four.w;
  }
  __device__ static float value(const uint4& vector, int j) {
    return __uint_as_float(j == 0 ? vector.x : j == 1 ? vector.y : j == 2 ? vector.z : vector.w);
  }
  __device__ static void put(uint4& vector, int j, Word word) {
    (j == 0 ? vector.x : j == 1 ? vector.y : j == 2 ? vector.z : vector.w) = word;
  }
};
struct Bf16Scores {
  using Word = std::uint16_t;
  static constexpr int kVector = 8;
  __device__ static float value(Word word) { return __uint_as_float(std::uint32_t{word} << 16); }
  __device__ static void load_four(const Word* at, std::uint32_t (&bits)[4]) {
    const uint2 pairs = __ldg(reinterpret_cast<const uint2*>(at));
    bits[0] = pairs.x << 16, bits[1] = pairs.x & 0xffff0000u;
    bits[2] = pairs.y << 16, bits[3] = pairs.y & 0xffff0000u;
  }
  __device__ static float value(const uint4& vector, int j) {
    const std::uint32_t pair = j < 2 ? vector.x : j < 4 ? vector.y : j < 6 ? vector.z : vector.w;
    return __uint_as_float((j & 1) != 0 ? pair & 0xffff0000u : pair << 16);
  }
  __device__ static void put(uint4& vector, int j, Word word) {
    std::uint32_t& pair = j < 2 ? vector.x : j < 4 ? vector.y : j < 6 ? vector.z : vector.w;
    pair |= std::uint32_t{word} << (16 * (j & 1));
  }
};

// The elements of one row that take part, numbered in ascending column order. Without candidates element e is
// the row's column e; kListed: blocks[] holds the listed blocks in ascending order.
template <class Scores, bool kListed>
struct RowElements {
  using Word = typename Scores::Word;
  static constexpr std::uint32_t kVector = Scores::kVector;
  static constexpr std::uint32_t kAllValid = (1u << kVector) - 1;

  const Word* first;   // the score of the row's column 0; compact: of the row's storage
  std::uint32_t size;  // elements
  std::uint32_t lead;  // elements between the 16-byte border at or before element 0 and element 0
  bool vectors;        // whole vectors lie on 16-byte borders
  Divisor block_size;
  const std::uint32_t* blocks;
  const std::uint32_t* places;  // compact: a block's place in the list

  // Takes over the row's distinct blocks, ascending, of `live` columns.
  __device__ void list(const TopkParams& p, std::int64_t live, std::uint32_t listed,
                       const std::uint32_t* of_blocks, const std::uint32_t* of_places) {
    const std::int64_t block = p.block_size.value;
    blocks = of_blocks;
    places = of_places;
    size = listed == 0 ? 0
                       : static_cast<std::uint32_t>((listed - 1) * block +
                                                    min(block, live - blocks[listed - 1] * block));
  }

  __device__ const Word* address(std::uint32_t e) const {
    if constexpr (!kListed) return first + e;
    const std::uint32_t b = block_size.divide(e);
    const std::uint32_t at = places != nullptr ? places[b] : blocks[b];
    return first + static_cast<std::int64_t>(at) * block_size.value + (e - b * block_size.value);
  }
  __device__ std::uint32_t column(std::uint32_t e) const {
    if constexpr (!kListed) return e;
    const std::uint32_t b = block_size.divide(e);
    return blocks[b] * block_size.value + (e - b * block_size.value);
  }
  __device__ float score(std::uint32_t e) const { return Scores::value(__ldg(address(e))); }
  __device__ std::uint32_t vector_count() const { return (size + lead + kVector - 1) / kVector; }
  // The element number of a vector's first place; wraps below zero before element 0.
  __device__ std::uint32_t element(std::uint32_t v) const { return v * kVector - lead; }

  // Every vector is full and aligned.
  __device__ bool whole() const { return vectors && lead == 0 && size % kVector == 0; }
  __device__ uint4 load_whole(std::uint32_t v) const {
    return __ldg(reinterpret_cast<const uint4*>(address(v * kVector)));
  }

  // A vector that is whole and aligned.
  __device__ uint4 load_inner(std::uint32_t v) const {
    return __ldg(reinterpret_cast<const uint4*>(address(element(v))));
  }

  // A vector whose places all hold elements.
  __device__ uint4 load_any(std::uint32_t v) const {
    if (vectors) return load_inner(v);
    std::uint32_t valid;
    return load(v, valid);
  }

  // The keys of four elements from `e` on, which wraps below zero before element 0; 0 where there is none.
  __device__ uint4 load_keys(std::uint32_t e) const {
    std::uint32_t keys[4];
    if (vectors && e < size && size - e >= 4) {
      const Word* at = address(e);
      Scores::load_four(at, keys);
#pragma unroll
      for (int j = 0; j < 4; ++j) keys[j] = key_of(__uint_as_float(keys[j]));
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) keys[j] = e + j < size ? key_of(score(e + j)) : 0;
    }
    return make_uint4(keys[0], keys[1], keys[2], keys[3]);
  }

  // Vector v, never touching memory outside the row's elements; bit j of `valid`: place j holds one.
  __device__ uint4 load(std::uint32_t v, std::uint32_t& valid) const {
    const std::uint32_t e = element(v);
    if (vectors && e < size && size - e >= kVector) {
      valid = kAllValid;
      return __ldg(reinterpret_cast<const uint4*>(address(e)));
    }
    uint4 vector = make_uint4(0, 0, 0, 0);
    valid = 0;
#pragma unroll
    for (std::uint32_t j = 0; j < kVector; ++j) {
      if (e + j < size) {
        Scores::put(vector, static_cast<int>(j), __ldg(address(e + j)));
        valid |= 1u << j;
      }
    }
    return vector;
  }
};

// The elements of a row before their number is known.
template <class Scores, bool kListed>
__device__ RowElements<Scores, kListed> row_elements(const TopkParams& p, std::int64_t row,
                                                     std::int64_t start) {
  using Word = typename Scores::Word;
  RowElements<Scores, kListed> elements{};
  elements.block_size = p.block_size;
  elements.first = static_cast<const Word*>(p.scores) + row * p.row_stride + (p.compact ? 0 : start);
  const auto misaligned = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(elements.first) /
                                                     sizeof(Word) % Scores::kVector);
  if constexpr (kListed) {
    elements.vectors = misaligned == 0 && p.block_size.value % Scores::kVector == 0;
  } else {
    elements.lead = misaligned;
    elements.vectors = true;
  }
  return elements;
}

#endif

}  // namespace keysieve::gpu

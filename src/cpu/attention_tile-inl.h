// attention_tile: what both attention kernels multiply with, on fp32 tiles in scratch.
//
//   widen: bf16 rows become fp32 rows, once per key and worker instead of once per product.
//   scores: S[key][row] = q[row] . k[key]. accumulate: O[row] += P[key][row] * v[key].
//
// attention_softmax-inl.h turns S into P and ends a row.
//
// "row" is whatever shares the keys: the heads of one query (sparse MLA) or the queries of one head (MHA).
//
// Bits. A score is one chain of multiply-adds per lane over the dimensions, then one fixed tree over the
// lanes; an output element is one chain over the keys in list order. Neither depends on the shape of the
// register tile, so rows may be grouped freely. A weight of exactly 0 leaves chain and sum as they are
// (finish() folds -0 into +0, the only difference that a skipped zero product could make), so a caller may
// drop keys that a row does not keep, as long as the places where softmax() is called depend on nothing but
// that row's own keys.
#if defined(KEYSIEVE_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYSIEVE_ATTENTION_TILE_INL_H_
#undef KEYSIEVE_ATTENTION_TILE_INL_H_
#else
#define KEYSIEVE_ATTENTION_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu {
namespace HWY_NAMESPACE {
namespace attention {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;

// Register tiles: sums, and the operands of one step. 32 registers on AVX-512 and Arm, else 16.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM
inline constexpr int kTileKeys = 6;
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileKeys = 3;
inline constexpr int kTileVectors = 3;
#endif
inline constexpr int kTileRows = 4;

// Query rows that stay in the L1 cache while keys stream past them: 20 of 32 KiB.
inline constexpr std::size_t kResidentFloats = 5 * 1024;

HWY_INLINE std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

// ---- widen ----

// columns: a multiple of 16.
HWY_INLINE void widen_row(const std::uint16_t* HWY_RESTRICT from, std::size_t columns,
                          float* HWY_RESTRICT to) {
  const F32 df;
  const hn::Rebind<std::uint16_t, F32> d16;
  const hn::RebindToUnsigned<F32> du;
  const std::size_t lanes = hn::Lanes(df);
  for (std::size_t c = 0; c < columns; c += lanes) {
    const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from + c)));
    hn::StoreU(hn::BitCast(df, wide), df, to + c);
  }
}

// The same, and whether every value is finite: 0 * x is 0 for finite x only.
HWY_INLINE bool widen_row_finite(const std::uint16_t* HWY_RESTRICT from, std::size_t columns,
                                 float* HWY_RESTRICT to) {
  const F32 df;
  const hn::Rebind<std::uint16_t, F32> d16;
  const hn::RebindToUnsigned<F32> du;
  const std::size_t lanes = hn::Lanes(df);
  const VF zero = hn::Zero(df);
  VF odd = zero;
  for (std::size_t c = 0; c < columns; c += lanes) {
    const VF wide = hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from + c))));
    odd = hn::MulAdd(wide, zero, odd);
    hn::StoreU(wide, df, to + c);
  }
  return hn::AllTrue(df, hn::Eq(odd, zero));
}

// Asks for a row that will be widened later.
HWY_INLINE void fetch_row(const std::uint16_t* row, std::size_t columns) {
  for (std::size_t c = 0; c < columns; c += 32) hwy::Prefetch(row + c);
}

// ---- scores ----

// The lane sums of four vectors, next to each other: ((l0 + l2) + (l1 + l3)) per 128 bits, then the 128-bit
// blocks by halves.
HWY_INLINE void store_lane_sums(VF a, VF b, VF c, VF d, float* HWY_RESTRICT to) {
  const F32 df;
#if HWY_TARGET == HWY_SCALAR
  hn::Store(a, df, to);
  hn::Store(b, df, to + 1);
  hn::Store(c, df, to + 2);
  hn::Store(d, df, to + 3);
#else
  const hn::Repartition<double, F32> d64;
  const auto ab = hn::BitCast(d64, hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b)));
  const auto cd = hn::BitCast(d64, hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d)));
  const VF sums = hn::Add(hn::BitCast(df, hn::InterleaveLower(d64, ab, cd)),
                          hn::BitCast(df, hn::InterleaveUpper(d64, ab, cd)));
#if HWY_MAX_BYTES == 64
  const hn::Half<F32> dh;
  const hn::Half<decltype(dh)> dq;
  const auto half = hn::Add(hn::LowerHalf(dh, sums), hn::UpperHalf(dh, sums));
  hn::StoreU(hn::Add(hn::LowerHalf(dq, half), hn::UpperHalf(dq, half)), dq, to);
#elif HWY_MAX_BYTES == 32
  const hn::Half<F32> dh;
  hn::StoreU(hn::Add(hn::LowerHalf(dh, sums), hn::UpperHalf(dh, sums)), dh, to);
#else
  hn::StoreU(sums, df, to);
#endif
#endif
}

// bf16 rows, as long as the queries, that will be widened next: asked for line by line between the products,
// because a burst of requests would fill the core's miss buffers and stall its own loads.
struct Upcoming {
  const std::uint16_t* const* row = nullptr;
  std::size_t rows = 0;

  HWY_INLINE Upcoming part(std::size_t first, std::size_t count) const {
    if (first >= rows) return {};
    return {row + first, count < rows - first ? count : rows - first};
  }
};

template <int kRows, int kKeys>
HWY_NOINLINE void score_tile(const float* HWY_RESTRICT q, std::size_t q_stride, const float* HWY_RESTRICT k,
                             std::size_t k_stride, std::size_t columns, float* HWY_RESTRICT s,
                             std::size_t s_stride, const Upcoming& upcoming) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  constexpr std::size_t kLine = 32;  // bf16 values of a cache line; columns is a multiple
  const std::size_t step = upcoming.rows == 0 ? columns : kLine;
  VF sum[kTileRows][kKeys];
  for (int i = 0; i < kTileRows; ++i) {
    for (int j = 0; j < kKeys; ++j) sum[i][j] = hn::Zero(df);
  }
  for (std::size_t line = 0; line < columns; line += step) {
#pragma GCC unroll 1
    for (std::size_t r = 0; r < upcoming.rows; ++r) hwy::Prefetch(upcoming.row[r] + line);
#pragma GCC unroll 1
    for (std::size_t c = line; c < line + step; c += lanes) {
      VF key[kKeys];
      for (int j = 0; j < kKeys; ++j) key[j] = hn::LoadU(df, k + j * k_stride + c);
      for (int i = 0; i < kRows; ++i) {
        const VF query = hn::LoadU(df, q + i * q_stride + c);
        for (int j = 0; j < kKeys; ++j) sum[i][j] = hn::MulAdd(query, key[j], sum[i][j]);
      }
    }
  }
  for (int j = 0; j < kKeys; ++j) {
    float* to = s + j * s_stride;
    if constexpr (kRows == kTileRows) {
      store_lane_sums(sum[0][j], sum[1][j], sum[2][j], sum[3][j], to);
    } else {
      float four[kTileRows];
      store_lane_sums(sum[0][j], sum[1][j], sum[2][j], sum[3][j], four);
      for (int i = 0; i < kRows; ++i) to[i] = four[i];
    }
  }
}

template <int kRows>
HWY_INLINE void score_rows(const float* q, std::size_t q_stride, const float* k, std::size_t k_stride,
                           std::size_t keys, std::size_t columns, float* s, std::size_t s_stride,
                           const Upcoming& upcoming) {
  // Fewer rows leave registers free: more keys in flight hide the latency of the multiply-add instead.
  constexpr int kKeys = kRows == 4 ? kTileKeys : kRows == 3 ? kTileKeys + 1 : 2 * kTileKeys;
  std::size_t j = 0;
  for (; j + kKeys <= keys; j += kKeys) {
    score_tile<kRows, kKeys>(q, q_stride, k + j * k_stride, k_stride, columns, s + j * s_stride, s_stride,
                             upcoming.part(j, kKeys));
  }
  for (; j < keys; ++j) {
    score_tile<kRows, 1>(q, q_stride, k + j * k_stride, k_stride, columns, s + j * s_stride, s_stride,
                         upcoming.part(j, 1));
  }
}

HWY_INLINE void scores(const float* q, std::size_t q_stride, std::size_t rows, const float* k,
                       std::size_t k_stride, std::size_t keys, std::size_t columns, float* s,
                       std::size_t s_stride, const Upcoming& upcoming = {}) {
  const std::size_t fit = kResidentFloats / columns / kTileRows * kTileRows;
  const std::size_t resident = fit > kTileRows ? fit : kTileRows;
  const std::size_t whole = rows / kTileRows * kTileRows;
  for (std::size_t first = 0; first < whole; first += resident) {
    const std::size_t last = first + resident < whole ? first + resident : whole;
    const Upcoming wanted = first == 0 ? upcoming : Upcoming();
    const std::size_t tiles = (last - first) / kTileRows;
    const std::size_t share = (kTileKeys + tiles - 1) / tiles;
    std::size_t j = 0;
    for (; j + kTileKeys <= keys; j += kTileKeys) {
      for (std::size_t tile = 0; tile < tiles; ++tile) {
        const std::size_t i = first + tile * kTileRows;
        score_tile<kTileRows, kTileKeys>(q + i * q_stride, q_stride, k + j * k_stride, k_stride, columns,
                                         s + j * s_stride + i, s_stride,
                                         wanted.part(j + tile * share, share));
      }
    }
    for (; j < keys; ++j) {
      for (std::size_t i = first; i < last; i += kTileRows) {
        score_tile<kTileRows, 1>(q + i * q_stride, q_stride, k + j * k_stride, k_stride, columns,
                                 s + j * s_stride + i, s_stride, wanted.part(j, i == first ? 1 : 0));
      }
    }
  }
  const float* q_rest = q + whole * q_stride;
  float* s_rest = s + whole;
  const Upcoming rest = whole == 0 ? upcoming : Upcoming();
  switch (rows - whole) {
    case 3:
      return score_rows<3>(q_rest, q_stride, k, k_stride, keys, columns, s_rest, s_stride, rest);
    case 2:
      return score_rows<2>(q_rest, q_stride, k, k_stride, keys, columns, s_rest, s_stride, rest);
    case 1:
      return score_rows<1>(q_rest, q_stride, k, k_stride, keys, columns, s_rest, s_stride, rest);
  }
}

// ---- accumulate ----

template <int kRows, int kVectors>
HWY_NOINLINE void accumulate_tile(const float* HWY_RESTRICT p, std::size_t p_stride,
                                  const float* HWY_RESTRICT v, std::size_t v_stride, std::size_t keys,
                                  float* HWY_RESTRICT o, std::size_t o_stride) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  VF sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kVectors; ++c) sum[i][c] = hn::LoadU(df, o + i * o_stride + c * lanes);
  }
  for (std::size_t j = 0; j < keys; ++j) {
    VF value[kVectors];
    for (int c = 0; c < kVectors; ++c) value[c] = hn::LoadU(df, v + j * v_stride + c * lanes);
    for (int i = 0; i < kRows; ++i) {
      const VF weight = hn::Set(df, p[j * p_stride + i]);
      for (int c = 0; c < kVectors; ++c) sum[i][c] = hn::MulAdd(weight, value[c], sum[i][c]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kVectors; ++c) hn::StoreU(sum[i][c], df, o + i * o_stride + c * lanes);
  }
}

// rows: a multiple of kRows.
template <int kRows, int kVectors>
HWY_INLINE void accumulate_rows(const float* p, std::size_t p_stride, std::size_t rows, const float* v,
                                std::size_t v_stride, std::size_t keys, std::size_t columns, float* o,
                                std::size_t o_stride) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t c = 0;
  for (; c + kVectors * lanes <= columns; c += kVectors * lanes) {
    for (std::size_t i = 0; i < rows; i += kRows) {
      accumulate_tile<kRows, kVectors>(p + i, p_stride, v + c, v_stride, keys, o + i * o_stride + c,
                                       o_stride);
    }
  }
  // Columns that the tile's width leaves over: twice the rows keep as many sums in flight.
  for (; c < columns; c += lanes) {
    std::size_t i = 0;
    for (; i + 2 * kRows <= rows; i += 2 * kRows) {
      accumulate_tile<2 * kRows, 1>(p + i, p_stride, v + c, v_stride, keys, o + i * o_stride + c, o_stride);
    }
    for (; i < rows; i += kRows) {
      accumulate_tile<kRows, 1>(p + i, p_stride, v + c, v_stride, keys, o + i * o_stride + c, o_stride);
    }
  }
}

HWY_INLINE void accumulate(const float* p, std::size_t p_stride, std::size_t rows, const float* v,
                           std::size_t v_stride, std::size_t keys, std::size_t columns, float* o,
                           std::size_t o_stride) {
  const std::size_t whole = rows / kTileRows * kTileRows;
  accumulate_rows<kTileRows, kTileVectors>(p, p_stride, whole, v, v_stride, keys, columns, o, o_stride);
  p += whole;
  o += whole * o_stride;
  switch (rows - whole) {
    case 3:
      return accumulate_rows<3, kTileVectors>(p, p_stride, 3, v, v_stride, keys, columns, o, o_stride);
    case 2:
      return accumulate_rows<2, kTileVectors + 1>(p, p_stride, 2, v, v_stride, keys, columns, o, o_stride);
    case 1:
      return accumulate_rows<1, 8>(p, p_stride, 1, v, v_stride, keys, columns, o, o_stride);
  }
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace keysieve::cpu
HWY_AFTER_NAMESPACE();

#endif  // KEYSIEVE_ATTENTION_TILE_INL_H_

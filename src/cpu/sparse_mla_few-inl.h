// sparse_mla_few: the products and the softmax of up to four heads, on the bf16 keys where they lie.
//
// One head uses a key's value for one product of its score and one of its output: to widen it into scratch
// first costs as many instructions as to use it. Here a pair of neighbours becomes two fp32 lanes with one
// instruction each, a shift and an AND, in the registers of the loop that multiplies; scores and output widen
// anew, because an instruction is cheaper than a store and a load of twice the bytes.
//
// Pair order. That leaves even columns in one vector and odd ones in the next. Sparse MLA keeps queries,
// widened keys and sums in this order whatever the number of heads (widen_pairs), and unfold_pairs() restores
// it at the end, so a head's bits do not depend on how many share its keys: the same chain of multiply-adds
// per score, per output element and per sum of weights as in attention_tile-inl.h and attention_softmax-inl.h.
//
// Scores and weights are s[key][stride], stride 1, 2, 4 or 4 for 1 to 4 heads, so that one vector holds
// several keys and exp wastes no lane.
#if defined(KEYSIEVE_SPARSE_MLA_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYSIEVE_SPARSE_MLA_FEW_INL_H_
#undef KEYSIEVE_SPARSE_MLA_FEW_INL_H_
#else
#define KEYSIEVE_SPARSE_MLA_FEW_INL_H_
#endif

#include <algorithm>

#include "cpu/attention_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu {
namespace HWY_NAMESPACE {
namespace attention {

inline constexpr std::size_t kMostKeys = 64;
inline constexpr std::size_t kLine = 32;  // bf16 values

// ---- pair order ----

// 2 * Lanes(F32) values: those in even places, those in odd ones.
HWY_INLINE void load_pairs(const std::uint16_t* HWY_RESTRICT from, VF& even, VF& odd) {
  const F32 df;
  const hn::RebindToUnsigned<F32> du;
#if HWY_TARGET == HWY_SCALAR
  even = hn::BitCast(df, hn::Set(du, std::uint32_t{from[0]} << 16));
  odd = hn::BitCast(df, hn::Set(du, std::uint32_t{from[1]} << 16));
#else
  auto pairs = hn::BitCast(du, hn::LoadU(hn::Repartition<std::uint16_t, F32>(), from));
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && !HWY_COMPILER_MSVC
  // g++ would load them twice, as an operand of the shift and of the AND: loads are what runs out first.
  asm("" : "+v"(pairs.raw));
#endif
  even = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xffff0000u)));
#endif
}

// columns: a multiple of 32, here and below.
HWY_INLINE void widen_pairs(const std::uint16_t* HWY_RESTRICT from, std::size_t columns,
                            float* HWY_RESTRICT to) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  for (std::size_t c = 0; c < columns; c += 2 * lanes) {
    VF even, odd;
    load_pairs(from + c, even, odd);
    hn::StoreU(even, df, to + c);
    hn::StoreU(odd, df, to + c + lanes);
  }
}

HWY_INLINE void unfold_pairs(float* row, std::size_t columns) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  for (std::size_t c = 0; c < columns; c += 2 * lanes)
    hn::StoreInterleaved2(hn::LoadU(df, row + c), hn::LoadU(df, row + c + lanes), df, row + c);
}

// ---- scores ----

constexpr std::size_t few_stride(std::size_t rows) { return rows == 3 ? 4 : rows; }

template <int kRows, int kKeys>
HWY_NOINLINE void score_few_tile(const float* HWY_RESTRICT q, std::size_t columns,
                                 const std::uint16_t* const* key, const std::uint16_t* const* fetched,
                                 float* HWY_RESTRICT s) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  constexpr int kStride = few_stride(kRows);
  const std::uint16_t* k[kKeys];
  VF sum[kKeys * kStride];
  for (int j = 0; j < kKeys; ++j) k[j] = key[j];
  for (int at = 0; at < kKeys * kStride; ++at) sum[at] = hn::Zero(df);
#pragma GCC unroll 1
  for (std::size_t line = 0; line < columns; line += kLine) {
    for (int j = 0; j < kKeys / 2; ++j) hwy::Prefetch(fetched[j] + line);
#pragma GCC unroll 4
    for (std::size_t c = line; c < line + kLine; c += 2 * lanes) {
      VF query[kRows][2];
      for (int i = 0; i < kRows; ++i) {
        query[i][0] = hn::LoadU(df, q + static_cast<std::size_t>(i) * columns + c);
        query[i][1] = hn::LoadU(df, q + static_cast<std::size_t>(i) * columns + c + lanes);
      }
      for (int j = 0; j < kKeys; ++j) {
        VF even, odd;
        load_pairs(k[j] + c, even, odd);
        for (int i = 0; i < kRows; ++i) {
          VF& to = sum[j * kStride + i];
          to = hn::MulAdd(query[i][1], odd, hn::MulAdd(query[i][0], even, to));
        }
      }
    }
  }
  static_assert(kKeys * kStride % 4 == 0);
  for (int at = 0; at < kKeys * kStride; at += 4)
    store_lane_sums(sum[at], sum[at + 1], sum[at + 2], sum[at + 3], s + at);
}

// key: room for the last one's repetition up to a multiple of 8. s: likewise. fetched: half as many rows of
// the next span, of which a line is asked for at a time: a burst would fill the core's miss buffers.
template <int kRows>
HWY_INLINE void scores_few(const float* q, std::size_t columns, const std::uint16_t** key, std::size_t keys,
                           const std::uint16_t* const* fetched, float* s) {
  // 8 chains hide the 4 cycles of a multiply-add on two units; as many more as the registers hold.
  constexpr int kKeys = kRows == 1 || (kRows == 2 && kTileVectors == 4) ? 8 : kTileVectors == 4 ? 4 : 2;
  const std::size_t padded = round_up(keys, kKeys);
  std::fill(key + keys, key + padded, key[keys - 1]);
  for (std::size_t j = 0; j < padded; j += kKeys)
    score_few_tile<kRows, kKeys>(q, columns, key + j, fetched + j / 2, s + j * few_stride(kRows));
}

// ---- softmax ----

// As softmax() without words. run_max, run_sum, factor: a vector, in which row i stands at every place that
// is i modulo the stride. s: room for whole vectors.
template <int kRows>
HWY_INLINE void softmax_few(float* HWY_RESTRICT s, std::size_t keys, float scale, float* HWY_RESTRICT run_max,
                            float* HWY_RESTRICT run_sum, float* HWY_RESTRICT factor) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  constexpr std::size_t kStride = few_stride(kRows);
  const VF none = hn::Set(df, -std::numeric_limits<float>::infinity());
  const std::size_t count = keys * kStride, padded = round_up(count, lanes);
  hn::StoreU(none, df, s + count);
  const VF v_scale = hn::Set(df, scale);
  const VF old_max = hn::LoadU(df, run_max);
  VF lane_max = old_max;
  for (std::size_t at = 0; at < padded; at += lanes) {
    const VF x = hn::Mul(hn::LoadU(df, s + at), v_scale);
    hn::StoreU(x, df, s + at);
    lane_max = hn::Max(lane_max, x);
  }
  hn::StoreU(lane_max, df, run_max);
  for (std::size_t half = lanes / 2; half >= kStride; half /= 2) {
    for (std::size_t at = 0; at < half; ++at)
      run_max[at] = run_max[at] > run_max[half + at] ? run_max[at] : run_max[half + at];
  }
  for (std::size_t at = kStride; at < lanes; ++at) run_max[at] = run_max[at - kStride];
  const VF new_max = hn::LoadU(df, run_max);
  const VF base = hn::IfThenZeroElse(hn::Eq(new_max, none), new_max);
  for (std::size_t at = 0; at < padded; at += lanes)
    hn::StoreU(exp_nonpositive(hn::Sub(hn::LoadU(df, s + at), base)), df, s + at);
  float sum[kStride] = {};
  for (std::size_t j = 0; j < count; j += kStride) {
    for (std::size_t i = 0; i < kStride; ++i) sum[i] += s[j + i];
  }
  const VF shrink = exp_nonpositive(hn::Sub(old_max, base));
  hn::StoreU(shrink, df, factor);
  alignas(64) float sums[HWY_LANES(float)];
  for (std::size_t at = 0; at < lanes; ++at) sums[at] = sum[at % kStride];
  hn::StoreU(hn::MulAdd(hn::LoadU(df, run_sum), shrink, hn::LoadU(df, sums)), df, run_sum);
}

// ---- accumulate ----

// One block of columns. Meanwhile the same columns of `next` are prefetched.
template <int kRows, int kPairs>
HWY_NOINLINE void accumulate_few_tile(const float* HWY_RESTRICT p, const std::uint16_t* const* key,
                                      const std::uint16_t* const* next, std::size_t keys, std::size_t column,
                                      float* HWY_RESTRICT o, std::size_t o_stride) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  VF sum[kRows][2 * kPairs];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < 2 * kPairs; ++v) sum[i][v] = hn::LoadU(df, o + i * o_stride + v * lanes);
  }
#pragma GCC unroll 1
  for (std::size_t j = 0; j < keys; ++j) {
    const std::uint16_t* from = key[j] + column;
    const std::uint16_t* fetched = next[j] + column;
    VF weight[kRows];
    for (int i = 0; i < kRows; ++i) weight[i] = hn::Set(df, p[j * few_stride(kRows) + i]);
#pragma GCC unroll 8
    for (int v = 0; v < kPairs; ++v) {
      if (v * lanes % 16 == 0) hwy::Prefetch(fetched + 2 * v * lanes);
      VF even, odd;
      load_pairs(from + 2 * v * lanes, even, odd);
      for (int i = 0; i < kRows; ++i) {
        sum[i][2 * v] = hn::MulAdd(weight[i], even, sum[i][2 * v]);
        sum[i][2 * v + 1] = hn::MulAdd(weight[i], odd, sum[i][2 * v + 1]);
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < 2 * kPairs; ++v) hn::StoreU(sum[i][v], df, o + i * o_stride + v * lanes);
  }
}

template <int kRows>
HWY_INLINE void accumulate_few(const float* HWY_RESTRICT p, const std::uint16_t* const* key,
                               const std::uint16_t* const* next, std::size_t keys, std::size_t values,
                               float* HWY_RESTRICT o, std::size_t o_stride) {
  // 16 sums of 32 registers, 8 of 16.
  constexpr int kPairs = (kTileVectors == 4 ? 8 : 4) / static_cast<int>(few_stride(kRows));
  const std::size_t width = 2 * kPairs * hn::Lanes(F32());
  for (std::size_t c = 0; c < values; c += width)
    accumulate_few_tile<kRows, kPairs>(p, key, next, keys, c, o + c, o_stride);
}

// ---- one span ----

// Adds up to kMostKeys listed keys, more than none, to the running softmax of kRows heads. Half of the upcoming
// rows are asked for while scores are computed, half while values are added; where there is nothing to ask
// for, a key that is in the cache anyway takes the place.
template <int kRows>
HWY_NOINLINE void attend_few_rows(const float* q, std::size_t columns, const std::uint16_t** key,
                                  std::size_t keys, const Upcoming& upcoming, float scale, float* s,
                                  float* run_max, float* run_sum, float* factor, float* o,
                                  std::size_t o_stride, std::size_t values) {
  const std::uint16_t *early[kMostKeys / 2], *late[kMostKeys];
  const std::size_t half = upcoming.rows / 2;
  for (std::size_t j = 0; j < kMostKeys / 2; ++j) early[j] = j < half ? upcoming.row[j] : key[0];
  for (std::size_t j = 0; j < keys; ++j)
    late[j] = j % 2 == 1 && half + j / 2 < upcoming.rows ? upcoming.row[half + j / 2] : key[j];
  scores_few<kRows>(q, columns, key, keys, early, s);
  softmax_few<kRows>(s, keys, scale, run_max, run_sum, factor);
  if (!mutant("sparse_mla.rescale")) rescale(factor, kRows, o, o_stride, values);
  for (std::size_t j = half; j < upcoming.rows; ++j) {
    for (std::size_t c = values; c < columns; c += kLine) hwy::Prefetch(upcoming.row[j] + c);
  }
  accumulate_few<kRows>(s, key, late, keys, values, o, o_stride);
}

// For the first four of so many heads, or for all.
HWY_INLINE decltype(&attend_few_rows<1>) few_heads(std::size_t heads) {
  switch (heads) {
    case 1:
      return attend_few_rows<1>;
    case 2:
      return attend_few_rows<2>;
    case 3:
      return attend_few_rows<3>;
    default:
      return attend_few_rows<4>;
  }
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace keysieve::cpu
HWY_AFTER_NAMESPACE();

#endif  // KEYSIEVE_SPARSE_MLA_FEW_INL_H_

// attention_softmax: what happens between and after the products of attention_tile-inl.h, on the same fp32
// tiles.
#if defined(KEYSIEVE_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYSIEVE_ATTENTION_SOFTMAX_INL_H_
#undef KEYSIEVE_ATTENTION_SOFTMAX_INL_H_
#else
#define KEYSIEVE_ATTENTION_SOFTMAX_INL_H_
#endif

#include <cmath>
#include <limits>

#include "cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu {
namespace HWY_NAMESPACE {
namespace attention {

// ---- softmax ----

// e^x for x <= 0, error at most 1.1 ulp; exp(0) is 1. Below -87.33 the result is 0, not subnormal: next to
// the row's largest weight, 1, it could not be seen, and subnormal operands stall multipliers. NaN stays NaN.
HWY_INLINE VF exp_nonpositive(VF x) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  const auto exponent = hn::NearestInt(hn::Mul(x, hn::Set(df, 1.44269504088896341f)));
  const VF n = hn::ConvertTo(df, exponent);
  // ln 2 in two parts; the first has 9 trailing zero bits, so n * first is exact for |n| <= 126.
  VF r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  // |r| <= 0.3466: Taylor's remainder r^8/8! is 5e-9, a twelfth of an ulp.
  VF poly = hn::Set(df, 1.0f / 5040);
  poly = hn::MulAdd(poly, r, hn::Set(df, 1.0f / 720));
  poly = hn::MulAdd(poly, r, hn::Set(df, 1.0f / 120));
  poly = hn::MulAdd(poly, r, hn::Set(df, 1.0f / 24));
  poly = hn::MulAdd(poly, r, hn::Set(df, 1.0f / 6));
  poly = hn::MulAdd(poly, r, hn::Set(df, 0.5f));
  poly = hn::MulAdd(poly, hn::Mul(r, r), r);
  poly = hn::Add(poly, hn::Set(df, 1.0f));
  const VF power = hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
  const VF value = hn::Mul(poly, power);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -87.33f)), value);
}

// Which rows keep key j, for softmax(): bit i of word[j], 32 rows at most. Null: every row keeps every key.
using KeyWords = const std::uint32_t*;

// s: [keys][s_stride] unscaled scores in, weights out. run_max, run_sum, factor: [rows], padded like s_stride
// to whole vectors; lanes past `rows` compute on whatever is there and are never used.
HWY_INLINE void softmax(float* HWY_RESTRICT s, std::size_t s_stride, std::size_t keys, std::size_t rows,
                        float scale, KeyWords words, float* HWY_RESTRICT run_max, float* HWY_RESTRICT run_sum,
                        float* HWY_RESTRICT factor) {
  const F32 df;
  const hn::RebindToUnsigned<F32> du;
  const std::size_t lanes = hn::Lanes(df);
  const VF v_scale = hn::Set(df, scale);
  const VF none = hn::Set(df, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < rows; i += lanes) {
    const VF old_max = hn::LoadU(df, run_max + i);
    VF new_max = old_max;
    if (words == nullptr) {
      for (std::size_t j = 0; j < keys; ++j) {
        const VF x = hn::Mul(hn::LoadU(df, s + j * s_stride + i), v_scale);
        hn::StoreU(x, df, s + j * s_stride + i);
        new_max = hn::Max(new_max, x);
      }
    } else {
      const auto row_bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, static_cast<std::uint32_t>(i)));
      for (std::size_t j = 0; j < keys; ++j) {
        const auto kept = hn::TestBit(hn::Set(du, words[j]), row_bit);
        const VF x = hn::IfThenElse(hn::RebindMask(df, kept),
                                    hn::Mul(hn::LoadU(df, s + j * s_stride + i), v_scale), none);
        hn::StoreU(x, df, s + j * s_stride + i);
        new_max = hn::Max(new_max, x);
      }
    }
    // Nothing kept so far: any finite base gives weights 0 instead of exp(-inf + inf).
    const VF base = hn::IfThenZeroElse(hn::Eq(new_max, none), new_max);
    VF sum = hn::Zero(df);
    for (std::size_t j = 0; j < keys; ++j) {
      const VF weight = exp_nonpositive(hn::Sub(hn::LoadU(df, s + j * s_stride + i), base));
      hn::StoreU(weight, df, s + j * s_stride + i);
      sum = hn::Add(sum, weight);
    }
    const VF shrink = exp_nonpositive(hn::Sub(old_max, base));
    hn::StoreU(new_max, df, run_max + i);
    hn::StoreU(hn::MulAdd(hn::LoadU(df, run_sum + i), shrink, sum), df, run_sum + i);
    hn::StoreU(shrink, df, factor + i);
  }
}

HWY_INLINE void rescale(const float* HWY_RESTRICT factor, std::size_t rows, float* HWY_RESTRICT o,
                        std::size_t o_stride, std::size_t columns) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  for (std::size_t i = 0; i < rows; ++i) {
    if (factor[i] == 1.0f) continue;
    const VF f = hn::Set(df, factor[i]);
    for (std::size_t c = 0; c < columns; c += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(df, o + i * o_stride + c), f), df, o + i * o_stride + c);
    }
  }
}

// ---- finish ----

HWY_INLINE auto round_to_bf16(VF value) {
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<std::uint16_t, F32> d16;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto nearest = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  // Rounding up could carry a NaN into the sign.
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, nearest);
  // DemoteTo saturates signed values, so the upper half is moved down arithmetically.
  const hn::RebindToSigned<F32> di;
  return hn::BitCast(
      d16, hn::DemoteTo(hn::RebindToSigned<decltype(d16)>(), hn::ShiftRight<16>(hn::BitCast(di, chosen))));
}

// Where one row's result goes; one of the two pointers is null.
struct Destination {
  float* f32 = nullptr;
  std::uint16_t* bf16 = nullptr;
};

// Divides, applies the sink if there is one, rounds and stores. Returns the natural LSE without the sink.
HWY_INLINE float finish(const float* HWY_RESTRICT o, std::size_t columns, float run_max, float run_sum,
                        const float* sink, const Destination& to) {
  const F32 df;
  const hn::Rebind<std::uint16_t, F32> d16;
  const std::size_t lanes = hn::Lanes(df);
  const bool empty = run_sum == 0.0f;
  double lse = -std::numeric_limits<double>::infinity();
  double share = 0.0;
  if (!empty) {
    lse = double{run_max} + std::log(double{run_sum});
    share = 1.0 / double{run_sum};
    if (sink != nullptr) share /= 1.0 + std::exp(double{*sink} - lse);
  }
  const VF zero = hn::Zero(df);
  const VF factor = hn::Set(df, static_cast<float>(share));
  for (std::size_t c = 0; c < columns; c += lanes) {
    // + 0 turns -0 into +0. An empty row's sums may be anything.
    const VF value = empty ? zero : hn::Add(hn::Mul(hn::LoadU(df, o + c), factor), zero);
    if (to.f32 != nullptr) {
      hn::StoreU(value, df, to.f32 + c);
    } else {
      hn::StoreU(round_to_bf16(value), d16, to.bf16 + c);
    }
  }
  return static_cast<float>(lse);
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace keysieve::cpu
HWY_AFTER_NAMESPACE();

#endif  // KEYSIEVE_ATTENTION_SOFTMAX_INL_H_

// mqa_logits_decode: keys as they are stored to a tile of f32 with one key per lane, for the instruction set
// that is being compiled.
#if defined(KEYSIEVE_CPU_MQA_LOGITS_DECODE) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYSIEVE_CPU_MQA_LOGITS_DECODE
#undef KEYSIEVE_CPU_MQA_LOGITS_DECODE
#else
#define KEYSIEVE_CPU_MQA_LOGITS_DECODE
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::mqa_logits_tile::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Real = hn::ScalableTag<float>;
using Word = hn::RebindToUnsigned<Real>;
using Reals = hn::Vec<Real>;
using Words = hn::Vec<Word>;

constexpr int kLanes = HWY_LANES(float);
constexpr int kTileKeys = 3 * kLanes;
// Four vectors of 32-bit columns: lane = key, c0 the first 32 bits of each.
struct Columns {
  Words c0, c1, c2, c3;
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Columns transpose(const std::uint8_t* const* keys, std::size_t at) {
  std::uint32_t words[4];
  std::memcpy(words, keys[0] + at, sizeof(words));
  const Word d;
  return {hn::Set(d, words[0]), hn::Set(d, words[1]), hn::Set(d, words[2]), hn::Set(d, words[3])};
}
#else
// 16 bytes of keys 0, 4, 8, ... side by side.
template <class D>
HWY_INLINE hn::Vec<D> load_every_fourth(D d, const std::uint8_t* const* keys, std::size_t at) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return hn::Combine(d, load_every_fourth(half, keys + hn::MaxLanes(D()) / 2, at),
                       load_every_fourth(half, keys, at));
  } else {
    return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(keys[0] + at));
  }
}

// Bytes [at, at + 16) of kLanes keys: a 4 x 4 transposition inside each 128-bit block.
HWY_INLINE Columns transpose(const std::uint8_t* const* keys, std::size_t at) {
  const Word d;
  const hn::Repartition<std::uint64_t, Word> pair;
  const Words r0 = load_every_fourth(d, keys, at), r1 = load_every_fourth(d, keys + 1, at);
  const Words r2 = load_every_fourth(d, keys + 2, at), r3 = load_every_fourth(d, keys + 3, at);
  const auto low01 = hn::BitCast(pair, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pair, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pair, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pair, hn::InterleaveUpper(d, r2, r3));
  return {hn::BitCast(d, hn::InterleaveLower(pair, low01, low23)),
          hn::BitCast(d, hn::InterleaveUpper(pair, low01, low23)),
          hn::BitCast(d, hn::InterleaveLower(pair, high01, high23)),
          hn::BitCast(d, hn::InterleaveUpper(pair, high01, high23))};
}
#endif

struct Bf16 {
  using Code = std::uint16_t;
  static HWY_INLINE Reals widen(Words code) { return hn::BitCast(Real(), hn::ShiftLeft<16>(code)); }
  // The two elements of each lane, one row of the tile each.
  static HWY_INLINE void unpack(Words column, float* tile) {
    hn::Store(hn::BitCast(Real(), hn::ShiftLeft<16>(column)), Real(), tile);
    hn::Store(hn::BitCast(Real(), hn::And(column, hn::Set(Word(), 0xffff0000U))), Real(), tile + kTileKeys);
  }
};

struct E4m3 {
  using Code = std::uint8_t;
  // MQA-37: exact, from the code in a lane's top byte; no denormal float appears, whose cost and value depend
  // on the caller's floating-point mode. With the three fraction bits at the top of the float's, a = 2^(e-7)
  // * (1 + m/8) is right for e > 0, and 2a - 2^-6 is right for e = 0, where it is less than a and otherwise
  // never is.
  static HWY_INLINE Reals decode(Words top) {
    const Word d;
    const Real f;
    const Words seven_bits = hn::Set(d, 0x07f00000U);
    const auto shifted = hn::ShiftRight<4>(hn::BitCast(hn::RebindToSigned<Word>(), top));
    const Words magnitude = hn::And(hn::BitCast(d, shifted), seven_bits);
    const Reals normal = hn::BitCast(f, hn::Add(magnitude, hn::Set(d, 120U << 23)));
    const Reals subnormal = hn::MulAdd(normal, hn::Set(f, 2.0F), hn::Set(f, -0.015625F));
    const Reals nan = hn::BitCast(f, hn::VecFromMask(d, hn::Eq(magnitude, seven_bits)));
    const Reals sign = hn::BitCast(f, hn::And(top, hn::Set(d, 0x80000000U)));
    return hn::Or(hn::Or(hn::Min(normal, subnormal), nan), sign);
  }
  static HWY_INLINE Reals widen(Words code) { return decode(hn::ShiftLeft<24>(code)); }
  static HWY_INLINE void unpack(Words column, float* tile) {
    hn::Store(decode(hn::ShiftLeft<24>(column)), Real(), tile);
    hn::Store(decode(hn::ShiftLeft<16>(column)), Real(), tile + kTileKeys);
    hn::Store(decode(hn::ShiftLeft<8>(column)), Real(), tile + 2 * kTileKeys);
    hn::Store(decode(column), Real(), tile + 3 * kTileKeys);
  }
};

}  // namespace keysieve::cpu::mqa_logits_tile::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

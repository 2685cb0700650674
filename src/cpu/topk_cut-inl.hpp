// The keys of scores, and the exact cut among a list of them: the half of cpu.topk.filter that works on
// survivors. Compiled once per target.
#if defined(KEYSIEVE_CPU_TOPK_CUT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYSIEVE_CPU_TOPK_CUT_INL_HPP
#undef KEYSIEVE_CPU_TOPK_CUT_INL_HPP
#else
#define KEYSIEVE_CPU_TOPK_CUT_INL_HPP
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "contract/mutant.hpp"
#include "cpu/topk_scratch.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Key = std::int32_t;
constexpr Key kKeyNan = std::numeric_limits<Key>::max();
constexpr Key kKeyInf = 0x7f800000;
constexpr Key kKeyMinusInf = ~kKeyInf;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// TOP-26. Keys order like scores: NaN of either sign above +inf, -0 equal to +0 (both 0; -1 is nobody's key).
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V keys_of(D di, V bits) {
  const V magnitude_mask = hn::Set(di, 0x7fffffff);
  V key = hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), magnitude_mask));
  if (!mutant("topk.zero_sign")) key = hn::Sub(key, hn::VecFromMask(di, hn::Eq(key, hn::Set(di, -1))));
  const V magnitude = mutant("topk.nan_sign") ? bits : hn::And(bits, magnitude_mask);
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, kKeyInf)), hn::Set(di, kKeyNan), key);
}

HWY_INLINE void bits_to_keys(Key* keys, std::int64_t count) {
  const hn::ScalableTag<Key> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  for (std::int64_t i = 0; i < count; i += lanes)
    hn::StoreU(keys_of(di, hn::LoadU(di, keys + i)), di, keys + i);
}

// score <= threshold_of(key) holds exactly for keys <= key, and for -inf always.
HWY_INLINE float threshold_of(Key key) {
  if (key >= kKeyInf) return std::numeric_limits<float>::infinity();
  if (key < kKeyMinusInf) return kMinusInfinity;
  if (key == -1) key = -2;
  return std::bit_cast<float>(key >= 0 ? key : key ^ 0x7fffffff);
}

HWY_INLINE std::int64_t count_above(const Key* HWY_RESTRICT keys, std::int64_t n, Key pivot) {
  const hn::ScalableTag<Key> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  const auto bar = hn::Set(di, pivot);
  auto sum0 = hn::Zero(di);
  auto sum1 = hn::Zero(di);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::Sub(sum0, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, keys + i), bar)));
    sum1 = hn::Sub(sum1, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, keys + i + lanes), bar)));
  }
  std::int64_t count = hn::GetLane(hn::SumOfLanes(di, hn::Add(sum0, sum1)));
  for (; i < n; ++i) count += keys[i] > pivot;
  return count;
}

#if HWY_TARGET == HWY_AVX2
// For each mask of eight lanes, the lanes it keeps, one to a byte. g++ 12 copies the table inside Highway
// 1.0.3's own Compress to the stack at every call, which made a cut 12 times slower.
struct KeepTable {
  std::uint64_t lanes[256] = {};
  constexpr KeepTable() {
    for (int mask = 0; mask < 256; ++mask) {
      int kept = 0;
      for (int lane = 0; lane < 8; ++lane)
        if ((mask >> lane & 1) != 0) lanes[mask] |= static_cast<std::uint64_t>(lane) << (8 * kept++);
    }
  }
};
constexpr KeepTable kKeepTable;
#endif

// Moves the kept lanes of a vector to its front, rubbish behind them.
template <class D, class M>
struct Keeper {
#if HWY_TARGET == HWY_AVX2
  hn::Indices256<Key> lanes;
  std::int64_t count;
  HWY_INLINE Keeper(D di, M keep) {
    std::uint8_t bits[8] = {0};
    hn::StoreMaskBits(di, keep, bits);
    const hn::Rebind<std::uint8_t, D> d8;
    const auto* list = reinterpret_cast<const std::uint8_t*>(&kKeepTable.lanes[bits[0]]);
    lanes = hn::IndicesFromVec(di, hn::PromoteTo(di, hn::LoadU(d8, list)));
    count = __builtin_popcount(bits[0]);
  }
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return hn::TableLookupLanes(v, lanes);
  }
#else
  M keep;
  std::int64_t count;
  HWY_INLINE Keeper(D di, M mask) : keep(mask), count(static_cast<std::int64_t>(hn::CountTrue(di, mask))) {}
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return hn::Compress(v, keep);
  }
#endif
};

struct Cut {
  Key pivot;          // keys above it stay
  std::int64_t ties;  // and this many that equal it, the first ones
};

// The keys that a cut may still fall on.
struct Bracket {
  std::int64_t low, high;  // keys in (low, high]; 64 bits, since low may be below every key
  std::int64_t above;      // how many keys exceed high
  const Key* keys;         // those in the bracket
  std::int64_t count;
};

// Copies the keys in (low, high] to `to`, which may be `keys` itself, and tightens both ends to keys that
// occur.
HWY_INLINE Bracket narrow(const Key* keys, std::int64_t n, std::int64_t low, std::int64_t high, Key* to) {
  const hn::ScalableTag<Key> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  const auto bottom = hn::Set(di, std::numeric_limits<Key>::min());
  const auto top = hn::Set(di, std::numeric_limits<Key>::max());
  const auto first = hn::Set(di, static_cast<Key>(low + 1));
  const auto last = hn::Set(di, static_cast<Key>(high));
  auto above = hn::Zero(di);
  auto least = top;
  auto greatest = bottom;
  std::int64_t kept = 0;
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto key = hn::LoadU(di, keys + i);
    const auto too_high = hn::Gt(key, last);
    const auto outside = hn::Or(too_high, hn::Gt(first, key));
    above = hn::Sub(above, hn::VecFromMask(di, too_high));
    least = hn::Min(least, hn::IfThenElse(outside, top, key));
    greatest = hn::Max(greatest, hn::IfThenElse(outside, bottom, key));
    const Keeper keeper(di, hn::Not(outside));
    hn::StoreU(keeper(key), di, to + kept);
    kept += keeper.count;
  }
  Bracket b{hn::GetLane(hn::MinOfLanes(di, least)), hn::GetLane(hn::MaxOfLanes(di, greatest)),
            hn::GetLane(hn::SumOfLanes(di, above)), to, 0};
  for (; i < n; ++i) {
    const Key key = keys[i];
    b.above += key > high;
    if (key > high || key <= low) continue;
    b.low = key < b.low ? key : b.low;
    b.high = key > b.high ? key : b.high;
    to[kept++] = key;
  }
  b.low -= 1;
  b.count = kept;
  return b;
}

constexpr std::int64_t kPicks = 64;

// The ends of a range (low, high] that the k-th greatest of `count` keys lies in, in all likelihood.
struct Likely {
  Key low, high;  // the least and the greatest Key where the picks set no end
};

// `picks` are kPicks of the keys.
HWY_INLINE Likely likely_range(const Key* picks, std::int64_t k, std::int64_t count) {
  const float share = static_cast<float>(k) / static_cast<float>(count);
  const float doubt = 2.f * std::sqrt(kPicks * share * (1.f - share)) + 1.f;
  const auto fewest = static_cast<Key>(kPicks * share - doubt);  // picks above the upper end
  const auto most = static_cast<Key>(kPicks * share + doubt) + 1;
  // Every pick against every other, a vector of them at a time: a sum over lanes for each took five times
  // as long.
  const hn::CappedTag<Key, 16> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  const auto none_low = hn::Set(di, std::numeric_limits<Key>::min());
  const auto none_high = hn::Set(di, std::numeric_limits<Key>::max());
  auto low = none_low;
  auto high = none_high;
  for (std::int64_t i = 0; i < kPicks; i += 2 * lanes) {
    const auto pick0 = hn::LoadU(di, picks + i);
    const auto pick1 = hn::LoadU(di, picks + i + lanes);
    auto above0 = hn::Zero(di);
    auto above1 = hn::Zero(di);
    for (std::int64_t j = 0; j < kPicks; ++j) {
      const auto it = hn::Set(di, picks[j]);
      above0 = hn::Sub(above0, hn::VecFromMask(di, hn::Gt(it, pick0)));
      above1 = hn::Sub(above1, hn::VecFromMask(di, hn::Gt(it, pick1)));
    }
    const auto consider = [&](auto pick, auto above) HWY_ATTR {
      low = hn::Max(low, hn::IfThenElse(hn::Gt(hn::Set(di, most), above), none_low, pick));
      high = hn::Min(high, hn::IfThenElse(hn::Gt(above, hn::Set(di, fewest)), none_high, pick));
    };
    consider(pick0, above0);
    consider(pick1, above1);
  }
  return {hn::GetLane(hn::MaxOfLanes(di, low)), hn::GetLane(hn::MinOfLanes(di, high))};
}

// The bracket tightened to where its picks say that the cut lies.
HWY_INLINE Bracket likely_bracket(const Bracket& b, std::int64_t k) {
  Key picks[kPicks];
  for (std::int64_t i = 0; i < kPicks; ++i) picks[i] = b.keys[i * b.count / kPicks];
  const Likely range = likely_range(picks, k - b.above, b.count);
  Bracket likely = b;
  if (range.low > b.low && range.low > std::numeric_limits<Key>::min()) likely.low = range.low;
  if (range.high < b.high) likely.high = range.high;
  return likely;
}

// The cut that leaves k of n > k keys; with `most` > k, any pivot with k to `most` keys above it will do.
// Long lists shrink to likely brackets, to about a quarter a round, short ones are bisected by counting:
// three instructions for eight keys. The bits of a key bound the rounds, whatever the keys. `spare` has room
// for n keys and a vector.
HWY_INLINE Cut find_cut(const Key* keys, std::int64_t n, std::int64_t k, std::int64_t most, Key* spare) {
  constexpr std::int64_t kLong = 256;
  // More than `most` keys exceed b.low; fewer than k exceed b.high.
  Bracket b{std::int64_t{std::numeric_limits<Key>::min()} - 1, std::numeric_limits<Key>::max(), 0, keys, n};
  int misses = 0;
  while (b.count > kLong && misses < 2 && b.high - b.low > 1) {
    const Bracket likely = likely_bracket(b, k);
    const Bracket inner = narrow(b.keys, b.count, likely.low, likely.high, spare);
    const std::int64_t above_high = b.above + inner.above;
    const std::int64_t above_low = above_high + inner.count;
    if (above_high >= k && above_high <= most) return {static_cast<Key>(likely.high), 0};
    if (above_low >= k && above_low <= most) return {static_cast<Key>(likely.low), 0};
    if (above_high < k && above_low > most) {
      misses += inner.count > b.count / 2;  // one key may be most of the list
      b = inner;
      b.above = above_high;
    } else {  // it lies beside the likely bracket
      ++misses;
      b = above_low < k ? narrow(keys, n, b.low, likely.low, spare)
                        : narrow(keys, n, likely.high, b.high, spare);
    }
  }
  std::int64_t low = b.low, high = b.high, above_high = b.above;
  for (int round = 1; high - low > 1; ++round) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::int64_t above = b.above + count_above(b.keys, b.count, static_cast<Key>(middle));
    if (above >= k && above <= most) return {static_cast<Key>(middle), 0};
    if (above > most) {
      low = middle;
    } else {
      high = middle;
      above_high = above;
    }
    // To keys that occur: few distinct keys take few rounds.
    if (round % 8 == 4) {
      b = narrow(b.keys, b.count, low, high, spare);
      b.above = above_high;
      low = b.low;
      high = b.high;
    }
  }
  return {static_cast<Key>(high), k - above_high};
}

// 3. Keeps the best of `count` survivors, in column order; returns how many.
HWY_INLINE std::int64_t apply_cut(const RowScratch& s, std::int64_t count, const Cut& cut) {
  Key last_tie = -1;
  std::int64_t at = 0;
  for (std::int64_t left = cut.ties; left > 0; ++at) left -= s.keys[at] == cut.pivot;
  if (at > 0) last_tie = mutant("topk.tie_order") ? s.columns[count - 1] : s.columns[at - 1];
  const hn::ScalableTag<Key> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  const auto bar = hn::Set(di, cut.pivot);
  const auto last = hn::Set(di, last_tie);
  std::int64_t kept = 0;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto key = hn::LoadU(di, s.keys + i);
    const auto column = hn::LoadU(di, s.columns + i);
    const auto tie = hn::AndNot(hn::Gt(column, last), hn::Eq(key, bar));
    const Keeper keeper(di, hn::Or(hn::Gt(key, bar), tie));
    hn::StoreU(keeper(key), di, s.keys + kept);
    hn::StoreU(keeper(column), di, s.columns + kept);
    kept += keeper.count;
  }
  for (; i < count; ++i) {
    const bool keep = s.keys[i] > cut.pivot || (s.keys[i] == cut.pivot && s.columns[i] <= last_tie);
    s.keys[kept] = s.keys[i];
    s.columns[kept] = s.columns[i];
    kept += keep;
  }
  return kept;
}

}  // namespace keysieve::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// The k greatest scores of one row, in column order: the inner half of cpu.topk.filter, once per target.
//
//   1. Guess.   A sample gives a threshold that about k + 4 sigma of the row's scores exceed.
//   2. Filter.  One pass over the row, 64 scores to a word of bits, keeps the columns above the threshold.
//   3. Cut.     When the list of survivors is full it is cut to its k best, and the least of them becomes the
//               threshold: an equal score that comes later has a larger column and cannot enter. So a row of
//               equal scores costs one cut, and no order of scores needs more room than the list (TOP-25).
//   4. Again.   A guess that was too high (fewer than k survivors) repeats step 2 without one.
//
// Step 2 compares floats (NaN is never at or below a threshold, -0 equals +0), steps 1 and 3 compare integer
// keys of the same order.
#if defined(KEYSIEVE_CPU_TOPK_ROW_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYSIEVE_CPU_TOPK_ROW_INL_HPP
#undef KEYSIEVE_CPU_TOPK_ROW_INL_HPP
#else
#define KEYSIEVE_CPU_TOPK_ROW_INL_HPP
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "contract/mutant.hpp"
#include "cpu/bits.hpp"
#include "cpu/topk_cut-inl.hpp"
#include "cpu/topk_scratch.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether any of 64 scores is above the threshold or NaN.
HWY_INLINE bool any_survivor64(const float* HWY_RESTRICT scores, float threshold) {
  const hn::CappedTag<float, 16> df;
  const auto bar = hn::Set(df, threshold);
  const std::size_t lanes = hn::Lanes(df);
  auto rejected = hn::Le(hn::LoadU(df, scores), bar);
  for (std::size_t i = lanes; i < 64; i += lanes)
    rejected = hn::And(rejected, hn::Le(hn::LoadU(df, scores + i), bar));
  return !hn::AllTrue(df, rejected);
}

// Bit i of the word: score i is above the threshold or NaN.
HWY_INLINE std::uint64_t survivors64(const float* HWY_RESTRICT scores, float threshold) {
  const hn::CappedTag<float, 16> df;
  const auto bar = hn::Set(df, threshold);
#if HWY_TARGET == HWY_AVX2
  // Four comparisons become one byte mask before they leave the vector unit. Eight movmskps to a word
  // take 1.4 times a max pass, this 1.08 times. Highway 1.0.3 has no 16 to 8 bit pack of two vectors.
  const hn::Repartition<std::int32_t, decltype(df)> di;
  const hn::Repartition<std::int16_t, decltype(df)> dh;
  alignas(32) static constexpr std::int32_t kInOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const auto in_order = hn::SetTableIndices(di, kInOrder);
  const auto rejected = [&](int at) HWY_ATTR {
    return hn::BitCast(di, hn::VecFromMask(df, hn::Le(hn::LoadU(df, scores + at), bar)));
  };
  const auto rejected32 = [&](int at) HWY_ATTR {
    const auto first = hn::ReorderDemote2To(dh, rejected(at), rejected(at + 8));
    const auto second = hn::ReorderDemote2To(dh, rejected(at + 16), rejected(at + 24));
    const hn::Vec256<std::int32_t> bytes{_mm256_packs_epi16(first.raw, second.raw)};
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(hn::TableLookupLanes(bytes, in_order).raw));
  };
  return ~(rejected32(0) | static_cast<std::uint64_t>(rejected32(32)) << 32);
#elif HWY_TARGET == HWY_AVX3
  // Mask registers need no way through memory.
  const auto rejected = [&](int at) HWY_ATTR {
    const auto mask = hn::Le(hn::LoadU(df, scores + at), bar);
    return std::uint64_t{mask.raw};
  };
  return ~(rejected(0) | rejected(16) << 16 | rejected(32) << 32 | rejected(48) << 48);
#else
  const std::size_t lanes = hn::Lanes(df);
  std::uint64_t rejected = 0;
  for (std::size_t i = 0; i < 64; i += lanes) {
    std::uint8_t bits[8] = {0};
    hn::StoreMaskBits(df, hn::Le(hn::LoadU(df, scores + i), bar), bits);
    rejected |= (bits[0] | static_cast<std::uint64_t>(bits[1]) << 8) << i;
  }
  return ~rejected;
#endif
}

// How many survivors a chunk is likely to have; each has a filter that suits it.
enum class Density { rare, few, some, many };

// 2. Appends the survivors among `length` scores, the first of which is column `first`: their columns, and
// their scores' bits in place of keys.
//   rare  less than one in two words: a test and a branch skip the rest. 1.08 times a max pass over 1,048,576
//         scores, against 1.22 without the branch.
//   few   around one a word: a branch would be mispredicted too often, so every word's bits are taken apart, two
//         at once.
//   some  a few a word: likewise, four at once.
//   many  vector by vector, moving the kept lanes to the front.
template <Density density>
HWY_INLINE std::int64_t filter_chunk(const float* HWY_RESTRICT scores, std::int64_t length,
                                     std::int64_t first, float threshold, const RowScratch& s,
                                     std::int64_t count) {
  std::int64_t keyed = count;
  std::int64_t i = 0;
  if constexpr (density == Density::many) {
    const hn::ScalableTag<float> df;
    const hn::RebindToSigned<decltype(df)> di;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
    const auto bar = hn::Set(df, threshold);
    auto columns =
        hn::Iota(di, static_cast<Key>(first));  // not in the loop: Highway 1.0.3 loads it from the stack
    const auto step = hn::Set(di, static_cast<Key>(lanes));
    for (; i + lanes <= length; i += lanes) {
      const auto score = hn::LoadU(df, scores + i);
      const Keeper keeper(di, hn::RebindMask(di, hn::Not(hn::Le(score, bar))));
      hn::StoreU(keeper(hn::BitCast(di, score)), di, s.keys + count);
      hn::StoreU(keeper(columns), di, s.columns + count);
      columns = hn::Add(columns, step);
      count += keeper.count;
    }
    keyed = count;
  } else {
    constexpr int kAtOnce = density == Density::some ? 4 : 2;
    for (; i + 64 <= length; i += 64) {
      if (density == Density::rare && HWY_LIKELY(!any_survivor64(scores + i, threshold))) continue;
      count += append_bits<kAtOnce>(s.columns + count, survivors64(scores + i, threshold),
                                    static_cast<Key>(first + i));
    }
  }
  if (i < length && !mutant("topk.tail")) {
    float tail[64];
    for (float& x : tail) x = kMinusInfinity;  // which no threshold lets through
    std::memcpy(tail, scores + i, static_cast<std::size_t>(length - i) * sizeof(float));
    count += append_bits(s.columns + count, survivors64(tail, threshold), static_cast<Key>(first + i));
  }
  for (; keyed < count; ++keyed) std::memcpy(s.keys + keyed, scores + (s.columns[keyed] - first), 4);
  return count;
}

// 1. A threshold that k of the n scores exceed in all likelihood, and not many more; -inf where a sample
// tells nothing. Runs start at scattered places, so that no period of the data can hide from them.
template <class Source>
HWY_INLINE float guess_threshold(const Source& source, std::int64_t n, std::int64_t k, const RowScratch& s) {
  if (n < kLeastGuessed || n <= 2 * k) return kMinusInfinity;
  const std::int64_t sample = sample_size(n, k);
  const std::int64_t run = sample_run(n);
  const std::int64_t step = n / (sample / run);
  const auto places = static_cast<std::uint64_t>(step - run + 1);
  std::uint32_t state = 0x9e3779b9u;
  for (std::int64_t i = 0; i < sample; i += run) {
    state = state * 1664525u + 1013904223u;
    const std::int64_t at = i / run * step + static_cast<std::int64_t>((state * places) >> 32);
    const float* scores = source.fetch(at, run, s.chunk);
    std::memcpy(s.keys + i, scores, kSampleRun * sizeof(float));
    if (run > kSampleRun)
      std::memcpy(s.keys + i + kSampleRun, scores + kSampleRun, kSampleRun * sizeof(float));
  }
  bits_to_keys(s.keys, sample);
  const double expected = static_cast<double>(k) * static_cast<double>(sample) / static_cast<double>(n);
  const auto rank = static_cast<std::int64_t>(expected + 4.0 * std::sqrt(expected) + 3.0);
  if (rank + rank / 8 >= sample) return kMinusInfinity;
  const Cut cut = find_cut(s.keys, sample, rank, rank + rank / 8, s.spare);
  return threshold_of(cut.ties > 0 ? cut.pivot - 1 : cut.pivot);
}

// Leaves the columns of the best min(k, n) scores other than -inf in s.columns, ascending; returns how many.
// source.fetch(first, count, buffer) gives `count` scores, the row's own or a copy in buffer.
template <class Source>
HWY_INLINE std::int64_t select_row(const Source& source, std::int64_t n, std::int64_t k,
                                   const RowScratch& s) {
  float guess = guess_threshold(source, n, k, s);
  for (;;) {
    float threshold = guess;
    Density density = k > n / 24 || guess == kMinusInfinity ? Density::many : Density::few;
    std::int64_t count = 0;
    std::int64_t keyed = 0;  // entries whose keys are made; behind them s.keys holds score bits
    for (std::int64_t first = 0; first < n; first += kChunk) {
      if (count + kChunk > s.capacity) {
        bits_to_keys(s.keys + keyed, count - keyed);
        const Cut cut = find_cut(s.keys, count, k, k, s.spare);
        count = keyed = apply_cut(s, count, cut);
        if (cut.pivot == kKeyNan) break;  // k NaN: nothing ranks above
        threshold = threshold_of(mutant("topk.threshold") ? cut.pivot + 1 : cut.pivot);
      }
      const std::int64_t length = n - first < kChunk ? n - first : kChunk;
      const float* scores = source.fetch(first, length, s.chunk);
      const std::int64_t before = count;
      if (density == Density::rare) {
        count = filter_chunk<Density::rare>(scores, length, first, threshold, s, count);
      } else if (density == Density::few) {
        count = filter_chunk<Density::few>(scores, length, first, threshold, s, count);
      } else if (density == Density::some) {
        count = filter_chunk<Density::some>(scores, length, first, threshold, s, count);
      } else {
        count = filter_chunk<Density::many>(scores, length, first, threshold, s, count);
      }
      const std::int64_t found = count - before;  // of kChunk: neighbouring chunks are alike
      density = found < kChunk / 256  ? Density::rare
                : found < kChunk / 32 ? Density::few
                : found < kChunk / 16 ? Density::some
                                      : Density::many;
    }
    if (count < k && guess > kMinusInfinity && !mutant("topk.again")) {
      guess = kMinusInfinity;
      continue;
    }
    if (count <= k) return count;
    bits_to_keys(s.keys + keyed, count - keyed);
    return apply_cut(s, count, find_cut(s.keys, count, k, k, s.spare));
  }
}

}  // namespace keysieve::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

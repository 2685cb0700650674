// The k greatest scores of one row, in column order: the inner half of cpu.topk.filter, once per target.
//
//   1. Guess.   A sample gives a threshold that about k + 3 sigma of the row's scores exceed.
//   2. Filter.  One pass over the row keeps the columns above the threshold. Where they are few, a batch of scores
//               is marked, 64 to a word of bits, before the columns are made from the marks: neither loop has a
//               branch that depends on the data, and the marks take 1.1 max passes.
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
  const auto rejected = [&](int at) HWY_ATTR { return hn::Le(hn::LoadU(df, scores + at), bar).raw; };
  const auto rejected32 = [&](int at) HWY_ATTR { return _mm512_kunpackw(rejected(at + 16), rejected(at)); };
  return ~std::uint64_t{_mm512_kunpackd(rejected32(32), rejected32(0))};
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

// The up to 64 scores that a row ends with, padded with -inf, which no threshold lets through.
HWY_INLINE std::uint64_t survivors_of_tail(const float* HWY_RESTRICT scores, std::int64_t length,
                                           float threshold) {
  if (mutant("topk.tail")) return 0;
  float tail[64];
  for (float& x : tail) x = kMinusInfinity;
  std::memcpy(tail, scores, static_cast<std::size_t>(length) * sizeof(float));
  return survivors64(tail, threshold);
}

// 2. Sparse: marks the survivors among `length` scores, a bit each; returns how many.
HWY_INLINE std::int64_t mark(const float* HWY_RESTRICT scores, std::int64_t length, float threshold,
                             std::uint64_t* HWY_RESTRICT words) {
  std::int64_t found = 0;
  std::int64_t i = 0;
  for (; i + 64 <= length; i += 64) {
    *words = survivors64(scores + i, threshold);
    found += __builtin_popcountll(*words++);
  }
  if (i < length) {
    *words = survivors_of_tail(scores + i, length - i, threshold);
    found += __builtin_popcountll(*words++);
  }
  std::memset(words, 0, kSlack);  // append_marked() reads whole vectors of words
  return found;
}

// Appends the columns of a batch's marked scores. The empty half words are sorted out without a branch, which
// would be mispredicted at every other one.
HWY_INLINE void append_marked(const std::uint64_t* words, std::int64_t length, std::int64_t first,
                              std::int64_t found, std::int32_t* HWY_RESTRICT columns) {
  const std::int64_t count = (length + 63) / 64;
  if (found > count / 4 * 3) {
    for (std::int64_t i = 0; i < count; ++i)
      columns += append_bits<4>(columns, words[i], static_cast<Key>(first + 64 * i));
    return;
  }
  const hn::ScalableTag<Key> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  Key bits[kBatch / 32 + kSlack], bases[kBatch / 32 + kSlack];
  const auto* halves = reinterpret_cast<const Key*>(words);
  auto base = hn::Add(hn::Set(di, static_cast<Key>(first)), hn::ShiftLeft<5>(hn::Iota(di, 0)));
  const auto step = hn::Set(di, static_cast<Key>(32 * lanes));
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < 2 * count; i += lanes) {
    const auto half = hn::LoadU(di, halves + i);
    const Keeper keeper(di, hn::Ne(half, hn::Zero(di)));
    hn::StoreU(keeper(half), di, bits + used);
    hn::StoreU(keeper(base), di, bases + used);
    used += keeper.count;
    base = hn::Add(base, step);
  }
  for (std::int64_t i = 0; i < used; ++i)
    columns += append_bits<2>(columns, static_cast<std::uint32_t>(bits[i]), bases[i]);
}

// The bits of the scores in `columns`, in place of keys.
HWY_INLINE void copy_bits(const float* HWY_RESTRICT scores, const std::int32_t* HWY_RESTRICT columns,
                          std::int64_t count, Key* HWY_RESTRICT keys) {
  for (std::int64_t i = 0; i < count; ++i) keys[i] = std::bit_cast<Key>(scores[columns[i]]);
}

// 2. Dense: appends the survivors among `length` scores, the first of which is column `first`, vector by
// vector, moving the kept lanes to the front: their columns, and their bits in place of keys.
HWY_INLINE std::int64_t filter_dense(const float* HWY_RESTRICT scores, std::int64_t length,
                                     std::int64_t first, float threshold, std::int32_t* HWY_RESTRICT columns,
                                     Key* HWY_RESTRICT keys) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const auto bar = hn::Set(df, threshold);
  auto column =
      hn::Iota(di, static_cast<Key>(first));  // not in the loop: Highway 1.0.3 loads it from the stack
  const auto step = hn::Set(di, static_cast<Key>(lanes));
  std::int64_t count = 0;
  std::int64_t i = 0;
  for (; i + lanes <= length; i += lanes) {
    const auto score = hn::LoadU(df, scores + i);
    const Keeper keeper(di, hn::RebindMask(di, hn::Not(hn::Le(score, bar))));
    hn::StoreU(keeper(hn::BitCast(di, score)), di, keys + count);
    hn::StoreU(keeper(column), di, columns + count);
    column = hn::Add(column, step);
    count += keeper.count;
  }
  if (i < length) {
    const std::int64_t found = append_bits(
        columns + count, survivors_of_tail(scores + i, length - i, threshold), static_cast<Key>(first + i));
    copy_bits(scores - first, columns + count, found, keys + count);
    count += found;
  }
  return count;
}

// Where run `i` of the sample starts: at a scattered place of its stretch, so that no period of the data can hide
// from the sample.
HWY_INLINE std::int64_t run_place(std::int64_t i, std::int64_t step, std::int64_t run) {
  const std::uint32_t golden = static_cast<std::uint32_t>(i) * 0x9e3779b9u;
  return i * step + static_cast<std::int64_t>((golden * static_cast<std::uint64_t>(step - run + 1)) >> 32);
}

// 1. A threshold that k of the n scores exceed in all likelihood, and not many more; -inf where a sample
// tells nothing. The sample is treated as the row is: a few picks tell below what its scores need no look.
template <class Source>
HWY_INLINE float guess_threshold(const Source& source, std::int64_t n, std::int64_t k, const RowScratch& s) {
  if (n < kLeastGuessed || n <= 2 * k) return kMinusInfinity;
  const std::int64_t sample = sample_size(n, k);
  const std::int64_t run = sample_run(n);
  const std::int64_t runs = sample / run;
  const std::int64_t step = n / runs;
  const double expected = static_cast<double>(k) * static_cast<double>(sample) / static_cast<double>(n);
  // The second doubt is for a row in order, whose best k may hold one run more than their share.
  const double doubt = 2.5 * std::sqrt(expected) + 3.0;
  const double another_run = static_cast<double>(run) + 1.0;
  const auto rank = static_cast<std::int64_t>(expected + (doubt > another_run ? doubt : another_run));
  const std::int64_t most = rank + rank / 16;
  if (most >= sample) return kMinusInfinity;
  Key picks[kPicks];
  for (std::int64_t i = 0; i < kPicks; ++i)
    std::memcpy(picks + i, source.fetch(run_place(i * runs / kPicks, step, run), kSampleRun, s.batch), 4);
  bits_to_keys(picks, kPicks);
  const hn::CappedTag<float, kSampleRun> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const auto filter_runs = [&](float threshold, Key* HWY_RESTRICT keys) HWY_ATTR {
    const auto bar = hn::Set(df, threshold);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < runs; ++i) {
      const float* scores = source.fetch(run_place(i, step, run), run, s.batch);
      for (std::int64_t j = 0; j < run; j += lanes) {
        const auto score = hn::LoadU(df, scores + j);
        const Keeper keeper(di, hn::RebindMask(di, hn::Not(hn::Le(score, bar))));
        hn::StoreU(keeper(hn::BitCast(di, score)), di, keys + kept);
        kept += keeper.count;
      }
    }
    return kept;
  };
  float least = threshold_of(likely_range(picks, rank, sample).low);
  std::int64_t kept = filter_runs(least, s.keys);
  if (kept < rank && least > kMinusInfinity) {  // the picks misled
    least = kMinusInfinity;
    kept = filter_runs(least, s.keys);
  }
  if (kept <= most) return kept < rank ? kMinusInfinity : least;
  bits_to_keys(s.keys, kept);
  const Cut cut = find_cut(s.keys, kept, rank, most, s.spare);
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
    bool dense = k > n / 24 || guess == kMinusInfinity;
    std::int64_t batch = kChunk;
    std::int64_t count = 0;
    std::int64_t keyed = 0;  // entries whose keys are made; behind them s.keys holds score bits
    for (std::int64_t first = 0; first < n;) {
      if (count + kChunk > s.capacity) {
        bits_to_keys(s.keys + keyed, count - keyed);
        const Cut cut = find_cut(s.keys, count, k, k, s.spare);
        count = keyed = apply_cut(s, count, cut);
        if (cut.pivot == kKeyNan) break;  // k NaN: nothing ranks above
        threshold = threshold_of(mutant("topk.threshold") ? cut.pivot + 1 : cut.pivot);
      }
      const std::int64_t most = dense ? kChunk : batch;
      const std::int64_t length = n - first < most ? n - first : most;
      const float* scores = source.fetch(first, length, s.batch);
      if (dense) {
        const std::int64_t found =
            filter_dense(scores, length, first, threshold, s.columns + count, s.keys + count);
        count += found;
        dense = found > length / 16;
      } else {
        std::uint64_t words[kBatch / 64 + kSlack];
        const std::int64_t found = mark(scores, length, threshold, words);
        if (found > length / 16 || count + found > s.capacity) {  // a chunk has room
          dense = true;
          batch = kChunk;
          continue;
        }
        append_marked(words, length, first, found, s.columns + count);
        copy_bits(scores - first, s.columns + count, found, s.keys + count);
        count += found;
        batch = batch < kBatch ? 2 * batch : batch;
      }
      first += length;
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

// cpu.packed_mask.rows: one row at a time, its bits set in scratch that stays in cache, its words written
// once.
//
//   1. A task takes a strip of rows of one request; a row's token, keys and bounds are looked up. Padding
//      rows are zeros (PKM-33).
//   2. Bits are set in the row of scratch:
//      indices: a vector of indices becomes a vector of words and one of bits, then one `or` in L1 each. An
//      index that has no bit is moved to one place behind the keys, which is cleared afterwards: no branch to
//      predict. candidates: a run of bits each. scores: 32 comparisons give one word.
//   3. With a summary, the row is joined to the strip's `or` and `and`.
//   4. The row is copied to the mask and cleared for the next one.
//
// Scratch: the words of one row, three times that with a summary, per worker.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/packed_mask_rows.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "contract/mutant.hpp"
#include "contract/sizes.hpp"
#include "cpu/denormals.hpp"
#include "cpu/mask_requests.hpp"
#include "cpu/parallel.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/packed_mask.hpp"

#ifndef KEYSIEVE_CPU_PACKED_MASK_ROWS
#define KEYSIEVE_CPU_PACKED_MASK_ROWS
namespace keysieve::cpu::packed_mask_rows {

inline constexpr std::int64_t kTile = 128;  // rows and keys of a summary's tile

inline bool has_summary(const PackedMaskArgs& a) { return a.any.given() || a.all.given(); }

// Words of one worker's row, with room for the place of indices that have no bit, in whole cache lines.
inline std::int64_t scratch_words(const PackedMaskArgs& a) { return (a.mask.shape[2] + 1 + 15) / 16 * 16; }

inline std::size_t scratch_bytes(const PackedMaskArgs& a) {
  return static_cast<std::size_t>(scratch_words(a)) * 4 * (has_summary(a) ? 3 : 1);
}

// Sets bits [first, last).
inline void set_run(std::uint32_t* row, std::int64_t first, std::int64_t last) {
  while (first < last) {
    const std::int64_t count = std::min(32 - first % 32, last - first);
    row[first / 32] |= ~std::uint32_t{0} >> (32 - count) << (first % 32);
    first += count;
  }
}

inline float to_float(float score) { return score; }
inline float to_float(std::uint16_t bf16) { return std::bit_cast<float>(std::uint32_t{bf16} << 16); }

// The words of a tile, or of the part of one that a row has, all set where bits [0, count) are concerned.
inline bool all_set(const std::uint32_t* words, std::int64_t first_word, std::int64_t count) {
  for (std::int64_t word = first_word; word < first_word + 4; ++word) {
    const std::int64_t meaning = std::clamp<std::int64_t>(count - word * 32, 0, 32);
    const std::uint32_t wanted = meaning == 0 ? 0 : ~std::uint32_t{0} >> (32 - meaning);
    if ((words[word] & wanted) != wanted) return false;
  }
  return true;
}

}  // namespace keysieve::cpu::packed_mask_rows
#endif

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::packed_mask_rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sets the bit of each index inside the keys; PKM-35: order and repeats do not matter.
void set_indices(const std::int32_t* list, std::int64_t stride, std::int64_t count, const MaskKeys& keys,
                 std::uint32_t* row) {
  constexpr std::int64_t kChunk = 64;
  [[maybe_unused]] constexpr std::int64_t kAhead = 1024;
  const hn::CappedTag<std::uint32_t, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, static_cast<std::uint32_t>(keys.low));
  // Unsigned, so that an index below `low`, also a negative one, is past the span too.
  const auto span = hn::Set(d, static_cast<std::uint32_t>(keys.high - keys.low));
  const std::int64_t shift = mutant("packed_mask.first") ? 0 : keys.low - keys.first;
  const auto shifted = hn::Set(d, static_cast<std::uint32_t>(shift));
  alignas(64) std::int32_t indices[kChunk];
  alignas(64) std::uint32_t words[kChunk];
  alignas(64) std::uint32_t bits[kChunk];
  for (std::int64_t first = 0; first < count; first += kChunk) {
    const std::int64_t length = std::min(kChunk, count - first);
    const std::int32_t* from = list + first;
    if (stride != 1 || length < kChunk) {
      for (std::int64_t i = 0; i < length; ++i) indices[i] = list[(first + i) * stride];
      for (std::int64_t i = length; i < kChunk; ++i) indices[i] = -1;
      from = indices;
    }
    // What the rows' ends cost otherwise: a list of 8 KB goes by faster than memory follows without being asked.

    for (std::int64_t i = 0; i < kChunk; i += lanes) {
      const auto index = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(from + i));
      const auto bit = hn::Add(hn::Min(hn::Sub(index, low), span), shifted);
      hn::Store(hn::ShiftRight<5>(bit), d, words + i);
      hn::Store(hn::Shl(hn::Set(d, 1u), hn::And(bit, hn::Set(d, 31u))), d, bits + i);
    }
    // Four places of the list by turns: neighbours of a sorted one mostly share a word, and would wait for
    // each other's store.
    for (std::int64_t i = 0; i < kChunk / 8; ++i)
      for (std::int64_t j = i; j < kChunk; j += kChunk / 8) row[words[j]] |= bits[j];
  }
  const std::int64_t nowhere = keys.high - keys.low + shift;
  if (!mutant("packed_mask.range")) row[nowhere / 32] &= ~(std::uint32_t{1} << (nowhere % 32));
}

// PKM-36: every key of the listed blocks; ids past the keys and products past 64 bits mark nothing.
void set_candidates(const std::int32_t* list, std::int64_t stride, std::int64_t count,
                    std::int64_t block_size, const MaskKeys& keys, std::uint32_t* row) {
  const std::int64_t last_block = (keys.high - 1) / block_size;
  // Blocks that lie within one word, as those of 8 and 16 keys do where the range starts at a block, take one
  // `or`.
  const bool aligned = block_size <= 32 && std::has_single_bit(static_cast<std::uint64_t>(block_size)) &&
                       keys.first % block_size == 0;
  const std::int64_t whole_low = aligned ? (keys.low + block_size - 1) / block_size : 0;
  const std::int64_t whole_high = aligned ? keys.high / block_size : 0;
  const int shift = aligned ? std::countr_zero(static_cast<std::uint64_t>(block_size)) : 0;
  const std::uint32_t ones = ~std::uint32_t{0} >> (aligned ? 32 - block_size : 0);
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t block = list[j * stride];
    if (HWY_LIKELY(block >= whole_low && block < whole_high)) {
      const std::int64_t bit = (block << shift) - keys.first;
      row[bit / 32] |= ones << (bit % 32);
      continue;
    }
    if (block < 0 || block > last_block) continue;
    const std::int64_t key = block * block_size;
    const std::int64_t end = key + std::min(block_size, keys.high - key);
    set_run(row, std::max(key, keys.low) - keys.first, end - keys.first);
  }
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
}

// PKM-37: a score at or above the threshold, or NaN. `scores` is the one of local key 0.
template <class T>
void set_scores(const T* scores, std::int64_t stride, float threshold, const MaskKeys& keys,
                std::uint32_t* row) {
  const auto kept = [&](std::int64_t key) {
    const float score = to_float(scores[key * stride]);
    return score >= threshold || (score != score && !mutant("packed_mask.nan"));
  };
  const auto set_one = [&](std::int64_t key) {
    const std::int64_t bit = key - keys.first;
    row[bit / 32] |= std::uint32_t{kept(key)} << (bit % 32);
  };
  std::int64_t key = keys.low;
  for (; key < keys.high && (stride != 1 || (key - keys.first) % 32 != 0); ++key) set_one(key);
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto bar = hn::Set(d, threshold);
  for (; key + 32 <= keys.high; key += 32) {
    std::uint32_t word = 0;
    for (std::int64_t i = 0; i < 32; i += lanes) {
      const auto score = load(d, scores + key + i);
      std::uint8_t bits[8] = {0};
      hn::StoreMaskBits(d, hn::Or(hn::Ge(score, bar), hn::IsNaN(score)), bits);
      word |= (bits[0] | std::uint32_t{bits[1]} << 8) << i;
    }
    row[(key - keys.first) / 32] = word;
  }
  for (; key < keys.high; ++key) set_one(key);
}

void set_bits(const PackedMaskArgs& a, std::int64_t token, MaskKeys keys, std::uint32_t* row) {
  if (keys.high <= keys.low) return;
  if (a.indices.given())
    return set_indices(static_cast<const std::int32_t*>(a.indices.data) + token * a.indices.stride[0],
                       a.indices.stride[1], a.indices.shape[1], keys, row);
  // Keys are counted from the row's start; it sees none outside its bounds.
  RowRange visible{0, a.scores.given() ? a.scores.shape[1] : std::int64_t{1} << 31};
  if (a.bounds.end.given() && !mutant("packed_mask.bounds"))
    visible = row_range(a.bounds, token, visible.end);
  keys.high = std::min(keys.high, visible.size());
  if (keys.high <= keys.low) return;
  if (a.candidates.given())
    return set_candidates(
        static_cast<const std::int32_t*>(a.candidates.data) + token * a.candidates.stride[0],
        a.candidates.stride[1], a.candidates.shape[1], a.block_size, keys, row);
  const float threshold = static_cast<const float*>(a.thresholds.data)[token * a.thresholds.stride[0]];
  const std::int64_t at = token * a.scores.stride[0] + visible.start * a.scores.stride[1];
  if (a.scores.dtype == DType::bf16)
    set_scores(static_cast<const std::uint16_t*>(a.scores.data) + at, a.scores.stride[1], threshold, keys,
               row);
  else
    set_scores(static_cast<const float*>(a.scores.data) + at, a.scores.stride[1], threshold, keys, row);
}

// 3.
void join(const std::uint32_t* HWY_RESTRICT row, std::int64_t words, std::uint32_t* HWY_RESTRICT any,
          std::uint32_t* HWY_RESTRICT all) {
  for (std::int64_t word = 0; word < words; ++word) {
    any[word] |= row[word];
    all[word] &= row[word];
  }
}

// PKM-38: bit t of `any` and `all` is tile t of the strip; bits past the last tile are 0.
void write_summary(const PackedMaskArgs& a, std::int64_t request, std::int64_t strip, std::int64_t count,
                   const std::uint32_t* any, const std::uint32_t* all) {
  const std::int64_t tiles = a.mask.shape[2] / 4;
  for (std::int64_t place = 0; place * 32 < tiles; ++place) {
    std::uint32_t any_bits = 0, all_bits = 0;
    for (std::int64_t tile = place * 32; tile < std::min(place * 32 + 32, tiles); ++tile) {
      const std::uint32_t* words = any + tile * 4;
      const bool some = (words[0] | words[1] | words[2] | words[3]) != 0;
      any_bits |= std::uint32_t{some} << (tile % 32);
      all_bits |=
          std::uint32_t{all_set(all, tile * 4, mutant("packed_mask.all") ? a.mask.shape[2] * 32 : count)}
          << (tile % 32);
    }
    const auto store = [&](const Tensor& t, std::uint32_t bits) {
      if (!t.given()) return;
      static_cast<std::uint32_t*>(t.data)[request * t.stride[0] + strip * t.stride[1] + place * t.stride[2]] =
          bits;
    };
    store(a.any, any_bits);
    store(a.all, all_bits);
  }
}

// Rows [first_row, last_row) of one request.
void build_strip(const PackedMaskArgs& a, std::int64_t request, std::int64_t first_row, std::int64_t last_row,
                 std::uint32_t* row) {
  const Tensor& source = a.indices.given() ? a.indices : a.candidates.given() ? a.candidates : a.scores;
  const std::int64_t words = a.mask.shape[2];
  const auto row_bytes = static_cast<std::size_t>(words) * 4;
  std::uint32_t *any = row + scratch_words(a), *all = any + scratch_words(a);
  const bool summary = has_summary(a);
  if (summary) {
    std::memset(any, 0, row_bytes);
    std::memset(all, 0xff, row_bytes);
  }
  const MaskKeys keys = mask_keys(a, request);
  std::memset(row, 0, row_bytes + 4);
  for (std::int64_t r = first_row; r < last_row; ++r) {
    auto* out = static_cast<std::uint32_t*>(a.mask.data) + request * a.mask.stride[0] + r * a.mask.stride[1];
    const std::int64_t token = mask_token(a, request, r, source.shape[0]);
    if (token < 0) {
      if (!mutant("packed_mask.padding")) std::memset(out, 0, row_bytes);
      continue;
    }
    for (std::int64_t i = 0; i < words; i += 16) __builtin_prefetch(out + i, 1);
    set_bits(a, token, keys, row);
    if (summary) join(row, words, any, all);
    std::memcpy(out, row, row_bytes - (mutant("packed_mask.last_words") ? 16 : 0));
    std::memset(row, 0, row_bytes);
  }
  if (summary) write_summary(a, request, first_row / kTile, keys.count, any, all);
}

void build_rows(const PackedMaskArgs& a, const Launch& launch) {
  const std::int64_t rows = a.mask.shape[1];
  if (a.mask.shape[2] == 0) return;
  // A summary needs whole strips of tiles; without one smaller tasks share the work better.
  const std::int64_t strip_rows = has_summary(a) ? kTile : 32;
  const std::int64_t strips = (rows + strip_rows - 1) / strip_rows;
  const std::size_t slice = scratch_bytes(a);
  for_each_task(launch, a.mask.shape[0] * strips, [&](std::int64_t task, int worker) {
    const KeepDenormals keep_denormals;
    const std::int64_t first_row = task % strips * strip_rows;
    build_strip(a, task / strips, first_row, std::min(rows, first_row + strip_rows),
                worker_scratch<std::uint32_t>(launch, worker, slice));
  });
}

}  // namespace keysieve::cpu::packed_mask_rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {
namespace packed_mask_rows {
namespace {

HWY_EXPORT(build_rows);

const char* refuses(const PackedMaskArgs&) { return nullptr; }

std::size_t workspace_bytes(const PackedMaskArgs& a, std::int32_t concurrency) {
  return size_product(scratch_bytes(a), static_cast<std::size_t>(concurrency));
}

Status run(const PackedMaskArgs& a, const Launch& launch) {
  HWY_DYNAMIC_DISPATCH(build_rows)(a, launch);
  return {};
}

}  // namespace
}  // namespace packed_mask_rows

extern const Kernel<PackedMaskArgs> kPackedMaskKernels[] = {
    {"cpu.packed_mask.rows", packed_mask_rows::refuses, packed_mask_rows::workspace_bytes,
     packed_mask_rows::run}};

}  // namespace keysieve::cpu
#endif

// cpu.candidate_blocks.stream: block maxima made on the fly, and topk's row selection over them.
//
//   1. The newest block takes one place unseen (BLK-08). All others are whole, so no maximum needs a tail.
//   2. topk_row-inl.hpp selects the best of the others, never -inf, ties to the smaller id (BLK-10). It asks
//      for their scores a chunk at a time, and a chunk is one streaming pass over its columns: vectors of
//      neighbouring scores are reduced in pairs, log2(block size) times, which leaves maxima in block order.
//   3. A group of blocks that holds a NaN is done again, one score at a time, as the NaN policy says.
//
// The right choice for any row; a row costs one read of its visible scores (BLK-13) and about a tenth again
// for the sample. Scratch: that of topk for a row of as many columns as there are blocks.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/candidate_blocks_stream.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "contract/mutant.hpp"
#include "contract/sizes.hpp"
#include "cpu/denormals.hpp"
#include "cpu/parallel.hpp"
#include "cpu/radix_sort.hpp"
#include "cpu/row_range.hpp"
#include "cpu/topk_row-inl.hpp"
#include "cpu/topk_scratch.hpp"
#include "keysieve/candidate_blocks.hpp"

#ifndef KEYSIEVE_CPU_CANDIDATE_BLOCKS_STREAM
#define KEYSIEVE_CPU_CANDIDATE_BLOCKS_STREAM
namespace keysieve::cpu::candidate_blocks_stream {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The scratch of a top-k over the widest row's blocks.
inline ScratchSizes sizes_of(const CandidateBlocksArgs& a) {
  TopkArgs as_topk;
  as_topk.scores.shape[1] = (a.scores.shape[1] + a.block_size - 1) / a.block_size;
  as_topk.k = a.candidates.shape[1];
  as_topk.order = a.order == CandidateOrder::by_score ? TopkOrder::by_score : TopkOrder::ascending_column;
  return scratch_sizes(as_topk);
}

inline float to_float(float score) { return score; }
inline float to_float(std::uint16_t bf16) { return std::bit_cast<float>(std::uint32_t{bf16} << 16); }

}  // namespace keysieve::cpu::candidate_blocks_stream
#endif

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::candidate_blocks_stream::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace row_kernel = keysieve::cpu::HWY_NAMESPACE;

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

#if HWY_TARGET != HWY_SCALAR
// Lane i: the maximum of the 2^kLevel scores from scores[i << kLevel]. The maximum of a NaN is not defined,
// but `nan` then has a lane set.
template <int kLevel, class D, class T>
HWY_INLINE hn::Vec<D> maxima(D d, const T* scores, hn::Mask<D>& nan) {
  if constexpr (kLevel == 0) {
    const auto v = load(d, scores);
    nan = hn::Or(nan, hn::IsNaN(v));
    return v;
  } else {
    const auto low = maxima<kLevel - 1>(d, scores, nan);
    const auto high = maxima<kLevel - 1>(d, scores + (hn::Lanes(d) << (kLevel - 1)), nan);
    return hn::Max(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
  }
}
#endif

// The source of scores that topk's row selection reads: score i is that of block i.
template <class T>
struct BlockScores {
  const T* scores;  // the row's first visible one
  std::int64_t column_stride;
  std::int64_t block_size;
  NanPolicy nan;

  // One block, one score at a time: BLK-07, and BLK-09 for its NaN.
  HWY_NOINLINE float slow_score(std::int64_t block) const {
    float best = kMinusInfinity;
    bool has_nan = false;
    const T* from = scores + block * block_size * column_stride;
    const std::int64_t seen = mutant("candidate_blocks.last_column") ? block_size - 1 : block_size;
    for (std::int64_t offset = 0; offset < seen; ++offset) {
      const float score = to_float(from[offset * column_stride]);
      has_nan = has_nan || score != score;
      best = score > best ? score : best;
    }
    if (has_nan && nan == NanPolicy::keep) return std::numeric_limits<float>::quiet_NaN();
    if (has_nan && nan == NanPolicy::drop && !mutant("candidate_blocks.drop")) return kMinusInfinity;
    return best;
  }

#if HWY_TARGET == HWY_SCALAR
  const float* fetch(std::int64_t block, std::int64_t count, float* out) const {
    for (std::int64_t i = 0; i < count; ++i) out[i] = slow_score(block + i);
    return out;
  }
#else
  // Whole vectors of blocks; returns the first block that is not done.
  template <int kLevel, class D>
  HWY_INLINE std::int64_t whole_vectors(D d, std::int64_t block, std::int64_t last, float* out) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; block + lanes <= last; block += lanes, out += lanes) {
      auto nan_lanes = hn::MaskFromVec(hn::Zero(d));
      const auto best = maxima<kLevel>(d, scores + (block << kLevel), nan_lanes);
      hn::StoreU(best, d, out);
      if (HWY_LIKELY(hn::AllFalse(d, nan_lanes)) || mutant("candidate_blocks.nan_group")) continue;
      for (std::int64_t i = 0; i < lanes; ++i) out[i] = slow_score(block + i);
    }
    return block;
  }

  template <int kLevel>
  HWY_NOINLINE void power_of_two(std::int64_t block, std::int64_t last, float* out) const {
    // Half vectors after the whole ones: the sample asks for runs of 8 blocks.
    const hn::ScalableTag<float> d;
    const hn::CappedTag<float, 8> d8;
    const hn::CappedTag<float, 4> d4;
    std::int64_t done = whole_vectors<kLevel>(d, block, last, out);
    done = whole_vectors<kLevel>(d8, done, last, out + (done - block));
    done = whole_vectors<kLevel>(d4, done, last, out + (done - block));
    for (; done < last; ++done) out[done - block] = slow_score(done);
  }

  // A block of at least one vector; the last vector may overlap the one before.
  HWY_INLINE float wide_score(std::int64_t block) const {
    const hn::ScalableTag<float> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const T* from = scores + block * block_size;
    auto best = load(d, from + block_size - lanes);
    auto nan_lanes = hn::IsNaN(best);
    for (std::int64_t i = 0; i + lanes <= block_size; i += lanes) {
      const auto v = load(d, from + i);
      nan_lanes = hn::Or(nan_lanes, hn::IsNaN(v));
      best = hn::Max(best, v);
    }
    return hn::AllFalse(d, nan_lanes) ? hn::GetLane(hn::MaxOfLanes(d, best)) : slow_score(block);
  }

  const float* fetch(std::int64_t block, std::int64_t count, float* out) const {
    if (column_stride == 1) {
      switch (block_size) {
        case 1:
          return power_of_two<0>(block, block + count, out), out;
        case 2:
          return power_of_two<1>(block, block + count, out), out;
        case 4:
          return power_of_two<2>(block, block + count, out), out;
        case 8:
          return power_of_two<3>(block, block + count, out), out;
        case 16:
          return power_of_two<4>(block, block + count, out), out;
        default:
          break;
      }
    }
    const bool wide = column_stride == 1 && block_size >= static_cast<std::int64_t>(HWY_LANES(float));
    for (std::int64_t i = 0; i < count; ++i) out[i] = wide ? wide_score(block + i) : slow_score(block + i);
    return out;
  }
#endif
};

// BLK-11: NaN blocks, then the newest, then the rest, greater scores first and equal ones by id. Returns the
// newest block's place.
template <class T>
HWY_INLINE std::int64_t order_by_score(const BlockScores<T>& source, const RowScratch& s,
                                       std::int64_t count) {
  std::int64_t nans = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    float score;
    source.fetch(s.columns[i], 1, &score);
    const auto bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.f : score);
    // Ascending as scores fall; 0 for NaN.
    std::uint32_t rank = bits >> 31 != 0 ? bits : 0x7fffffffu - bits;
    if (score != score) rank = 0, ++nans;
    s.order_a[i] = std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(s.columns[i]);
  }
  const std::uint64_t* sorted = radix_sort(s.order_a, s.order_b, count, 32, 64);
  for (std::int64_t i = 0; i < count; ++i) s.columns[i] = static_cast<std::int32_t>(sorted[i] & 0xffffffffu);
  return nans;
}

template <class T>
void select_blocks(const CandidateBlocksArgs& a, std::int64_t row, const RowScratch& s) {
  const RowRange range = row_range(a.bounds, row, a.scores.shape[1]);
  const std::int64_t places = a.candidates.shape[1];
  const std::int64_t candidate_stride = a.candidates.stride[1];
  auto* out = static_cast<std::int32_t*>(a.candidates.data) + row * a.candidates.stride[0];
  std::int64_t used = 0;
  if (range.size() > 0 && places > 0) {
    const std::int64_t newest = (range.size() - 1) / a.block_size;
    const BlockScores<T> source{
        static_cast<const T*>(a.scores.data) + row * a.scores.stride[0] + range.start * a.scores.stride[1],
        a.scores.stride[1], a.block_size, a.nan};
    const std::int64_t wanted = mutant("candidate_blocks.newest") ? places : places - 1;
    const std::int64_t others = wanted > 0 ? row_kernel::select_row(source, newest, wanted, s) : 0;
    const std::int64_t place =
        a.order == CandidateOrder::by_score ? order_by_score(source, s, others) : others;
    for (std::int64_t i = 0; i < place; ++i) out[i * candidate_stride] = s.columns[i];
    used = others;
    if (others < places) {
      out[place * candidate_stride] = static_cast<std::int32_t>(newest);
      used = others + 1;
    }
    for (std::int64_t i = place; i < others && i + 1 < places; ++i)
      out[(i + 1) * candidate_stride] = s.columns[i];
  }
  if (mutant("candidate_blocks.tail")) return;
  // BLK-12: also in a row without keys.
  for (std::int64_t i = used; i < places; ++i) out[i * candidate_stride] = -1;
}

void select_rows(const CandidateBlocksArgs& a, const Launch& launch) {
  const ScratchSizes sizes = sizes_of(a);
  for_each_task(launch, a.scores.shape[0], [&](std::int64_t row, int worker) {
    const KeepDenormals keep_denormals;
    const RowScratch s = carve_scratch(worker_scratch<char>(launch, worker, sizes.bytes), sizes);
    if (a.scores.dtype == DType::bf16)
      select_blocks<std::uint16_t>(a, row, s);
    else
      select_blocks<float>(a, row, s);
  });
}

}  // namespace keysieve::cpu::candidate_blocks_stream::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {
namespace candidate_blocks_stream {
namespace {

HWY_EXPORT(select_rows);

const char* refuses(const CandidateBlocksArgs&) { return nullptr; }

std::size_t workspace_bytes(const CandidateBlocksArgs& a, std::int32_t concurrency) {
  return size_product(sizes_of(a).bytes, static_cast<std::size_t>(concurrency));
}

Status run(const CandidateBlocksArgs& a, const Launch& launch) {
  HWY_DYNAMIC_DISPATCH(select_rows)(a, launch);
  return {};
}

}  // namespace
}  // namespace candidate_blocks_stream

extern const Kernel<CandidateBlocksArgs> kCandidateBlocksKernels[] = {
    {"cpu.candidate_blocks.stream", candidate_blocks_stream::refuses,
     candidate_blocks_stream::workspace_bytes, candidate_blocks_stream::run}};

}  // namespace keysieve::cpu
#endif

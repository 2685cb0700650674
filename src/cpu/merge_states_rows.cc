// cpu.merge_states.rows: one row and head at a time.
//
//   1. From the parts' LSEs, in float64: the largest, the sum, each part's weight with the sink folded in;
//      parts without keys get none.
//   2. Column block by column block: weighted sum of the parts in their order, in registers.
//
// A row is summed alone and in the order of its parts (MRG-12). The work is reading outs once. Scratch: 4
// bytes per part and worker.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/merge_states_rows.cc"
#include "hwy/foreach_target.h"
// after foreach_target
#include "contract/mutant.hpp"
#include "contract/sizes.hpp"
#include "cpu/attention_softmax-inl.h"
#include "cpu/lse.hpp"
#include "cpu/parallel.hpp"
#include "keysieve/merge_states.hpp"

#ifndef KEYSIEVE_MERGE_STATES_ROWS_ONCE
#define KEYSIEVE_MERGE_STATES_ROWS_ONCE
namespace keysieve::cpu {
namespace {

// MRG-11: the weight of a part without keys, whose outs are not looked at.
constexpr float kNotLookedAt = -1.0f;

// 1. Writes one weight per part; returns the natural LSE.
double weigh_parts(const MergeStatesArgs& a, std::int64_t row, std::int64_t head, float* weight) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const std::int64_t parts = a.outs.shape[0];
  const auto natural = [&](std::int64_t i) {
    const double lse = static_cast<const float*>(
        a.lses.data)[i * a.lses.stride[0] + row * a.lses.stride[1] + head * a.lses.stride[2]];
    if (a.lses_form.empty == LseEmpty::plus_infinity && lse == -kNone) return kNone;
    return a.lses_form.base == LseBase::two && !mutant("merge_states.base") ? lse * 0.69314718055994531 : lse;
  };
  double largest = kNone;
  for (std::int64_t i = 0; i < parts; ++i) largest = std::max(largest, natural(i));
  if (mutant("merge_states.largest")) largest = 0;
  double sum = 0;
  for (std::int64_t i = 0; i < parts; ++i)
    if (const double lse = natural(i); lse != kNone) sum += std::exp(lse - largest);
  if (sum == 0) {
    std::fill(weight, weight + parts, kNotLookedAt);
    return kNone;
  }
  const double lse = largest + std::log(sum);
  double share = 1 / sum;
  if (a.sink.given()) {
    const double sink = static_cast<const float*>(a.sink.data)[head * a.sink.stride[0]];
    share /=
        1 + std::exp(sink - lse) * (mutant("merge_states.sink_per_part") ? static_cast<double>(parts) : 1);
  }
  for (std::int64_t i = 0; i < parts; ++i) {
    const double part = natural(i);
    weight[i] = part == kNone ? kNotLookedAt : static_cast<float>(std::exp(part - largest) * share);
    // Too small for a float is not nothing: a NaN or an infinity in that part must show.
    if (weight[i] == 0.0f && share > 0) weight[i] = std::numeric_limits<float>::denorm_min();
  }
  return lse;
}

}  // namespace
}  // namespace keysieve::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using attention::F32;
using attention::VF;

HWY_INLINE VF load(const float* from) { return hn::LoadU(F32(), from); }
HWY_INLINE VF load(const std::uint16_t* from) {
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<std::uint16_t, F32> d16;
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
}
HWY_INLINE float value_of(float x) { return x; }
HWY_INLINE float value_of(std::uint16_t x) { return hwy::F32FromBF16({x}); }
HWY_INLINE void set_value(float x, float* to) { *to = x; }
HWY_INLINE void set_value(float x, std::uint16_t* to) {
  *to = hn::GetLane(attention::round_to_bf16(hn::Set(F32(), x)));
}
HWY_INLINE void store(VF value, float* to) { hn::StoreU(value, F32(), to); }
HWY_INLINE void store(VF value, std::uint16_t* to) {
  hn::StoreU(attention::round_to_bf16(value), hn::Rebind<std::uint16_t, F32>(), to);
}

// 2. For kVectors vectors of columns from `column` on. Without parts `outs` may be null, so only a part is
// stepped into.
template <int kVectors, class In, class Out>
HWY_INLINE void merge_columns(const In* outs, std::int64_t part_stride, std::int64_t parts,
                              const float* weight, std::int64_t column, Out* out) {
  const std::size_t lanes = hn::Lanes(F32());
  VF sum[kVectors];
  for (int c = 0; c < kVectors; ++c) sum[c] = hn::Zero(F32());
  for (std::int64_t i = 0; i < parts; ++i) {
    if (weight[i] == kNotLookedAt && !mutant("merge_states.empty_payload")) continue;
    const VF w = hn::Set(F32(), weight[i]);
    const In* part = outs + (i * part_stride + column);
    for (int c = 0; c < kVectors; ++c) sum[c] = hn::MulAdd(w, load(part + c * lanes), sum[c]);
  }
  for (int c = 0; c < kVectors; ++c) store(sum[c], out + column + c * lanes);
}

template <class In, class Out>
void merge_row(const MergeStatesArgs& a, std::int64_t row, std::int64_t head, const float* weight) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const std::int64_t parts = a.outs.shape[0], part_stride = a.outs.stride[0], columns = a.out.shape[2];
  const In* outs = static_cast<const In*>(a.outs.data) + row * a.outs.stride[1] + head * a.outs.stride[2];
  Out* out = static_cast<Out*>(a.out.data) + row * a.out.stride[0] + head * a.out.stride[1];
  std::int64_t c = 0;
  for (; c + 4 * lanes <= columns; c += 4 * lanes) {
    merge_columns<4>(outs, part_stride, parts, weight, c, out);
  }
  for (; c + lanes <= columns; c += lanes) merge_columns<1>(outs, part_stride, parts, weight, c, out);
  // Columns past the last whole vector: the same products and order, one by one.
  if (mutant("merge_states.tail")) return;
  const hn::CappedTag<float, 1> one;
  for (; c < columns; ++c) {
    auto sum = hn::Zero(one);
    for (std::int64_t i = 0; i < parts; ++i) {
      if (weight[i] == kNotLookedAt && !mutant("merge_states.empty_payload")) continue;
      sum = hn::MulAdd(hn::Set(one, weight[i]), hn::Set(one, value_of(outs[i * part_stride + c])), sum);
    }
    set_value(hn::GetLane(sum), out + c);
  }
}

void merge_any(const MergeStatesArgs& a, std::int64_t row, std::int64_t head, const float* weight) {
  if (a.outs.dtype == DType::f32)
    return a.out.dtype == DType::f32 ? merge_row<float, float>(a, row, head, weight)
                                     : merge_row<float, std::uint16_t>(a, row, head, weight);
  return a.out.dtype == DType::f32 ? merge_row<std::uint16_t, float>(a, row, head, weight)
                                   : merge_row<std::uint16_t, std::uint16_t>(a, row, head, weight);
}

}  // namespace HWY_NAMESPACE
}  // namespace keysieve::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {

HWY_EXPORT(merge_any);

namespace {

const char* refuses(const MergeStatesArgs&) { return nullptr; }

std::size_t weights_bytes(const MergeStatesArgs& a) {
  return (static_cast<std::size_t>(a.outs.shape[0]) * sizeof(float) + 63) / 64 * 64;
}

std::size_t workspace_bytes(const MergeStatesArgs& a, std::int32_t concurrency) {
  return size_product(weights_bytes(a), static_cast<std::size_t>(concurrency));
}

Status run(const MergeStatesArgs& a, const Launch& launch) {
  const std::int64_t heads = a.out.shape[1];
  const auto merge = HWY_DYNAMIC_DISPATCH(merge_any);
  for_each_task(launch, a.out.shape[0], [&](std::int64_t row, int worker) {
    auto* weight = worker_scratch<float>(launch, worker, weights_bytes(a));
    for (std::int64_t head = 0; head < heads; ++head) {
      const double lse = weigh_parts(a, row, head, weight);
      merge(a, row, head, weight);
      if (!a.lse.given()) continue;
      const float sink =
          a.sink.given() ? static_cast<const float*>(a.sink.data)[head * a.sink.stride[0]] : 0.0f;
      static_cast<float*>(a.lse.data)[row * a.lse.stride[0] + head * a.lse.stride[1]] =
          written_lse(static_cast<float>(lse), a.lse_form, sink);
    }
  });
  return {};
}

}  // namespace

extern const Kernel<MergeStatesArgs> kMergeStatesKernels[] = {
    {"cpu.merge_states.rows", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu
#endif

// cpu.sparse_mla.gather: fp32 arithmetic on gathered keys, all heads of a row at once.
//
//   A task is one row and up to 64 of its heads, which share every key:
//   1. Widen the heads' queries to fp32.
//   2. Span by span of 64 listed keys; meanwhile the next span is prefetched. Up to 16 heads (8
//   where there are 16 registers), four at a time,
//   multiply with the keys as they lie (sparse_mla_few-inl.h): a span, 73 KB, comes once from memory or L3,
//   then from L2.
//   3. Where more heads share them, the keys are widened first; with queries and sums they stay in a 1 MB L2
//   cache. Scores, softmax against the running maximum, weighted values: attention_tile-inl.h and
//   attention_softmax-inl.h. The same bits as 2.
//   4. Divide, sink, LSE.
//
// Heads are cut finer when rows are few and threads are many. A head's result depends neither on its group nor on other rows (MLA-22), and keys
// that no list names are not read (MLA-21). Scratch per worker: 470 KB at 64 heads, whatever the rows and the
// list.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/sparse_mla_gather.cc"
#include "hwy/foreach_target.h"
// after foreach_target
#include "cpu/lse.hpp"
#include "cpu/mla_keys.hpp"
#include "cpu/parallel.hpp"
#include "cpu/sparse_mla_few-inl.h"

#ifndef KEYSIEVE_SPARSE_MLA_GATHER_ONCE
#define KEYSIEVE_SPARSE_MLA_GATHER_ONCE
namespace keysieve::cpu {
namespace {

constexpr std::int64_t kSpan = 64;         // keys
constexpr std::int64_t kMostHeads = 64;    // of one task
constexpr std::int64_t kAtOnce = 4;        // that one pass over the keys serves
constexpr std::int64_t kStateFloats = 16;  // of four heads: a vector, the widest

struct MlaLayout {
  std::int64_t heads;  // of one task
  std::size_t q_floats, kv_floats, score_stride, state_floats, o_stride, floats;

  MlaLayout(const SparseMlaArgs& a, std::int32_t concurrency) {
    const auto divide_up = [](std::int64_t n, std::int64_t by) { return (n + by - 1) / by; };
    const std::int64_t all = a.q.shape[1];
    const std::int64_t rows = std::max<std::int64_t>(1, a.q.shape[0]);
    const std::int64_t wanted = concurrency <= 1 ? 1 : divide_up(2 * std::int64_t{concurrency}, rows);
    const std::int64_t groups =
        std::max(divide_up(all, kMostHeads), std::min(wanted, divide_up(all, kAtOnce)));
    heads = std::min(all, divide_up(divide_up(all, groups), kAtOnce) * kAtOnce);
    const auto columns = static_cast<std::size_t>(a.q.shape[2]);
    q_floats = static_cast<std::size_t>(heads) * columns;
    kv_floats = static_cast<std::size_t>(kSpan) * columns;
    score_stride = static_cast<std::size_t>(divide_up(heads, 16) * 16);
    state_floats = static_cast<std::size_t>(divide_up(heads, kAtOnce) * kStateFloats);
    o_stride = static_cast<std::size_t>(a.out.shape[2]) + 16;  // a power of two would use few cache sets
    floats = q_floats + kv_floats + static_cast<std::size_t>(kSpan) * score_stride + 3 * state_floats +
             static_cast<std::size_t>(heads) * o_stride;
    floats = (floats + 15) / 16 * 16;
  }
  [[nodiscard]] std::int64_t groups(const SparseMlaArgs& a) const {
    return (a.q.shape[1] + heads - 1) / heads;
  }
};

}  // namespace
}  // namespace keysieve::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void attend_row(const SparseMlaArgs& a, const MlaLayout& layout, std::int64_t row, std::int64_t first_head,
                float* scratch) {
  const auto columns = static_cast<std::size_t>(a.q.shape[2]),
             values = static_cast<std::size_t>(a.out.shape[2]);
  const auto heads = static_cast<std::size_t>(std::min(layout.heads, a.q.shape[1] - first_head));
  const std::size_t s_stride = layout.score_stride, o_stride = layout.o_stride;
  float* q = scratch;
  float* kv = q + layout.q_floats;
  float* s = kv + layout.kv_floats;
  float* run_max = s + kSpan * s_stride;
  float* run_sum = run_max + layout.state_floats;
  float* factor = run_sum + layout.state_floats;
  float* o = factor + layout.state_floats;

  // 1.
  const auto* q_row = static_cast<const std::uint16_t*>(a.q.data) + row * a.q.stride[0];
  for (std::size_t h = 0; h < heads; ++h) {
    attention::widen_pairs(q_row + (first_head + static_cast<std::int64_t>(h)) * a.q.stride[1], columns,
                           q + h * columns);
  }
  std::fill(run_max, run_sum, -std::numeric_limits<float>::infinity());
  std::fill(run_sum, factor, 0.0f);
  std::fill(o, o + heads * o_stride, 0.0f);

  // With more heads, keys that are widened once are faster: 87 % of peak instead of 82 with 16 heads and AVX2.
  constexpr std::size_t kFew = attention::kTileVectors == 4 ? 16 : 8;
  const bool few = heads <= kFew && hn::Lanes(attention::F32()) >= kAtOnce;
  MlaKeys list(a, row);
  const std::uint16_t* key[2][kSpan];
  std::size_t count = list.next(key[0], kSpan);
  for (int turn = 0; count > 0; turn ^= 1) {
    const std::size_t upcoming = list.next(key[turn ^ 1], kSpan);
    const attention::Upcoming fetch{key[turn ^ 1], upcoming};
    if (mutant("sparse_mla.odd_tail") && count > 1 && count < kSpan) count &= ~std::size_t{1};
    // 2.
    if (few) {
      for (std::size_t h = 0; h < heads; h += kAtOnce) {
        const std::size_t at = h / kAtOnce * kStateFloats;
        attention::few_heads(heads - h)(
            q + h * columns, columns, key[turn], count, h == 0 ? fetch : attention::Upcoming(),
            a.softmax_scale, s, run_max + at, run_sum + at, factor, o + h * o_stride, o_stride, values);
      }
    } else {
      // 3.
      for (std::size_t j = 0; j < count; ++j) attention::widen_pairs(key[turn][j], columns, kv + j * columns);
      attention::scores(q, columns, heads, kv, columns, count, columns, s, s_stride, fetch);
      attention::softmax(s, s_stride, count, heads, a.softmax_scale, nullptr, run_max, run_sum, factor);
      if (!mutant("sparse_mla.rescale")) attention::rescale(factor, heads, o, o_stride, values);
      attention::accumulate(s, s_stride, heads, kv, columns, count, values, o, o_stride);
    }
    count = upcoming;
  }

  // 4.
  for (std::size_t h = 0; h < heads; ++h) {
    const std::int64_t head = first_head + static_cast<std::int64_t>(h);
    if (mutant("sparse_mla.last_head") && h + 1 == heads && heads % 2 == 1) continue;
    const float* sink =
        a.sink.given() ? static_cast<const float*>(a.sink.data) + head * a.sink.stride[0] : nullptr;
    const std::int64_t at = row * a.out.stride[0] + head * a.out.stride[1];
    attention::Destination to;
    if (a.out.dtype == DType::f32) {
      to.f32 = static_cast<float*>(a.out.data) + at;
    } else {
      to.bf16 = static_cast<std::uint16_t*>(a.out.data) + at;
    }
    attention::unfold_pairs(o + h * o_stride, values);
    const std::size_t state = few ? h / kAtOnce * kStateFloats + h % kAtOnce : h;
    const float lse = attention::finish(o + h * o_stride, values, run_max[state], run_sum[state],
                                        mutant("sparse_mla.sink") ? nullptr : sink, to);
    if (!a.lse.given()) continue;
    static_cast<float*>(a.lse.data)[row * a.lse.stride[0] + head * a.lse.stride[1]] =
        written_lse(lse, a.lse_form, sink == nullptr ? 0.0f : *sink);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace keysieve::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {

HWY_EXPORT(attend_row);

namespace {

const char* refuses(const SparseMlaArgs&) { return nullptr; }

std::size_t workspace_bytes(const SparseMlaArgs& a, std::int32_t concurrency) {
  return MlaLayout(a, concurrency).floats * sizeof(float) * static_cast<std::size_t>(concurrency);
}

Status run(const SparseMlaArgs& a, const Launch& launch) {
  const MlaLayout layout(a, launch.concurrency);
  const std::int64_t groups = layout.groups(a);
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_row);
  for_each_task(launch, a.q.shape[0] * groups, [&](std::int64_t task, int worker) {
    attend(a, layout, task / groups, task % groups * layout.heads,
           worker_scratch<float>(launch, worker, layout.floats * sizeof(float)));
  });
  return {};
}

}  // namespace

extern const Kernel<SparseMlaArgs> kSparseMlaKernels[] = {
    {"cpu.sparse_mla.gather", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu
#endif

// cpu.masked_mha.tile: fp32 arithmetic on tiles of 64 queries of one head, two groups of 32.
//
//   0. Once per call: clamp the starts into segments and count their tiles.
//   A task is one tile of queries and one head:
//   1. Widen the queries to fp32.
//   Span by span of 256 keys, at fixed places of the request:
//   2. List the keys that some query keeps, each with a word per group of the queries that do: mask bits are
//      read per query and transposed 32 x 32. An empty list skips the span. Groups that keep mostly the same
//      keys go through 3 to 5 together, since keys are widened once then; else one after the other, since a
//      product that nobody asked for costs as much as any. Dense masks do the first, learned ones the second.
//   3. Scores of the listed keys, 64 widened at a time.
//   4. Softmax over the span; a query weighs the keys that it does not keep with exactly 0.
//   5. Add the weighted values, 64 keys at a time.
//   6. Divide, sink, LSE.
//
// A query's span borders are the request's, and zero weights change no bit, so neither the other queries of
// the tile nor a mask of ones do (MHA-25, MHA-27). A value that is not finite times 0 would be NaN: such keys
// are left out of step 5 and added at the end of the span to the queries that keep them (MHA-26).
//
// Scratch: 144 bytes per request, and per worker 200 KB at 192 / 128.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/masked_mha_tile.cc"
#include "hwy/foreach_target.h"
// after foreach_target
#include "cpu/attention_softmax-inl.h"
#include "cpu/lse.hpp"
#include "cpu/mha_requests.hpp"
#include "cpu/parallel.hpp"

#ifndef KEYSIEVE_MASKED_MHA_TILE_ONCE
#define KEYSIEVE_MASKED_MHA_TILE_ONCE
namespace keysieve::cpu {
namespace {

constexpr std::size_t kRows = kMhaRows;
constexpr std::size_t kGroup = kMhaGroup;
constexpr std::size_t kSpanKeys = kMhaSpan;
constexpr std::size_t kBlockKeys = 64;  // widened at a time

struct MhaLayout {
  std::size_t dqk, dv, o_stride, segment_bytes, worker_floats;

  explicit MhaLayout(const MaskedMhaArgs& a)
      : dqk(static_cast<std::size_t>(a.q.shape[2])),
        dv(static_cast<std::size_t>(a.v.shape[2])),
        o_stride(dv + 16),  // a power of two would use few cache sets
        segment_bytes((static_cast<std::size_t>(most_segments(a) + 1) * sizeof(MhaSegment) + 63) / 64 * 64),
        worker_floats(kRows * dqk + kBlockKeys * std::max(dqk, dv) + (kSpanKeys + 3) * kRows +
                      kRows * o_stride) {}
};

}  // namespace
}  // namespace keysieve::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu {
namespace HWY_NAMESPACE {

struct Tile {
  float *q, *wide, *weights, *run_max, *run_sum, *factor, *o;
  const std::uint16_t *k, *v;  // of this head, from the segment's first key on
};

// 3. to 5. for queries [first, first + rows) of the tile; list.by[0] belongs to the first of them.
void attend_keys(const MaskedMhaArgs& a, const MhaLayout& layout, const Tile& t, std::size_t first,
                 std::size_t rows, const KeptKeys& list) {
  const std::size_t dqk = layout.dqk, dv = layout.dv, o_stride = layout.o_stride, keys = list.count;
  float* weights = t.weights + first;
  float* o = t.o + first * o_stride;
  // 3.
  const std::uint16_t* row[kSpanKeys];
  for (std::size_t j = 0; j < keys; ++j) row[j] = t.k + list.key[j] * a.k.stride[0];
  for (std::size_t from = 0; from < keys; from += kBlockKeys) {
    const std::size_t block = std::min(kBlockKeys, keys - from);
    for (std::size_t j = 0; j < block; ++j) attention::widen_row(row[from + j], dqk, t.wide + j * dqk);
    const std::size_t after = from + block;
    attention::scores(t.q + first * dqk, dqk, rows, t.wide, dqk, block, dqk, weights + from * kRows, kRows,
                      {row + after, std::min(kBlockKeys, keys - after)});
  }
  // 4.
  for (std::size_t group = 0; group * kGroup < rows; ++group) {
    const std::size_t at = first + group * kGroup;
    attention::softmax(t.weights + at, kRows, keys, std::min(kGroup, rows - group * kGroup), a.softmax_scale,
                       list.by[group], t.run_max + at, t.run_sum + at, t.factor + at);
  }
  attention::rescale(t.factor + first, rows, o, o_stride, dv);
  // 5.
  std::size_t odd_key[kSpanKeys], odd_keys = 0;
  for (std::size_t j = 0; j < keys; ++j) row[j] = t.v + list.key[j] * a.v.stride[0];
  for (std::size_t from = 0; from < keys; from += kBlockKeys) {
    const std::size_t block = std::min(kBlockKeys, keys - from);
    for (std::size_t j = 0; j < block; ++j) {
      if (from + j + kBlockKeys < keys) attention::fetch_row(row[from + j + kBlockKeys], dv);
      if (attention::widen_row_finite(row[from + j], dv, t.wide + j * dv)) continue;
      if (mutant("masked_mha.odd_values")) continue;
      std::fill(t.wide + j * dv, t.wide + (j + 1) * dv, 0.0f);
      odd_key[odd_keys++] = from + j;
    }
    attention::accumulate(weights + from * kRows, kRows, rows, t.wide, dv, block, dv, o, o_stride);
  }
  for (std::size_t n = 0; n < odd_keys; ++n) {
    const std::size_t j = odd_key[n];
    attention::widen_row(row[j], dv, t.wide);
    for (std::size_t i = 0; i < rows; ++i) {
      if ((list.by[i / kGroup][j] >> (i % kGroup) & 1) == 0) continue;
      attention::accumulate(weights + j * kRows + i, kRows, 1, t.wide, dv, 1, dv, o + i * o_stride, o_stride);
    }
  }
}

void attend_tile(const MaskedMhaArgs& a, const MhaLayout& layout, const MhaSegment& s, std::int64_t first_row,
                 std::int64_t head, float* scratch) {
  const std::size_t dqk = layout.dqk, dv = layout.dv, o_stride = layout.o_stride;
  const std::int64_t count = std::min(kMhaRows, s.queries - first_row);
  const auto rows = static_cast<std::size_t>(count);
  Tile t;
  t.q = scratch;
  t.wide = t.q + kRows * dqk;
  t.weights = t.wide + kBlockKeys * std::max(dqk, dv);
  t.run_max = t.weights + kSpanKeys * kRows;
  t.run_sum = t.run_max + kRows;
  t.factor = t.run_sum + kRows;
  t.o = t.factor + kRows;
  t.k = static_cast<const std::uint16_t*>(a.k.data) + head * a.k.stride[1] + s.first_key * a.k.stride[0];
  t.v = static_cast<const std::uint16_t*>(a.v.data) + head * a.v.stride[1] + s.first_key * a.v.stride[0];

  // 1.
  const std::int64_t first_token = s.first_query + first_row;
  const auto* q_head = static_cast<const std::uint16_t*>(a.q.data) + head * a.q.stride[1];
  for (std::size_t i = 0; i < rows; ++i) {
    attention::widen_row(q_head + (first_token + static_cast<std::int64_t>(i)) * a.q.stride[0], dqk,
                         t.q + i * dqk);
  }
  std::fill(t.run_max, t.run_max + kRows, -std::numeric_limits<float>::infinity());
  std::fill(t.run_sum, t.run_sum + kRows, 0.0f);
  std::fill(t.o, t.o + rows * o_stride, 0.0f);

  const std::int64_t end = std::clamp<std::int64_t>(first_row + count + s.causal_reach, 0, s.keys);
  KeptKeys list, part[2];
  for (std::int64_t span = 0; span < end; span += kSpanKeys) {
    // 2.
    list_kept(a, s, first_row, count, span, std::min(span + kMhaSpan, end), list);
    if (list.count == 0) continue;
    if (rows > kGroup) {
      for (int group = 0; group < 2; ++group) list.copy_group(group, part[group]);
      // Apart, if that saves more than a fifth of the products.
      if (5 * (part[0].count + part[1].count) < 8 * list.count) {
        if (part[0].count > 0) attend_keys(a, layout, t, 0, kGroup, part[0]);
        if (part[1].count > 0) attend_keys(a, layout, t, kGroup, rows - kGroup, part[1]);
        continue;
      }
    }
    attend_keys(a, layout, t, 0, rows, list);
  }

  // 6.
  const float* sink =
      a.sink.given() ? static_cast<const float*>(a.sink.data) + head * a.sink.stride[0] : nullptr;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::int64_t token = first_token + static_cast<std::int64_t>(i);
    const std::int64_t at = token * a.out.stride[0] + head * a.out.stride[1];
    attention::Destination to;
    if (a.out.dtype == DType::f32) {
      to.f32 = static_cast<float*>(a.out.data) + at;
    } else {
      to.bf16 = static_cast<std::uint16_t*>(a.out.data) + at;
    }
    const float lse = attention::finish(t.o + i * o_stride, dv, t.run_max[i], t.run_sum[i], sink, to);
    if (!a.lse.given()) continue;
    static_cast<float*>(a.lse.data)[token * a.lse.stride[0] + head * a.lse.stride[1]] =
        written_lse(lse, a.lse_form, sink == nullptr ? 0.0f : *sink);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace keysieve::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {

HWY_EXPORT(attend_tile);

namespace {

const char* refuses(const MaskedMhaArgs&) { return nullptr; }

std::size_t workspace_bytes(const MaskedMhaArgs& a, std::int32_t concurrency) {
  const MhaLayout layout(a);
  return layout.segment_bytes + layout.worker_floats * sizeof(float) * static_cast<std::size_t>(concurrency);
}

Status run(const MaskedMhaArgs& a, const Launch& launch) {
  const MhaLayout layout(a);
  auto* segment = static_cast<MhaSegment*>(launch.workspace.data);
  auto* scratch = reinterpret_cast<float*>(static_cast<char*>(launch.workspace.data) + layout.segment_bytes);
  // 0.
  const std::int64_t segments = list_segments(a, segment);
  const std::int64_t tiles = segment[segments].first_tile, heads = a.q.shape[1];
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_tile);
  for_each_task(launch, tiles * heads, [&](std::int64_t task, int worker) {
    // Head by head: the next tile finds this head's keys in the cache.
    const std::int64_t tile = task % tiles;
    const MhaSegment* s =
        std::upper_bound(segment, segment + segments, tile,
                         [](std::int64_t t, const MhaSegment& x) { return t < x.first_tile; }) -
        1;
    attend(a, layout, *s, (tile - s->first_tile) * kMhaRows, task / tiles,
           scratch + static_cast<std::size_t>(worker) * layout.worker_floats);
  });
  return {};
}

}  // namespace

extern const Kernel<MaskedMhaArgs> kMaskedMhaKernels[] = {
    {"cpu.masked_mha.tile", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu
#endif

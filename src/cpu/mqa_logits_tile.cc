// cpu.mqa_logits.tile: a matrix product in registers with the rectifier and the sum over heads behind it.
//
// 1. Rows with common keys form groups; a group's columns are cut into chunks, one task each.
// 2. A task widens its rows' queries to f32, once.
// 3. For each tile of three vectors of keys: look the keys up, decode them to f32 and transpose them, so that
//    lane = key. A quarter (e4m3) or half (bf16) of the shuffles suffices, since 32 bits move as one lane.
// 4. For each row that sees the tile: kHeads heads x 3 vectors of dot products grow in registers over the
//    dimensions, then each is rectified, weighted and added to the row's three vectors of sums.
// 5. Sums times key scales go to the row's visible columns; a column without a key gets -inf.
//
// The right choice whenever the processor has no matrix unit. Registers: 12 sums + 3 keys + 1 query of 16
// (AVX2), 24 + 3 + 1 of 32 (AVX-512, NEON). A tile takes 12 KiB (AVX2) or 24 KiB (AVX-512) of L1.
//
// MQA-36: f32 sums of 128 products, then of 128 heads, differ from exact ones by some 1e-14 on learned and
// random data; the bar is 1e-12, so no sum is split or compensated.
//
// MQA-31: each score is one chain of fused multiply-adds over the dimensions per head, then one over the
// heads, the same in every lane; so neither tiling, nor threads, nor the other rows, nor paging changes a bit
// of it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mqa_logits_tile.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "contract/mutant.hpp"
#include "cpu/mqa_logits_decode-inl.hpp"
#include "cpu/mqa_logits_keys.hpp"
#include "cpu/parallel.hpp"

#ifndef KEYSIEVE_MQA_LOGITS_SCRATCH
#define KEYSIEVE_MQA_LOGITS_SCRATCH
namespace keysieve::cpu::mqa_logits_tile {

inline constexpr std::int64_t kQueryStride = 128;  // f32 elements of one widened head, whatever dim is

// One worker's part of the workspace.
struct TileScratch {
  float* queries;  // [rows of the group, heads, kQueryStride]
  float* weights;  // [rows of the group, heads]
  float* tile;     // [dim, keys of a tile]
};

}  // namespace keysieve::cpu::mqa_logits_tile
#endif

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::mqa_logits_tile::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kHeads = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3 ? 4 : 8;
static_assert(kTileKeys <= TileKeys::kMost && kChunkColumns % kTileKeys == 0);

// Step 2, for the i-th row of a group.
template <class Format>
void widen_query(const MqaLogitsArgs& a, std::int64_t row, std::int64_t i, const TileScratch& scratch) {
  const std::int64_t heads = a.q.shape[1], dim = a.q.shape[2];
  const hn::Rebind<typename Format::Code, Word> narrow;
  float* query = scratch.queries + i * heads * kQueryStride;
  if (mutant("mqa_logits.row_off_by_one")) row = std::min(row + 1, a.q.shape[0] - 1);
  for (std::int64_t head = 0; head < heads; ++head, query += kQueryStride) {
    const auto* codes =
        static_cast<const typename Format::Code*>(a.q.data) + row * a.q.stride[0] + head * a.q.stride[1];
    for (std::int64_t d = 0; d < dim; d += kLanes)
      hn::Store(Format::widen(hn::PromoteTo(Word(), hn::LoadU(narrow, codes + d))), Real(), query + d);
    const std::int64_t from = mutant("mqa_logits.swapped_heads") ? heads - 1 - head : head;
    scratch.weights[i * heads + head] = load_weight(a.weights, row, from);
  }
}

// Step 3.
template <class Format>
HWY_NOINLINE void decode_keys(const std::uint8_t* const* keys, int dim, float* HWY_RESTRICT tile) {
  constexpr int kPerColumn = 4 / sizeof(typename Format::Code) * kTileKeys;
  const int bytes = dim * static_cast<int>(sizeof(typename Format::Code));
  for (int v = 0; v < kTileKeys; v += kLanes) {
    float* out = tile + v;
    for (int at = 0; at < bytes; at += 16, out += 4 * kPerColumn) {
      const Columns columns = transpose(keys + v, static_cast<std::size_t>(at));
      Format::unpack(columns.c0, out);
      Format::unpack(columns.c1, out + kPerColumn);
      Format::unpack(columns.c2, out + 2 * kPerColumn);
      Format::unpack(columns.c3, out + 3 * kPerColumn);
    }
  }
}

// MQA-32: NaN stays NaN, which a maximum instruction does on some processors only.
HWY_INLINE Reals rectify(Reals dot) {
  if (mutant("mqa_logits.no_relu")) return dot;
  const Reals zero = hn::Zero(Real());
  if (mutant("mqa_logits.nan_becomes_zero")) return hn::IfThenElseZero(hn::Gt(dot, zero), dot);
  return hn::IfThenZeroElse(hn::Lt(dot, zero), dot);
}

struct Sums {
  Reals v0, v1, v2;
};

// Step 4 for kCount heads. The loops over heads unroll, so every sum stays in a register.
template <int kCount>
HWY_INLINE Sums add_heads(const float* HWY_RESTRICT query, const float* weights, int dim,
                          const float* HWY_RESTRICT tile, Sums sums) {
  const Real f;
  Reals dot0[kCount], dot1[kCount], dot2[kCount];
#pragma GCC unroll 8
  for (int h = 0; h < kCount; ++h) dot0[h] = dot1[h] = dot2[h] = hn::Zero(f);
  for (int d = 0; d < dim; ++d, tile += kTileKeys) {
    const Reals k0 = hn::Load(f, tile), k1 = hn::Load(f, tile + kLanes), k2 = hn::Load(f, tile + 2 * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < kCount; ++h) {
      const Reals q = hn::Set(f, query[h * kQueryStride + d]);
      dot0[h] = hn::MulAdd(q, k0, dot0[h]);
      dot1[h] = hn::MulAdd(q, k1, dot1[h]);
      dot2[h] = hn::MulAdd(q, k2, dot2[h]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kCount; ++h) {
    const Reals w = hn::Set(f, weights[h]);
    sums.v0 = hn::MulAdd(w, rectify(dot0[h]), sums.v0);
    sums.v1 = hn::MulAdd(w, rectify(dot1[h]), sums.v1);
    sums.v2 = hn::MulAdd(w, rectify(dot2[h]), sums.v2);
  }
  return sums;
}

// Brings the next tile's keys near while this one is scored: pages lie anywhere, and hardware prefetchers
// stop at 4 KiB, which is a tile or less. A few keys after every few heads, since a burst of requests would
// stop the core.
struct Ahead {
  const std::uint8_t* const* key = nullptr;
  const std::uint8_t* const* end = nullptr;
  std::int64_t key_bytes = 0;

  HWY_INLINE void fetch(int keys) {
    for (; keys > 0 && key < end; --keys, ++key)
      for (std::int64_t at = 0; at < key_bytes; at += 64) hwy::Prefetch(*key + at);
  }
};

// Steps 4 and 5 up to the scales.
HWY_NOINLINE void score_tile(const float* query, const float* weights, int heads, int dim, const float* tile,
                             const float* scale, float* scores, Ahead& ahead) {
  const Real f;
  Sums sums{hn::Zero(f), hn::Zero(f), hn::Zero(f)};
  const int keys_ahead = kTileKeys * kHeads / heads + 1;
  int h = 0;
  const auto take = [&]<int kCount>(std::integral_constant<int, kCount>) HWY_ATTR {
    for (; h + kCount <= heads; h += kCount) {
      ahead.fetch(keys_ahead);
      sums = add_heads<kCount>(query + h * kQueryStride, weights + h, dim, tile, sums);
    }
  };
  take(std::integral_constant<int, kHeads>());
  if constexpr (kHeads > 4) take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 2>());
  take(std::integral_constant<int, 1>());
  hn::StoreU(hn::Mul(sums.v0, hn::Load(f, scale)), f, scores);
  hn::StoreU(hn::Mul(sums.v1, hn::Load(f, scale + kLanes)), f, scores + kLanes);
  hn::StoreU(hn::Mul(sums.v2, hn::Load(f, scale + 2 * kLanes)), f, scores + 2 * kLanes);
}

// Steps 2 to 5 for the columns of one task.
template <class Format>
void score_chunk_of(const MqaLogitsArgs& a, const RowGroup& group, RowRange columns,
                    const TileScratch& scratch) {
  const std::int64_t heads = a.q.shape[1], dim = a.q.shape[2];
  RowRange rows[kGroupRows];
  const RowRange live = visible_parts(a, group, columns, rows);
  for (std::int64_t i = 0; i < group.count; ++i)
    if (rows[i].size() > 0) widen_query<Format>(a, group.first + i, i, scratch);

  const auto next_seen = [&](std::int64_t first) {
    const auto seen = [&](const RowRange& r) { return r.start < first + kTileKeys && r.end > first; };
    while (first < live.end && std::none_of(rows, rows + group.count, seen)) first += kTileKeys;
    return first;
  };
  const KeyPages pages(a, group.request);
  TileKeys keys[2];
  const auto find = [&](std::int64_t first, TileKeys& tile) {
    pages.find(first, static_cast<int>(std::min<std::int64_t>(kTileKeys, live.end - first)), kTileKeys, tile);
  };

  std::int64_t first = next_seen(live.start);
  if (first < live.end) find(first, keys[0]);
  for (int now = 0; first < live.end; now ^= 1) {
    decode_keys<Format>(keys[now].codes, static_cast<int>(dim), scratch.tile);
    const std::int64_t next = next_seen(first + kTileKeys);
    Ahead ahead;
    if (next < live.end) {
      find(next, keys[now ^ 1]);
      ahead = {keys[now ^ 1].codes, keys[now ^ 1].codes + kTileKeys,
               dim * static_cast<std::int64_t>(sizeof(typename Format::Code))};
    }
    for (std::int64_t i = 0; i < group.count; ++i) {
      const RowRange part{std::max(first, rows[i].start), std::min(first + kTileKeys, rows[i].end)};
      if (part.size() <= 0) continue;
      alignas(64) float scores[kTileKeys];
      score_tile(scratch.queries + i * heads * kQueryStride, scratch.weights + i * heads,
                 static_cast<int>(heads), static_cast<int>(dim), scratch.tile, keys[now].scale, scores,
                 ahead);
      if (keys[now].any_hidden)
        for (int t = 0; t < kTileKeys; ++t)
          if (keys[now].hidden[t]) scores[t] = -std::numeric_limits<float>::infinity();
      write_scores(a, group.first + i, part, scores + (part.start - first));
    }
    first = next;
  }
}

void score_chunk(const MqaLogitsArgs& a, const RowGroup& group, RowRange columns,
                 const TileScratch& scratch) {
  if (a.q.dtype == DType::u8)
    score_chunk_of<E4m3>(a, group, columns, scratch);
  else
    score_chunk_of<Bf16>(a, group, columns, scratch);
}

}  // namespace keysieve::cpu::mqa_logits_tile::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::cpu {
namespace mqa_logits_tile {
namespace {

HWY_EXPORT(score_chunk);

// Parts of one worker's scratch, in bytes; each starts on a cache line.
struct ScratchBytes {
  std::size_t queries, weights, tile, total;
  explicit ScratchBytes(const MqaLogitsArgs& a) {
    const auto line = [](std::int64_t floats) { return static_cast<std::size_t>((floats + 15) / 16 * 64); };
    const std::int64_t rows = std::min(kGroupRows, RowGroups(a).rows_per_request), heads = a.q.shape[1];
    queries = line(rows * heads * kQueryStride);
    weights = line(rows * heads);
    tile = line(a.q.shape[2] * TileKeys::kMost);
    total = queries + weights + tile;
  }
};

const char* refuses(const MqaLogitsArgs&) { return nullptr; }

// The workers' scratch, then the first task of each group.
std::size_t workspace_bytes(const MqaLogitsArgs& a, std::int32_t concurrency) {
  return ScratchBytes(a).total * static_cast<std::size_t>(concurrency) +
         static_cast<std::size_t>(RowGroups(a).total) * sizeof(std::int64_t);
}

Status run(const MqaLogitsArgs& a, const Launch& launch) {
  const RowGroups groups(a);
  const ScratchBytes bytes(a);
  auto* first_task =
      reinterpret_cast<std::int64_t*>(worker_scratch<char>(launch, launch.concurrency, bytes.total));
  std::int64_t tasks = 0;
  for (std::int64_t g = 0; g < groups.total; ++g) {
    first_task[g] = tasks;
    const std::int64_t columns = owned_columns(a, groups[g]).size();
    tasks += mutant("mqa_logits.short_chunks") ? columns / kChunkColumns
                                               : (columns + kChunkColumns - 1) / kChunkColumns;
  }
  for_each_task(launch, tasks, [&](std::int64_t task, int worker) {
    // The last group that starts at or before the task; groups without tasks share their successor's number.
    const std::int64_t g = std::upper_bound(first_task, first_task + groups.total, task) - first_task - 1;
    const RowGroup group = groups[g];
    RowRange columns = owned_columns(a, group);
    columns.start += (task - first_task[g]) * kChunkColumns;
    columns.end = std::min(columns.end, columns.start + kChunkColumns);
    if (a.tail == Tail::neg_inf) fill_tail(a, group, columns);
    auto* scratch = worker_scratch<char>(launch, worker, bytes.total);
    HWY_DYNAMIC_DISPATCH(score_chunk)
    (a, group, columns,
     {reinterpret_cast<float*>(scratch), reinterpret_cast<float*>(scratch + bytes.queries),
      reinterpret_cast<float*>(scratch + bytes.queries + bytes.weights)});
  });
  return {};
}

}  // namespace
}  // namespace mqa_logits_tile

extern const Kernel<MqaLogitsArgs> kMqaLogitsKernels[] = {{"cpu.mqa_logits.tile", mqa_logits_tile::refuses,
                                                           mqa_logits_tile::workspace_bytes,
                                                           mqa_logits_tile::run}};

}  // namespace keysieve::cpu
#endif

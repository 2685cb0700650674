// cuda.packed_mask.shared: one thread block builds one row of one request in shared memory and writes it
// once.
//
//   1. The row's token, key range and bounds are read from device memory; padding rows have none.
//   2. Bits are set in shared memory: from indices and candidates with atomics there, neighbours of a list
//      that fall into one word joined first; from scores with ballots.
//   3. Every word of the row is written, 16 bytes a thread. Rows of more than 4096 words take several thread
//      blocks.
//   4. With a summary: each row leaves its any and all bits per 128-key tile in the workspace, and a second,
//      chained launch joins the 128 rows of a tile. No atomics in device memory anywhere.
//
// Shared memory: a row's words, at most 16 KiB. Workspace: with a summary, 8 bytes for each 32 tiles of a
// row.
#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/faults.hpp"
#include "gpu/kernels.hpp"
#include "gpu/mask_bits.hpp"
#include "gpu/mask_rows.hpp"
#include "gpu/tuning.hpp"

namespace keysieve::gpu {
namespace {
using namespace mask_bits;  // NOLINT: this file is where it belongs

// any and all of each tile of the segment; `count` keys of the row mean something.
__device__ void block_summarize(const BuildParams& p, std::int64_t mask_row, std::int64_t first_word,
                                std::int32_t words, std::int64_t count, bool padding,
                                const std::uint32_t* bits) {
  std::uint32_t* any_row = p.row_summary + mask_row * 2 * p.tile_words;
  std::uint32_t* all_row = any_row + p.tile_words;
  const std::int32_t tiles = (words + kTileWords - 1) / kTileWords;
  for (std::int32_t base = wave_id() * kWave; base < tiles; base += block_threads()) {
    const std::int32_t tile = base + lane_id();
    bool any = false, all = true;
    for (int i = 0; i < kTileWords; ++i) {
      const std::int32_t word = tile * kTileWords + i;
      if (word >= words) break;
      const std::int64_t meaning = count - (first_word + word) * 32;
      const std::uint32_t wanted = meaning >= 32 ? ~0u : meaning <= 0 ? 0u : (1u << meaning) - 1;
      any = any || bits[word] != 0;
      all = all && (bits[word] & wanted) == wanted;
    }
    const LaneMask any_mask = wave_ballot(tile < tiles && any);
    const LaneMask all_mask = wave_ballot(tile < tiles && (all || padding));
    const std::int64_t at = first_word / kTileWords / 32 + base / 32 + lane_id();
    if (lane_id() < kWave / 32 && at < p.tile_words) {
      any_row[at] = static_cast<std::uint32_t>(any_mask >> (32 * lane_id()));
      all_row[at] = static_cast<std::uint32_t>(all_mask >> (32 * lane_id()));
    }
  }
}

template <Source kSource>
__global__ void __launch_bounds__(kMaxThreads) packed_mask_shared_kernel(const BuildParams p) {
  extern __shared__ uint4 shared_bits[];
  auto* bits = reinterpret_cast<std::uint32_t*>(shared_bits);
  let_next_kernel_start();
  const std::uint32_t mask_row = blockIdx.x / p.segments;
  const std::int64_t first_word = std::int64_t{blockIdx.x - mask_row * p.segments} * kSegmentWords;
  const auto rows = static_cast<std::uint32_t>(p.requests.rows);
  const std::uint32_t request = mask_row / rows, row = mask_row - request * rows;

  // 1.
  const std::int64_t token = row_token(p.requests, request, row);
  const KeyRange keys = key_range(p.requests, request);
  const auto words =
      static_cast<std::int32_t>(min(std::int64_t{kSegmentWords}, p.requests.words - first_word));
  for (int v = static_cast<int>(threadIdx.x); v < (words + 3) / 4; v += block_threads())
    shared_bits[v] = make_uint4(0, 0, 0, 0);
  Segment g{p.faults.on(kRangeIgnored) ? 0 : keys.first, first_word * 32, 0};
  std::int64_t start = 0, visible = keys.count;
  if (kSource != Source::indices && token >= 0) {
    // Without scores nothing but the keys themselves limits a row's bounds.
    RowRange range{0, kSource == Source::scores ? p.width : kKeyEnd};
    if (p.has_bounds && !p.faults.on(kBoundsIgnored))
      range = row_range(p.bounds, static_cast<std::uint32_t>(token), range.end);
    start = range.start;
    visible = min(visible, range.end - range.start - g.first);
  }
  g.last_bit = min(visible, g.first_bit + words * 32);

  // 2.
  __syncthreads();
  if (token >= 0 && g.first_bit < g.last_bit) {
    if constexpr (kSource == Source::indices) block_set_indices(p, token, g, bits);
    if constexpr (kSource == Source::candidates) block_set_blocks(p, token, g, bits);
    if constexpr (kSource == Source::scores) {
      if (p.narrow_scores)
        block_set_scores<Bf16Score>(p, token, start, g, bits);
      else
        block_set_scores<F32Score>(p, token, start, g, bits);
    }
  }
  __syncthreads();

  // 3.
  if (p.faults.on(kPaddingLeft) && token < 0) return;
  std::uint32_t* out = p.mask + request * p.request_stride + row * p.row_stride + first_word;
  if (reinterpret_cast<std::uintptr_t>(out) % 16 == 0 && words % 4 == 0) {
    for (int v = static_cast<int>(threadIdx.x); v < words / 4 - (p.faults.on(kTileEarly) ? 1 : 0);
         v += block_threads())
      reinterpret_cast<uint4*>(out)[v] = shared_bits[v];
  } else {
    for (int w = static_cast<int>(threadIdx.x); w < words - (p.faults.on(kLastWord) ? 1 : 0);
         w += block_threads())
      out[w] = bits[w];
  }

  // 4.
  if (p.row_summary != nullptr)
    block_summarize(p, mask_row, first_word, words, p.faults.on(kCountLeft) ? kKeyEnd : keys.count, token < 0,
                    bits);
}

struct JoinParams {
  const std::uint32_t* row_summary;
  std::int64_t rows, tile_words;
  std::uint32_t strips;
  std::uint32_t *any, *all;  // null: not wanted
  std::int64_t any_stride[3], all_stride[3];
  Faults faults;
};

// One wave for each word of a strip of 128 rows.
__global__ void __launch_bounds__(kJoinThreads) packed_mask_join_kernel(const JoinParams p) {
  wait_for_previous_kernel();
  const std::uint32_t request = blockIdx.x / p.strips, strip = blockIdx.x - request * p.strips;
  const std::int64_t first = std::int64_t{strip} * kTileRows;
  const std::int64_t last = min(first + kTileRows - (p.faults.on(kSummaryRow) ? 1 : 0), p.rows);
  for (std::int64_t word = wave_id(); word < p.tile_words; word += kJoinThreads / kWave) {
    std::uint32_t any = 0, all = ~0u;
    for (std::int64_t row = first + lane_id(); row < last; row += kWave) {
      const std::uint32_t* summary = p.row_summary + (request * p.rows + row) * 2 * p.tile_words;
      any |= summary[word];
      all &= summary[p.tile_words + word];
    }
#pragma unroll
    for (int step = kWave / 2; step > 0; step /= 2) {
      any |= wave_shuffle_xor(any, step);
      all &= wave_shuffle_xor(all, step);
    }
    if (lane_id() != 0) continue;
    if (p.any != nullptr)
      p.any[request * p.any_stride[0] + strip * p.any_stride[1] + word * p.any_stride[2]] = any;
    if (p.all != nullptr)
      p.all[request * p.all_stride[0] + strip * p.all_stride[1] + word * p.all_stride[2]] = all;
  }
}

bool has_summary(const PackedMaskArgs& a) { return a.any.given() || a.all.given(); }
std::int64_t tile_words(const PackedMaskArgs& a) { return (a.mask.shape[2] + 127) / 128; }

}  // namespace

const char* PackedMaskShared::refuses(const PackedMaskArgs& a) {
  const std::int64_t segments = (a.mask.shape[2] + kSegmentWords - 1) / kSegmentWords;
  if (a.mask.shape[2] > kMaxInt32 / 32) return "more than 2^31 keys";
  if (a.mask.shape[0] > kMaxInt32 || a.mask.shape[1] > kMaxInt32 ||
      a.mask.shape[0] * a.mask.shape[1] > kMaxInt32 / std::max<std::int64_t>(segments, 1))
    return "more than 2^31 rows";
  return nullptr;
}

std::size_t PackedMaskShared::workspace_bytes(const PackedMaskArgs& a, std::int32_t) {
  if (!has_summary(a)) return 0;
  return static_cast<std::size_t>(a.mask.shape[0] * a.mask.shape[1] * 2 * tile_words(a)) *
         sizeof(std::uint32_t);
}

Status PackedMaskShared::run(const PackedMaskArgs& a, const Launch& launch) {
  const Tensor& list = a.indices.given() ? a.indices : a.candidates;
  BuildParams p{};
  p.source = a.indices.given() ? Source::indices : a.candidates.given() ? Source::candidates : Source::scores;
  const std::int64_t tokens = p.source == Source::scores ? a.scores.shape[0] : list.shape[0];
  p.requests = mask_requests(a, tokens);
  p.block_size = a.block_size;
  if (p.source == Source::scores) {
    p.scores = static_cast<const char*>(a.scores.data);
    p.score_row_stride = a.scores.stride[0];
    p.score_stride = a.scores.stride[1];
    p.width = a.scores.shape[1];
    p.narrow_scores = a.scores.dtype == DType::bf16;
    p.thresholds = static_cast<const float*>(a.thresholds.data);
    p.threshold_stride = a.thresholds.stride[0];
  } else {
    p.list = static_cast<const std::int32_t*>(list.data);
    p.list_row_stride = list.stride[0];
    p.list_stride = list.stride[1];
    p.list_size = list.shape[1];
  }
  p.has_bounds = a.bounds.end.given();
  if (p.has_bounds) p.bounds = row_bounds(a.bounds);
  p.mask = static_cast<std::uint32_t*>(a.mask.data);
  p.request_stride = a.mask.stride[0];
  p.row_stride = a.mask.stride[1];
  p.segments = static_cast<std::uint32_t>((a.mask.shape[2] + kSegmentWords - 1) / kSegmentWords);
  p.tile_words = tile_words(a);
  if (has_summary(a)) p.row_summary = static_cast<std::uint32_t*>(launch.workspace.data);
  p.faults = active_fault({"gpu.packed_mask.word_off", "gpu.packed_mask.padding_left",
                           "gpu.packed_mask.range_ignored", "gpu.packed_mask.last_word",
                           "gpu.packed_mask.bounds_ignored", "gpu.packed_mask.summary_row",
                           "gpu.packed_mask.tile_early", "gpu.packed_mask.no_list_stride",
                           "gpu.packed_mask.not_at_threshold", "gpu.packed_mask.count_left"});
  const DeviceFacts& facts = device_facts(launch.device);
  const Tuning& t = tuning(facts.architecture);
  const std::int64_t mask_rows = a.mask.shape[0] * a.mask.shape[1];
  // Few rows want threads, many rows want many lists in flight.
  const std::int64_t rows_each = mask_rows / facts.processors;
  const std::uint32_t threads = rows_each >= t.packed_rows_for_64    ? 64
                                : rows_each >= t.packed_rows_for_128 ? 128
                                                                     : kMaxThreads;
  const std::int64_t row_words = std::min<std::int64_t>(kSegmentWords, (a.mask.shape[2] + 3) / 4 * 4);
  const auto row_bytes = static_cast<std::size_t>(row_words) * sizeof(std::uint32_t);
  const Grid grid{static_cast<std::uint32_t>(mask_rows * p.segments), threads, row_bytes, false};
  const auto kernel = p.source == Source::indices      ? packed_mask_shared_kernel<Source::indices>
                      : p.source == Source::candidates ? packed_mask_shared_kernel<Source::candidates>
                                                       : packed_mask_shared_kernel<Source::scores>;
  const Status status = launch_kernel("packed_mask", launch, grid, kernel, p);
  if (!status.ok() || !has_summary(a)) return status;

  JoinParams j{};
  j.row_summary = p.row_summary;
  j.rows = a.mask.shape[1];
  j.tile_words = p.tile_words;
  j.strips = static_cast<std::uint32_t>((a.mask.shape[1] + kTileRows - 1) / kTileRows);
  if (a.any.given()) j.any = static_cast<std::uint32_t*>(a.any.data);
  if (a.all.given()) j.all = static_cast<std::uint32_t*>(a.all.data);
  std::copy(a.any.stride, a.any.stride + 3, j.any_stride);
  std::copy(a.all.stride, a.all.stride + 3, j.all_stride);
  j.faults = p.faults;
  const Grid join_grid{static_cast<std::uint32_t>(a.mask.shape[0] * j.strips), kJoinThreads, 0, true};
  return launch_kernel("packed_mask", launch, join_grid, packed_mask_join_kernel, j);
}

}  // namespace keysieve::gpu

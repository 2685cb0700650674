// cuda.candidate_blocks.radix: block maxima, then an exact threshold per row, in two chained launches.
//
//   1. Thread blocks read each live score once and write one ordered key per block (block_maxima.hpp).
//   2. One thread block per row loads the row's keys into shared memory (or reads them again if they do not
//      fit) and finds their range.
//   3. It cuts the range into 2048 equal bins, counts, and goes on inside the bin that holds the last place,
//      until the bin is used up or holds one key: at most three rounds. Bins follow the row's own range,
//      so scores of any distribution spread.
//   4. Waves own contiguous ids; two passes of ballots place the selected ids in ascending order. Equal keys
//      at the threshold go to the smaller ids. The newest block, never in the contest, takes its own place.
//   5. Order by score: the selected ids are sorted with their keys.
//   Where the width has up to 16,384 blocks, ascending order does steps 2 to 4 in registers (candidate_blocks_held.cuh).
//
// Workspace: 4 bytes a block of the widest row for each row, and 8 a place when ordered by score. Shared
// memory: 9 KiB and up to 128 KiB of keys.
#include <algorithm>

#include "gpu/block_maxima.hpp"
#include "gpu/candidate_blocks_held.cuh"
#include "gpu/device.hpp"
#include "gpu/kernels.hpp"
#include "gpu/key_threshold.hpp"
#include "gpu/tuning.hpp"

namespace keysieve::gpu {
namespace {

using namespace key_threshold;  // NOLINT: this file is where it belongs

struct SelectParams {
  const std::uint32_t* keys;
  std::int64_t key_row_stride, width;
  RowBounds bounds;
  Divisor block_size;
  std::int32_t* candidates;
  std::int64_t list_row_stride, list_stride;
  std::int32_t places;
  std::int32_t cached_keys;   // room in shared memory
  std::uint64_t* sort_space;  // null: ascending ids
  std::int32_t sort_places;   // power of two
  Faults faults;
};

__global__ void __launch_bounds__(kThreads, 1) candidate_blocks_radix_kernel(const SelectParams p) {
  extern __shared__ uint4 dynamic_shared[];
  __shared__ SelectShared s;
  const std::uint32_t row = blockIdx.x;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const RowRange visible = row_range(p.bounds, row, p.width);
  const auto size = static_cast<std::uint32_t>(visible.end - visible.start);
  const std::int32_t blocks = size == 0 ? 0 : static_cast<std::int32_t>(p.block_size.divide(size - 1)) + 1;
  std::int32_t* list = p.candidates + row * p.list_row_stride;
  if (thread == 0) {
    s.low = kNanKey;
    s.high = 0;
    s.contestants = 0;
  }
  __syncthreads();
  wait_for_previous_kernel();

  // 2. The newest block's key is 0: it is no part of the contest.
  const std::uint32_t* keys = p.keys + row * p.key_row_stride;
  const bool cached = blocks <= p.cached_keys;
  auto* cache = reinterpret_cast<std::uint32_t*>(dynamic_shared);
  std::uint32_t least = kNanKey - 1, greatest = 0, contestants = 0;
  block_for_each_four(keys, blocks, [&](std::int32_t v, const uint4& four) {  // key rows have room for fours
    if (cached) reinterpret_cast<uint4*>(cache)[v] = four;
    greatest = max(greatest, max(max(four.x, four.y), max(four.z, four.w)));
    // One less wraps 0 to the top, where it is never the least.
    least = min(least, min(min(four.x - 1, four.y - 1), min(four.z - 1, four.w - 1)));
    contestants += (four.x != 0) + (four.y != 0) + (four.z != 0) + (four.w != 0);
  });
  if (cached) keys = cache;
  least = wave_min(least);
  greatest = wave_max(greatest);
  contestants = wave_sum(contestants);
  if (lane_id() == 0) {
    atomicMin(&s.low, least + 1);
    atomicMax(&s.high, greatest);
    atomicAdd(&s.contestants, contestants);
  }
  __syncthreads();
  const std::uint32_t total = s.contestants;

  // 3. The newest takes one place.
  const auto wanted = static_cast<std::uint32_t>(blocks > 0 ? p.places - 1 : 0);
  Threshold threshold{0, 0, 0};
  if (wanted == 0)
    threshold.above = kNanKey;
  else if (total > wanted)
    threshold = block_find_threshold(s, keys, blocks, wanted);
  if (p.faults.on(kTieToLarger) && threshold.ties > 0) threshold.above = threshold.tie = threshold.tie - 1;

  // 4. Each wave owns a run of ids, each lane four neighbours at a time.
  constexpr std::int32_t kStep = kWave * 4;
  const std::int32_t wave_ids = ((blocks + kWaves - 1) / kWaves + kStep - 1) / kStep * kStep;
  const std::int32_t first = wave_id() * wave_ids;
  const std::int32_t last = min(first + wave_ids, blocks);
  const auto four_at = [&](std::int32_t id) {
    return id < last ? *reinterpret_cast<const uint4*>(keys + id) : make_uint4(0, 0, 0, 0);
  };
  const std::uint32_t tie = threshold.ties > 0 ? threshold.tie : 0;  // 0: no key that counts
  std::uint32_t greater = 0, equal = 0;
  for (std::int32_t base = first; base < last; base += kStep) {
    const uint4 four = four_at(base + lane_id() * 4);
    greater += (four.x > threshold.above) + (four.y > threshold.above) + (four.z > threshold.above) +
               (four.w > threshold.above);
    if (tie != 0) equal += (four.x == tie) + (four.y == tie) + (four.z == tie) + (four.w == tie);
  }
  greater = wave_sum(greater);
  equal = wave_sum(equal);
  if (lane_id() == 0) {
    s.greater[wave_id()] = greater;
    s.equal[wave_id()] = equal;
  }
  __syncthreads();
  static_assert(kWaves <= kWave);
  const std::uint32_t wave_greater = lane_id() < kWaves ? s.greater[lane_id()] : 0;
  const std::uint32_t wave_equal = lane_id() < kWaves ? s.equal[lane_id()] : 0;
  const std::uint32_t greater_sums = wave_inclusive_sum(wave_greater);
  const std::uint32_t equal_sums = wave_inclusive_sum(wave_equal);
  const std::uint32_t greater_all = wave_shuffle(greater_sums, kWaves - 1);
  const std::uint32_t equal_all = wave_shuffle(equal_sums, kWaves - 1);
  std::uint32_t greater_before = wave_shuffle(greater_sums - wave_greater, wave_id());
  std::uint32_t equal_before = wave_shuffle(equal_sums - wave_equal, wave_id());
  const bool by_score = p.sort_space != nullptr;
  std::uint64_t* sorting = p.sort_space + row * static_cast<std::int64_t>(p.sort_places);
  const auto place_id = [&](std::uint32_t place, std::int32_t id, std::uint32_t rank) {
    if (place >= static_cast<std::uint32_t>(p.places)) return;  // only a fault gets here
    if (p.faults.on(kIdOff)) ++id;
    if (by_score)
      sorting[place] = (std::uint64_t{rank} << 32) | static_cast<std::uint32_t>(id);
    else
      list[place * p.list_stride] = id;
  };
  // A step has at most kStep of either, so the two counts of a lane share a word.
  for (std::int32_t base = first; greater + equal > 0 && base < last; base += kStep) {
    const std::int32_t id = base + lane_id() * 4;
    const uint4 four = four_at(id);
    if (threshold.ties == 0 && !by_score) {  // no tie to break: one count, and places that follow each other
      const std::uint32_t x = four.x > threshold.above, y = four.y > threshold.above,
                          z = four.z > threshold.above, w = four.w > threshold.above;
      const std::uint32_t mine = x + y + z + w;
      const std::uint32_t sums = wave_inclusive_sum(mine);
      std::int32_t* next = list + (greater_before + sums - mine) * p.list_stride;
      const std::int32_t shown = p.faults.on(kIdOff) ? id + 1 : id;
      if (x != 0) *next = shown, next += p.list_stride;
      if (y != 0) *next = shown + 1, next += p.list_stride;
      if (z != 0) *next = shown + 2, next += p.list_stride;
      if (w != 0) *next = shown + 3;
      greater_before += wave_shuffle(sums, kWave - 1);
      continue;
    }
    const auto counts = [&](std::uint32_t key) {
      return (key > threshold.above ? 1u : 0u) | (tie != 0 && key == tie ? 0x10000u : 0u);
    };
    const std::uint32_t cx = counts(four.x), cy = counts(four.y), cz = counts(four.z), cw = counts(four.w);
    const std::uint32_t mine = cx + cy + cz + cw;
    const std::uint32_t sums = wave_inclusive_sum(mine);
    std::uint32_t before = sums - mine;
    const auto place = [&](std::uint32_t count, std::int32_t at, std::uint32_t key) {
      const std::uint32_t tie_rank = equal_before + (before >> 16);
      if ((count & 1u) != 0 || (count != 0 && tie_rank < threshold.ties))
        place_id(greater_before + (before & 0xffffu) + min(tie_rank, threshold.ties), at, ~key);
      before += count;
    };
    if (mine != 0) {
      place(cx, id, four.x);
      place(cy, id + 1, four.y);
      place(cz, id + 2, four.z);
      place(cw, id + 3, four.w);
    }
    const std::uint32_t step = wave_shuffle(sums, kWave - 1);
    greater_before += step & 0xffffu;
    equal_before += step >> 16;
  }
  std::uint32_t taken = greater_all + min(equal_all, threshold.ties);
  // Ranks: 0 is NaN, 1 the newest, +inf and below follow.
  if (blocks > 0) {
    if (thread == 0) place_id(taken, blocks - 1, 1);
    ++taken;
  }

  // 5.
  if (by_score) {
    for (std::int32_t i = static_cast<std::int32_t>(taken) + thread; i < p.sort_places; i += kThreads)
      sorting[i] = ~std::uint64_t{0};
    __syncthreads();
    if (taken > 1) block_sort(sorting, p.sort_places);
    for (std::int32_t i = thread; i < static_cast<std::int32_t>(taken) && i < p.places; i += kThreads)
      list[i * p.list_stride] = static_cast<std::int32_t>(sorting[i] & kNanKey);
  }
  for (std::int32_t i = static_cast<std::int32_t>(taken) + thread; i < p.places; i += kThreads)
    list[i * p.list_stride] = -1;
}

std::int64_t most_blocks(const CandidateBlocksArgs& a) {
  return (a.scores.shape[1] + a.block_size - 1) / a.block_size;
}
std::int64_t key_row_stride(const CandidateBlocksArgs& a) { return (most_blocks(a) + 31) / 32 * 32; }
std::int64_t sort_places(const CandidateBlocksArgs& a) {
  std::int64_t places = 1;
  while (places < a.candidates.shape[1]) places *= 2;
  return places;
}

}  // namespace

const char* CandidateBlocksRadix::refuses(const CandidateBlocksArgs& a) {
  if (a.scores.shape[1] > kMaxInt32 - 4096) return "more than 2^31 - 4097 columns";
  if (a.scores.shape[0] > kMaxInt32 / 4096) return "more than 2^19 rows";
  if (a.candidates.shape[1] > kMaxInt32 / 2) return "more than 2^30 places";
  return nullptr;
}

std::size_t CandidateBlocksRadix::workspace_bytes(const CandidateBlocksArgs& a, std::int32_t) {
  const auto rows = static_cast<std::size_t>(a.scores.shape[0]);
  std::size_t bytes = rows * static_cast<std::size_t>(key_row_stride(a)) * sizeof(std::uint32_t);
  if (a.order == CandidateOrder::by_score)
    bytes += rows * static_cast<std::size_t>(sort_places(a)) * sizeof(std::uint64_t);
  return bytes;
}

Status CandidateBlocksRadix::run(const CandidateBlocksArgs& a, const Launch& launch) {
  const std::int64_t rows = a.scores.shape[0];
  if (rows == 0 || a.candidates.shape[1] == 0) return {};
  const DeviceFacts& facts = device_facts(launch.device);
  const Tuning& t = tuning(facts.architecture);
  BlockMaximaParams m{};
  m.scores = static_cast<const char*>(a.scores.data);
  m.row_stride = a.scores.stride[0];
  m.column_stride = a.scores.stride[1];
  m.width = a.scores.shape[1];
  m.bounds = row_bounds(a.bounds);
  // A block wider than the matrix is the same as one of its width.
  m.block_size =
      Divisor(static_cast<std::uint32_t>(std::max<std::int64_t>(1, std::min(a.block_size, m.width))));
  m.nan = a.nan;
  m.keys = static_cast<std::uint32_t*>(launch.workspace.data);
  m.key_row_stride = key_row_stride(a);
  m.faults = active_fault({"gpu.candidate_blocks.block_early", "gpu.candidate_blocks.column_stride",
                           "gpu.candidate_blocks.tie_order", "gpu.candidate_blocks.newest",
                           "gpu.candidate_blocks.nan", "gpu.candidate_blocks.id_off"});
  const std::int64_t wanted =
      (std::int64_t{t.maxima_blocks_per_processor} * facts.processors + rows - 1) / rows;
  const std::int64_t most = (m.width + t.maxima_min_columns - 1) / t.maxima_min_columns;
  m.parts = Divisor(static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, std::min({wanted, most, std::int64_t{t.maxima_max_parts}}))));
  const bool unit = m.column_stride == 1 || m.width <= 1;
  const auto maxima =
      a.scores.dtype == DType::bf16
          ? (unit ? block_maxima_kernel<Bf16Score, true> : block_maxima_kernel<Bf16Score, false>)
          : (unit ? block_maxima_kernel<F32Score, true> : block_maxima_kernel<F32Score, false>);
  const Grid maxima_grid{static_cast<std::uint32_t>(rows) * m.parts.value, kMaximaThreads, 0, false, true};
  const Status status = launch_kernel("candidate_blocks", launch, maxima_grid, maxima, m);
  if (!status.ok()) return status;

  if (a.order == CandidateOrder::ascending_id && most_blocks(a) <= kHeldMaxBlocks) {
    HeldBlocksParams h{};
    h.keys = m.keys;
    h.key_row_stride = m.key_row_stride;
    h.width = m.width;
    h.bounds = m.bounds;
    h.block_size = m.block_size;
    h.candidates = static_cast<std::int32_t*>(a.candidates.data);
    h.list_row_stride = a.candidates.stride[0];
    h.list_stride = a.candidates.stride[1];
    h.places = static_cast<std::uint32_t>(a.candidates.shape[1]);
    h.faults = m.faults;
    const Grid grid{static_cast<std::uint32_t>(rows), 1024, 0, true};
    return launch_kernel("candidate_blocks", launch, grid, candidate_blocks_held_kernel, h);
  }

  SelectParams s{};
  s.keys = m.keys;
  s.key_row_stride = m.key_row_stride;
  s.width = m.width;
  s.bounds = m.bounds;
  s.block_size = m.block_size;
  s.candidates = static_cast<std::int32_t*>(a.candidates.data);
  s.list_row_stride = a.candidates.stride[0];
  s.list_stride = a.candidates.stride[1];
  s.places = static_cast<std::int32_t>(a.candidates.shape[1]);
  s.faults = m.faults;
  if (a.order == CandidateOrder::by_score) {
    s.sort_space = reinterpret_cast<std::uint64_t*>(m.keys + rows * m.key_row_stride);
    s.sort_places = static_cast<std::int32_t>(sort_places(a));
  }
  const std::size_t room = facts.shared_bytes - sizeof(SelectShared) - 1024;
  const std::int64_t cached =
      std::min<std::int64_t>({m.key_row_stride, t.select_cached_keys,
                              static_cast<std::int64_t>(room / sizeof(std::uint32_t) / 4 * 4)});
  s.cached_keys = static_cast<std::int32_t>(cached);
  const Grid select_grid{static_cast<std::uint32_t>(rows), kThreads,
                         static_cast<std::size_t>(cached) * sizeof(std::uint32_t), true};
  return launch_kernel("candidate_blocks", launch, select_grid, candidate_blocks_radix_kernel, s);
}

}  // namespace keysieve::gpu

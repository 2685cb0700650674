// cuda.topk.stream: rows of any length in one pass over their scores (topk_filter.cuh), and an exact cut among
// what that lists (topk_held.cuh). A row of up to 16,384 elements is held at once, as cuda.topk.held does.
//
//   many rows   one thread block a row
//   few, long   several thread blocks a row, each with a run of its vectors, leave lists in the workspace; a
//               second kernel, launched to overlap the first, joins them in order, cuts and writes.
//
// A sample may mislead so that fewer than k elements are listed; then one thread block passes over the whole row
// again without a threshold, which is slow and right. Workspace: only with several thread blocks a row, 8 bytes
// for each of max(k, 1024) elements of each.
#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/kernels.hpp"
#include "gpu/topk_filter.cuh"
#include "gpu/topk_held.cuh"
#include "gpu/topk_variant.hpp"
#include "gpu/tuning.hpp"

namespace keysieve::gpu {
namespace {

constexpr int kThreads = 1024;
constexpr std::uint32_t kMostParts = 32;  // a wave asks all parts at once
static_assert(kMostParts <= kWave);

struct StreamParams {
  TopkParams topk;
  ListLayout list;
  std::uint32_t queue;  // in dynamic shared memory, behind the list
  HeldLayout held;
  Divisor parts;
  std::uint32_t segment;  // elements that a part may leave
  // Workspace: [row][part][segment] twice, [row][part] twice and [row].
  std::uint32_t* keys;
  std::uint32_t* elements;
  std::uint32_t* counts;
  std::uint32_t* greatest;    // keys of a part
  std::uint32_t* thresholds;  // the same for all parts of a row, since they take the same sample
};

template <class Elements>
__device__ bool fits_registers(const Elements& elements) {
  return elements.size <= kThreads * kHeldKeys;
}

// Joins the parts' lists in order; all of it is the row's threshold or more.
__device__ Filtered block_join(const StreamParams& p, const SurvivorList& list, std::uint32_t* items,
                               CutBlock& block) {
  const std::uint32_t low = p.thresholds[blockIdx.x];
  const std::uint32_t parts = p.parts.value;
  const std::size_t first = std::size_t{blockIdx.x} * parts;
  const bool asks = lane_id() < static_cast<int>(parts);
  const std::uint32_t mine = asks ? p.counts[first + static_cast<std::size_t>(lane_id())] : 0;
  const std::uint32_t total = wave_sum(mine);
  if (total <= list.capacity) {
    constexpr std::uint32_t kWaves = kThreads / kWave;
    std::uint32_t greatest = 0;
    for (std::uint32_t part = wave_id(); part < parts; part += kWaves) {
      const bool backward = p.topk.faults.on(kJoinOrder);
      const std::uint32_t before = wave_sum(
          (backward ? lane_id() > static_cast<int>(part) : lane_id() < static_cast<int>(part)) ? mine : 0);
      const std::uint32_t size = wave_shuffle(mine, static_cast<int>(part));
      const std::size_t segment = (first + part) * p.segment;
#pragma unroll 2
      for (std::uint32_t i = lane_id(); i < size; i += kWave) {
        const std::uint32_t key = p.keys[segment + i];
        list.keys[before + i] = key;
        list.elements[before + i] = p.elements[segment + i];
        greatest = max(greatest, key);
      }
    }
    wave_note_greatest(greatest, block.m);
    __syncthreads();
    return {total, low};
  }
  if (threadIdx.x == 0) block.m.high = ~0u;
  std::uint32_t listed = 0, least = low;
  for (std::uint32_t part = 0; part < parts; ++part) {
    if (p.greatest[first + part] < least) continue;
    const std::uint32_t size = wave_shuffle(mine, static_cast<int>(part));
    const std::size_t segment = (first + part) * p.segment;
    for (std::uint32_t done = 0; done < size;) {
      if (listed == list.capacity) {
        least = block_shrink<kThreads>(list, listed, p.topk.k, low, items, block) + 1;
        listed = p.topk.k;
      }
      const std::uint32_t take = min(size - done, list.capacity - listed);
      for (std::uint32_t i = threadIdx.x; i < take; i += kThreads) {
        list.keys[listed + i] = p.keys[segment + done + i];
        list.elements[listed + i] = p.elements[segment + done + i];
      }
      done += take;
      listed += take;
    }
  }
  __syncthreads();
  return {listed, low};
}

// kJoined: other thread blocks have passed over the row already.
template <class Scores, bool kListed, bool kJoined>
__global__ void __launch_bounds__(kThreads, 1)
    topk_stream_kernel(const __grid_constant__ StreamParams params) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ CutMemory m;
  __shared__ HeldRow<Scores, kListed> held;
  const TopkParams& p = params.topk;
  __shared__ HeldMemory<kThreads> registers;
  CutBlock block = block_begin<kThreads>(m);
  block_begin_held(registers);
  block_begin_row<kThreads>(p, params.held, blockIdx.x, memory, held);
  if (kJoined) wait_for_previous_kernel();
  const SurvivorList list = survivor_list(params.list, memory);
  if (fits_registers(held.elements)) {
    block_select_held<kThreads>(p, params.held, blockIdx.x, held, memory, registers, block);
    return;
  }
  auto* items = reinterpret_cast<std::uint32_t*>(memory + params.held.picks);
  Threshold threshold{floor_key(p), true};
  Filtered filtered{0, 0};
  if (kJoined)
    filtered = block_join(params, list, items, block);
  else
    threshold = block_sample<kThreads>(p, held.elements, block);
  // Parts that had no threshold to reach have left all that there is.
  while (!kJoined || (filtered.size < p.k && filtered.low != floor_key(p))) {
    filtered = block_filter<kThreads>(p, held.elements, 0, held.elements.vector_count(), threshold, list,
                                      reinterpret_cast<std::uint32_t*>(memory + params.queue), items, block);
    if (filtered.size >= p.k || threshold.key == floor_key(p) || p.faults.on(kMisled)) break;
    threshold = {floor_key(p), true};  // the sample has misled
  }
  Cut cut = filtered.size > p.k ? block_cut_list<kThreads>(list, filtered.size, p.k, filtered.low, block)
                                : Cut{filtered.low, 0, false, 0};
  if (p.faults.on(kTieShort) && cut.partial) --cut.ties;
  block_write_list<kThreads>(p, params.held, blockIdx.x, held, list, filtered.size, cut, memory, m);
}

template <class Scores>
__global__ void __launch_bounds__(kThreads, 1) topk_part_kernel(const __grid_constant__ StreamParams params) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ CutMemory m;
  __shared__ HeldRow<Scores, false> held;
  const TopkParams& p = params.topk;
  const std::uint32_t parts = params.parts.value;
  const std::uint32_t row = params.parts.divide(blockIdx.x), part = blockIdx.x - row * parts;
  let_next_kernel_start();
  CutBlock block = block_begin<kThreads>(m);
  block_begin_row<kThreads>(p, params.held, row, memory, held);
  if (fits_registers(held.elements)) return;
  const SurvivorList list = survivor_list(params.list, memory);
  auto* items = reinterpret_cast<std::uint32_t*>(memory + params.held.picks);
  const std::uint32_t vectors = held.elements.vector_count();
  const std::uint32_t share = (params.parts.divide(vectors - 1) + kWave) / kWave * kWave;
  const std::uint32_t from = min(vectors, part * share), to = min(vectors, from + share);
  const Threshold threshold = block_sample<kThreads>(p, held.elements, block);
  Filtered filtered =
      block_filter<kThreads>(p, held.elements, from, to, threshold, list,
                             reinterpret_cast<std::uint32_t*>(memory + params.queue), items, block);
  if (filtered.size > params.segment) {
    (void)block_shrink<kThreads>(list, filtered.size, p.k, filtered.low, items, block);
    filtered.size = p.k;
  }
  const std::size_t segment = std::size_t{blockIdx.x} * params.segment;
  for (std::uint32_t i = threadIdx.x; i < filtered.size; i += kThreads) {
    params.keys[segment + i] = list.keys[i];
    params.elements[segment + i] = list.elements[i];
  }
  if (threadIdx.x == 0) {
    params.counts[blockIdx.x] = filtered.size;
    params.greatest[blockIdx.x] = m.high;
    if (part == 0) params.thresholds[row] = threshold.key;
  }
}

// False where the device's shared memory is too small.
bool lay_out(StreamParams& p, std::size_t shared_bytes) {
  // A list with no room for a round has k elements, so that it can be shrunk.
  for (std::uint32_t capacity = 16384; capacity >= p.topk.k + kRoundElements; capacity -= 1024) {
    p.list = list_layout(capacity);
    p.queue = p.list.bytes;
    p.list.bytes += kThreads * 4;
    p.held = held_layout(p.topk, p.list);
    if (p.held.bytes + kHeldStaticBytes <= shared_bytes) return true;
  }
  return false;
}

std::uint32_t segment_for(const TopkArgs& a) {
  return static_cast<std::uint32_t>(std::max<std::int64_t>((a.k + 31) / 32 * 32, 1024));
}

// A part costs a sample and a second kernel: it must save more than that. Candidates are few enough for one.
std::uint32_t parts_for(const TopkArgs& a) {
  if (a.candidates.given()) return 1;
  const DeviceFacts& facts = device_facts(a.scores.device);
  const Tuning& t = tuning(facts.architecture);
  const std::int64_t rows = std::max<std::int64_t>(a.scores.shape[0], 1), elements = topk_elements(a);
  const std::int64_t parts =
      std::min({facts.processors / rows, elements / t.topk_min_elements, std::int64_t{kMostParts}});
  return parts >= t.topk_min_parts ? static_cast<std::uint32_t>(parts) : 1;
}

}  // namespace

const char* TopkStream::refuses(const TopkArgs& a) {
  if (a.scores.shape[0] > kMaxInt32 / std::int64_t{kMostParts}) return "2^26 rows or more";
  if (a.k > kHeldMaxK) return "k is above 4096";
  if (a.candidates.given() && a.candidates.shape[1] > kListMostEntries)
    return "a row lists more than 8192 candidate blocks";
  StreamParams p{};
  p.topk = topk_params(a);
  if (!lay_out(p, device_facts(a.scores.device).shared_bytes))
    return "the device has too little shared memory for this k";
  return nullptr;
}

std::size_t TopkStream::workspace_bytes_in_parts(const TopkArgs& a, std::uint32_t parts) {
  if (parts == 1) return 0;
  const auto lists = static_cast<std::size_t>(a.scores.shape[0]) * parts;
  return (lists * (segment_for(a) * 2 + 2) + static_cast<std::size_t>(a.scores.shape[0])) *
         sizeof(std::uint32_t);
}

std::size_t TopkStream::workspace_bytes(const TopkArgs& a, std::int32_t) {
  return workspace_bytes_in_parts(a, parts_for(a));
}

Status TopkStream::run(const TopkArgs& a, const Launch& launch) {
  return run_in_parts(a, launch, parts_for(a));
}

Status TopkStream::run_in_parts(const TopkArgs& a, const Launch& launch, std::uint32_t parts) {
  StreamParams p{};
  p.topk = topk_params(a);
  (void)lay_out(p, device_facts(launch.device).shared_bytes);  // it fits: refuses() has asked
  const auto rows = static_cast<std::uint32_t>(p.topk.rows);
  return topk_variant(a, [&](auto scores, auto listed) {
    using Scores = decltype(scores);
    if (listed.value || parts == 1)
      return launch_kernel("topk", launch, Grid{rows, kThreads, p.held.bytes, false},
                           topk_stream_kernel<Scores, listed.value, false>, p);
    p.parts = Divisor(parts);
    p.segment = segment_for(a);
    const std::size_t places = std::size_t{rows} * parts * p.segment;
    p.keys = static_cast<std::uint32_t*>(launch.workspace.data);
    p.elements = p.keys + places;
    p.counts = p.elements + places;
    p.greatest = p.counts + std::size_t{rows} * parts;
    p.thresholds = p.greatest + std::size_t{rows} * parts;
    const Status status = launch_kernel(
        "topk", launch, Grid{rows * parts, kThreads, p.held.bytes, false, true}, topk_part_kernel<Scores>, p);
    if (!status.ok()) return status;
    return launch_kernel("topk", launch, Grid{rows, kThreads, p.held.bytes, true},
                         topk_stream_kernel<Scores, false, true>, p);
  });
}

}  // namespace keysieve::gpu

// cuda.mask_indices.scan: one thread block per token lists the set bits of its row in ascending order.
//
//   1. The threads look for the request whose query rows hold the token.
//   2. 256 words at a time: every thread counts its word's bits, a scan gives their places, and the thread
//      writes them. Bits at or past the key count do not exist.
//   3. -1 behind them; the count is the row's, also where the list is shorter.
#include <algorithm>

#include "gpu/block.hpp"
#include "gpu/device.hpp"
#include "gpu/faults.hpp"
#include "gpu/kernels.hpp"
#include "gpu/mask_rows.hpp"

namespace keysieve::gpu {
namespace {

constexpr int kThreads = 256;
constexpr std::uint32_t kNoRequest = ~std::uint32_t{0};

enum Fault { kCountIgnored, kFirstIgnored, kCarryLost, kTileEarly, kNoOutStride, kOneBitOff };

struct ListParams {
  MaskRequests requests;
  const std::uint32_t* mask;
  std::int64_t request_stride, row_stride;
  std::int32_t* out;
  std::int64_t out_row_stride, out_stride, places;
  std::int32_t* counts;  // null: not wanted
  std::int64_t count_stride;
  Faults faults;
};

__global__ void __launch_bounds__(kThreads) mask_indices_scan_kernel(const ListParams p) {
  __shared__ std::uint32_t waves[kThreads / kWave];
  __shared__ std::uint32_t found;
  const std::int64_t token = blockIdx.x;
  const MaskRequests& m = p.requests;
  if (threadIdx.x == 0) found = kNoRequest;
  __syncthreads();
  for (std::int64_t request = threadIdx.x; request < m.requests; request += kThreads) {
    const std::int64_t row = token - first_token(m, request);
    if (row >= 0 && row < m.rows && row_token(m, request, row) == token)
      atomicMin(&found, static_cast<std::uint32_t>(request));
  }
  __syncthreads();
  const std::uint32_t request = found;
  std::int32_t* out = p.out + token * p.out_row_stride;
  std::int64_t kept = 0;
  if (request != kNoRequest) {
    const KeyRange keys = key_range(m, request);
    const std::int64_t row = token - first_token(m, request);
    const std::uint32_t* words = p.mask + request * p.request_stride + row * p.row_stride;
    const std::int64_t count = p.faults.on(kCountIgnored) ? m.words * 32 : keys.count;
    const std::int64_t first = p.faults.on(kFirstIgnored) ? 0 : keys.first;
    // Bits whose key is a number of 31 bits.
    const std::int64_t low = clamp_int(-first, 0, count), high = clamp_int(kMaxInt32 + 1 - first, low, count);
    const std::int64_t stride = p.faults.on(kNoOutStride) ? 1 : p.out_stride;
    for (std::int64_t base = 0; base * 32 < high - (p.faults.on(kTileEarly) ? kThreads * 32 : 0);
         base += kThreads) {
      const std::int64_t word = base + threadIdx.x;
      const std::int64_t meaning = high - word * 32, before = low - word * 32;
      std::uint32_t bits = meaning > 0 ? words[word] : 0;
      if (meaning > 0 && meaning < 32) bits &= (1u << meaning) - 1;
      if (before > 0) bits &= before < 32 ? ~0u << before : 0u;
      std::uint32_t total;
      std::int64_t place =
          block_sum_before<kThreads>(static_cast<std::uint32_t>(popcount(bits)), waves, total);
      place += p.faults.on(kCarryLost) ? 0 : kept;
      for (; bits != 0 && place < p.places; bits &= bits - 1, ++place)
        out[place * stride] = static_cast<std::int32_t>(
            first + word * 32 + (first_lane(bits) ^ (p.faults.on(kOneBitOff) ? 1 : 0)));
      kept += total;
    }
  }
  if (p.counts != nullptr && threadIdx.x == 0)
    p.counts[token * p.count_stride] = static_cast<std::int32_t>(kept);
  for (std::int64_t place = kept + threadIdx.x; place < p.places; place += kThreads)
    out[place * p.out_stride] = -1;
}

}  // namespace

const char* MaskIndicesScan::refuses(const MaskIndicesArgs& a) {
  if (a.mask.shape[2] > kMaxInt32 / 32) return "more than 2^31 keys";
  if (a.out.shape[0] > kMaxInt32) return "more than 2^31 tokens";
  return nullptr;
}

std::size_t MaskIndicesScan::workspace_bytes(const MaskIndicesArgs&, std::int32_t) { return 0; }

Status MaskIndicesScan::run(const MaskIndicesArgs& a, const Launch& launch) {
  ListParams p{};
  p.requests = mask_requests(a, a.out.shape[0]);
  p.mask = static_cast<const std::uint32_t*>(a.mask.data);
  p.request_stride = a.mask.stride[0];
  p.row_stride = a.mask.stride[1];
  p.out = static_cast<std::int32_t*>(a.out.data);
  p.out_row_stride = a.out.stride[0];
  p.out_stride = a.out.stride[1];
  p.places = a.out.shape[1];
  if (a.counts.given()) {
    p.counts = static_cast<std::int32_t*>(a.counts.data);
    p.count_stride = a.counts.stride[0];
  }
  p.faults = active_fault({"gpu.mask_indices.count_ignored", "gpu.mask_indices.first_ignored",
                           "gpu.mask_indices.carry_lost", "gpu.mask_indices.tile_early",
                           "gpu.mask_indices.no_out_stride", "gpu.mask_indices.one_bit_off"});
  const Grid grid{static_cast<std::uint32_t>(a.out.shape[0]), kThreads, 0, false};
  return launch_kernel("mask_indices", launch, grid, mask_indices_scan_kernel, p);
}

}  // namespace keysieve::gpu

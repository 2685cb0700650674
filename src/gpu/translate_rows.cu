// cuda.translate.rows: a thread block a row. Each tile of indices finds its slots; with `compact` a sum over
// the earlier threads tells where a found slot goes. No workspace.
#include "gpu/block.hpp"
#include "gpu/device.hpp"
#include "gpu/faults.hpp"
#include "gpu/kernels.hpp"
#include "gpu/page_slot.hpp"
#include "gpu/topk_row.hpp"

namespace keysieve::gpu {
namespace {

constexpr int kThreads = 256;

enum Fault { kPlaceEarly, kNoSlotStride, kTileRestarts, kRejectedShown };

struct TranslateParams {
  Matrix<const std::int32_t> indices;
  std::int64_t k;
  PageSlots pages;
  bool compact, slots_wide;
  void* slots;
  std::int64_t slots_row_stride, slots_column_stride;
  Matrix<std::int32_t> counts, raw;
  Faults faults;
};

__global__ void __launch_bounds__(kThreads) translate_rows_kernel(const __grid_constant__ TranslateParams p) {
  __shared__ std::uint32_t waves[kThreads / kWave];
  const std::int64_t row = blockIdx.x;
  const PageRow pages = page_row(p.pages, row);
  const auto put = [&](std::int64_t place, std::int64_t slot, std::int32_t local) {
    const std::int64_t at =
        row * p.slots_row_stride + place * (p.faults.on(kNoSlotStride) ? 1 : p.slots_column_stride);
    if (p.slots_wide)
      static_cast<std::int64_t*>(p.slots)[at] = slot;
    else
      static_cast<std::int32_t*>(p.slots)[at] = static_cast<std::int32_t>(slot);
    if (p.raw.data != nullptr) p.raw.at(row, place) = local;
  };
  std::int64_t found = 0;
  for (std::int64_t from = 0; from < p.k; from += kThreads) {
    const std::int64_t t = from + threadIdx.x;
    std::int32_t local = -1;
    std::int64_t slot = -1;
    if (t < p.k - (p.faults.on(kPlaceEarly) ? 1 : 0)) {
      local = p.indices.at(row, t);
      slot = page_slot(p.pages, pages, local);
    }
    std::uint32_t of_tile;
    const std::uint32_t before = block_sum_before<kThreads>(slot >= 0 ? 1 : 0, waves, of_tile);
    if (!p.compact) {
      if (t < p.k) put(t, slot, slot >= 0 || p.faults.on(kRejectedShown) ? local : -1);
    } else if (slot >= 0) {
      put((p.faults.on(kTileRestarts) ? 0 : found) + before, slot, local);
    }
    found += of_tile;
  }
  if (p.compact)
    for (std::int64_t t = found + threadIdx.x; t < p.k; t += kThreads) put(t, -1, -1);
  if (threadIdx.x == 0 && p.counts.data != nullptr) p.counts.at(row, 0) = static_cast<std::int32_t>(found);
}

}  // namespace

const char* TranslateRows::refuses(const TranslateArgs& a) {
  return a.indices.shape[0] > kMaxInt32 ? "2^31 rows or more" : nullptr;
}

std::size_t TranslateRows::workspace_bytes(const TranslateArgs&, std::int32_t) { return 0; }

Status TranslateRows::run(const TranslateArgs& a, const Launch& launch) {
  TranslateParams p{};
  p.indices = matrix<const std::int32_t>(a.indices);
  p.k = a.indices.shape[1];
  p.pages = page_slots(a.pages, a.slots.dtype);
  p.compact = a.mode == TranslateMode::compact;
  p.slots = a.slots.data;
  p.slots_wide = a.slots.dtype == DType::i64;
  p.slots_row_stride = a.slots.stride[0];
  p.slots_column_stride = a.slots.stride[1];
  p.counts = matrix<std::int32_t>(a.counts);
  p.raw = matrix<std::int32_t>(a.raw);
  p.faults = active_fault({"gpu.translate.place_early", "gpu.translate.no_slot_stride",
                           "gpu.translate.tile_restarts", "gpu.translate.rejected_shown"});
  const Grid grid{static_cast<std::uint32_t>(a.indices.shape[0]), kThreads, 0, false};
  return launch_kernel("translate", launch, grid, translate_rows_kernel, p);
}

}  // namespace keysieve::gpu

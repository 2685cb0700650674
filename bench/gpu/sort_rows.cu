#include <cub/device/device_radix_sort.cuh>

#include "gpu/sort_rows.hpp"

namespace keysieve::bench {
namespace {

__global__ void count_columns(std::int32_t* columns, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) columns[i] = static_cast<std::int32_t>(i);
}

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t temporary_bytes(std::int64_t columns) {
  std::size_t bytes = 0;
  cub::DeviceRadixSort::SortPairsDescending<float, std::int32_t>(nullptr, bytes, nullptr, nullptr, nullptr,
                                                                 nullptr, columns);
  return rounded(bytes);
}

}  // namespace

std::size_t sort_rows_bytes(std::int64_t columns) {
  return temporary_bytes(columns) + 3 * rounded(static_cast<std::size_t>(columns) * 4);
}

void sort_rows(const float* scores, std::int64_t row_stride, std::int64_t rows, std::int64_t columns,
               void* scratch, gpu::StreamHandle stream) {
  auto* at = static_cast<char*>(scratch);
  const std::size_t each = rounded(static_cast<std::size_t>(columns) * 4);
  auto* ids = reinterpret_cast<std::int32_t*>(at);
  auto* sorted = reinterpret_cast<float*>(at + each);
  auto* sorted_ids = reinterpret_cast<std::int32_t*>(at + 2 * each);
  std::size_t bytes = temporary_bytes(columns);
  count_columns<<<static_cast<unsigned>((columns + 255) / 256), 256, 0, stream>>>(ids, columns);
  for (std::int64_t r = 0; r < rows; ++r)
    cub::DeviceRadixSort::SortPairsDescending(at + 3 * each, bytes, scores + r * row_stride, sorted, ids,
                                              sorted_ids, columns, 0, 32, stream);
}

}  // namespace keysieve::bench

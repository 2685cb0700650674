// sort_rows: the naive top-k: each row sorted by score, with its columns. The sort is CUB's.
#pragma once

#include <cstdint>

#include "gpu/vendor.hpp"

namespace keysieve::bench {

// Scratch for rows of so many scores, which are sorted one after the other.
std::size_t sort_rows_bytes(std::int64_t columns);
// Row r of `scores` begins at r * row_stride.
void sort_rows(const float* scores, std::int64_t row_stride, std::int64_t rows, std::int64_t columns,
               void* scratch, gpu::StreamHandle stream);

}  // namespace keysieve::bench

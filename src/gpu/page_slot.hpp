// page_slot: PageMap on the device: the slot of a request-local position, or -1.
#pragma once

#include <cstdint>
#include <limits>

#include "gpu/row_range.hpp"
#include "gpu/vendor.hpp"
#include "keysieve/page_map.hpp"

namespace keysieve::gpu {

struct PageSlots {
  const std::int32_t* table = nullptr;
  std::int64_t row_stride = 0, column_stride = 0, requests = 0, columns = 0;
  const std::int32_t* row_to_request = nullptr;  // null: row / next_n
  std::int64_t row_to_request_stride = 0;
  IntList table_start;  // data is null: 0
  std::int64_t page_size = 1, pool_pages = -1, next_n = 1;
  int page_shift = -1;     // where page_size is a power of two
  std::int64_t last_slot;  // the greatest that the output holds
};

inline PageSlots page_slots(const PageMap& m, DType slot_dtype) {
  PageSlots s{};
  s.last_slot = slot_dtype == DType::i32 ? kMaxInt32 : std::numeric_limits<std::int64_t>::max();
  s.table = static_cast<const std::int32_t*>(m.page_table.data);
  s.row_stride = m.page_table.stride[0];
  s.column_stride = m.page_table.stride[1];
  s.requests = m.page_table.shape[0];
  s.columns = m.page_table.shape[1];
  if (m.row_to_request.given()) {
    s.row_to_request = static_cast<const std::int32_t*>(m.row_to_request.data);
    s.row_to_request_stride = m.row_to_request.stride[0];
  }
  if (m.table_start.given()) s.table_start = int_list(m.table_start);
  s.page_size = m.page_size;
  s.pool_pages = m.pool_pages;
  s.next_n = m.next_n;
  for (int shift = 0; shift < 62; ++shift)
    if (m.page_size == std::int64_t{1} << shift) s.page_shift = shift;
  return s;
}

#if defined(__CUDACC__) || defined(__HIPCC__)

// A row's line of the table, resolved once.
struct PageRow {
  const std::int32_t* line;  // null: the row has no request
  std::int64_t first;
};

__device__ inline PageRow page_row(const PageSlots& s, std::int64_t row) {
  const std::int64_t request =
      s.row_to_request != nullptr ? s.row_to_request[row * s.row_to_request_stride] : row / s.next_n;
  if (request < 0 || request >= s.requests) return {nullptr, 0};
  const std::int64_t first =
      s.table_start.data != nullptr ? load_int(s.table_start, row * s.table_start.stride) : 0;
  return {first < 0 ? nullptr : s.table + request * s.row_stride, first};
}

__device__ inline std::int64_t page_slot(const PageSlots& s, const PageRow& row, std::int64_t local) {
  constexpr std::int64_t kMaxInt64 = 0x7fffffffffffffff;
  if (row.line == nullptr || local < 0 || row.first > kMaxInt64 - local) return -1;
  const std::int64_t position = row.first + local;
  const std::int64_t column = s.page_shift >= 0 ? position >> s.page_shift : position / s.page_size;
  if (column >= s.columns) return -1;
  const std::int64_t page = row.line[column * s.column_stride];
  if (page < 0 || (s.pool_pages >= 0 && page >= s.pool_pages)) return -1;
  const std::int64_t slot = page * s.page_size + (position - column * s.page_size);
  return slot <= s.last_slot ? slot : -1;
}

#endif

}  // namespace keysieve::gpu

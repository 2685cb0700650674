// page_map: the slot of a request-local position, or -1.
#pragma once

#include "keysieve/page_map.hpp"
#include "reference/access.hpp"

namespace keysieve::reference {

inline std::int64_t slot_of(const PageMap& m, std::int64_t row, std::int64_t local, DType slot_dtype) {
  const std::int64_t request = m.row_to_request.given() ? integer_at(m.row_to_request, row) : row / m.next_n;
  if (request < 0 || request >= m.page_table.shape[0] || local < 0) return -1;
  const std::int64_t first = m.table_start.given() ? integer_at(m.table_start, row) : 0;
  if (first < 0 || first > std::numeric_limits<std::int64_t>::max() - local) return -1;
  const std::int64_t position = first + local;
  const std::int64_t column = position / m.page_size;
  if (column >= m.page_table.shape[1]) return -1;
  const std::int64_t page = at<std::int32_t>(m.page_table, request, column);
  if (page < 0 || (m.pool_pages >= 0 && page >= m.pool_pages)) return -1;
  const std::int64_t slot = page * m.page_size + position % m.page_size;
  // A slot that the output cannot hold is no slot.
  if (slot_dtype == DType::i32 && slot > std::numeric_limits<std::int32_t>::max()) return -1;
  return slot;
}

}  // namespace keysieve::reference

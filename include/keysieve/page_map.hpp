// page_map: from a request's own position to a slot of the shared cache pool:
// slot = page_table[request][position / page_size] * page_size + position % page_size.
// A request outside the table, a column outside the table, a negative page id and a page id at or past
// `pool_pages` have no slot. Table entries that no position needs are not read.
#pragma once

#include "keysieve/tensor.hpp"

namespace keysieve {

struct PageMap {
  Tensor page_table;             // i32 [requests, columns], any strides
  Tensor row_to_request;         // optional i32 [rows]; without it request = row / next_n
  Tensor table_start;            // optional i32|i64 [rows]: position of local index 0 within the request
  std::int64_t page_size = 64;   // any size >= 1
  std::int64_t pool_pages = -1;  // -1: unknown, only negative ids have no slot
  std::int64_t next_n = 1;       // rows per request where row_to_request is absent
};

}  // namespace keysieve

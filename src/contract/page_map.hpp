// The rules of PageMap, the same for topk's paged space and for translate.
#pragma once

#include "contract/check.hpp"
#include "keysieve/page_map.hpp"

namespace keysieve {

constexpr Check& judge_page_map(Check& check, const PageMap& m, const Dim& rows) {
  check
      .shape("page_table", m.page_table, {kAnyExtent, kAnyExtent}, "PGM-01 page_table is [requests, columns]")
      .dtype("page_table", m.page_table, {DType::i32}, "PGM-02 page_table is i32")
      .positive("page_size", m.page_size, "PGM-03 page_size is 1 to 2^31 - 1")
      .positive("next_n", m.next_n, "PGM-04 next_n is 1 to 2^31 - 1")
      .that(m.pool_pages >= -1, "pool_pages", "PGM-05 pool_pages >= 0, or -1 for unknown", m.pool_pages)
      .dtype("row_to_request", m.row_to_request, {DType::i32}, "PGM-06 row_to_request is i32")
      .optional_shape("row_to_request", m.row_to_request, {rows.value}, "PGM-07 row_to_request is [rows]")
      .dtype("table_start", m.table_start, {DType::i32, DType::i64}, "PGM-08 table_start is i32 or i64")
      .optional_shape("table_start", m.table_start, {rows.value}, "PGM-09 table_start is [rows]");
  return check;
}

template <class F>
constexpr void visit_page_map(const PageMap& m, F&& f) {
  f("page_table", m.page_table, Access::read);
  f("row_to_request", m.row_to_request, Access::read);
  f("table_start", m.table_start, Access::read);
}

}  // namespace keysieve

// page_map: the slots of one row's positions, with everything that the row decides taken out of the loop.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "contract/mutant.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/page_map.hpp"

namespace keysieve::cpu {

class RowPages {
 public:
  // `slots` is the output: a slot that its type cannot hold is no slot (PGM-12).
  RowPages(const PageMap& m, std::int64_t row, const Tensor& slots)
      : page_size_(m.page_size),
        pool_pages_(m.pool_pages >= 0 ? m.pool_pages : std::numeric_limits<std::int64_t>::max()),
        last_slot_(slots.dtype == DType::i64 ? std::numeric_limits<std::int64_t>::max()
                                             : std::numeric_limits<std::int32_t>::max()) {
    if (std::has_single_bit(static_cast<std::uint64_t>(page_size_)))
      page_shift_ = std::countr_zero(static_cast<std::uint64_t>(page_size_));
    const std::int64_t request = m.row_to_request.given() ? load_int(m.row_to_request, row) : row / m.next_n;
    // PGM-10: a request outside the table has no pages, so nothing of the table is read for it.
    if (request < 0 || request >= m.page_table.shape[0]) return;
    const std::int64_t first =
        m.table_start.given() && !mutant("translate.table_start") ? load_int(m.table_start, row) : 0;
    if (first < 0) return;
    first_ = first;
    table_ = static_cast<const std::int32_t*>(m.page_table.data) + request * m.page_table.stride[0];
    column_stride_ = m.page_table.stride[1];
    columns_ = m.page_table.shape[1] + (mutant("translate.columns") ? 1 : 0);
  }

  // The slot of a local index, or -1. PGM-11: only the entry of an existing column is read, and its page must
  // exist.
  [[nodiscard]] std::int64_t slot(std::int64_t local) const {
    if (local < 0 || first_ > std::numeric_limits<std::int64_t>::max() - local) return -1;
    const std::int64_t position = first_ + local;
    const std::int64_t column = page_shift_ >= 0 ? position >> page_shift_ : position / page_size_;
    if (column >= columns_) return -1;
    const std::int64_t page = table_[column * column_stride_];
    if (page < 0 || (page >= pool_pages_ && !mutant("translate.pool"))) return -1;
    const std::int64_t slot = page * page_size_ + (position - column * page_size_);
    return slot <= last_slot_ ? slot : -1;
  }

 private:
  const std::int32_t* table_ = nullptr;
  std::int64_t column_stride_ = 0;
  std::int64_t columns_ = 0;  // 0: no position has a slot
  std::int64_t first_ = 0;
  std::int64_t page_size_;
  std::int64_t pool_pages_;
  std::int64_t last_slot_;
  int page_shift_ = -1;  // where page_size is a power of two: shifts are 4 times cheaper than divisions
};

inline void store_int(const Tensor& t, std::int64_t value, std::int64_t i, std::int64_t j = 0) {
  const std::int64_t at = i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0);
  if (t.dtype == DType::i64)
    static_cast<std::int64_t*>(t.data)[at] = value;
  else
    static_cast<std::int32_t*>(t.data)[at] = static_cast<std::int32_t>(value);
}

}  // namespace keysieve::cpu

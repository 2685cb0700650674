// index_gather, as defined: request by request, row by row, byte by byte.
#include "keysieve/index_gather.hpp"

#include "reference/access.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

// The page of a request's position; null: there is none.
const unsigned char* find_page(const IndexGatherArgs& a, std::int64_t request, std::int64_t position) {
  if (position < 0) return nullptr;
  const std::int64_t column = position / a.page_tokens;
  std::int64_t page = -1;
  if (a.table_offsets.given()) {
    const std::int64_t first = integer_at(a.table_offsets, request),
                       last = integer_at(a.table_offsets, request + 1);
    // In this order nothing can wrap around.
    if (first < 0 || last > a.page_table.shape[0] || last < first || column >= last - first) return nullptr;
    page = integer_at(a.page_table, first + column);
  } else {
    if (column >= a.page_table.shape[1]) return nullptr;
    page = integer_at(a.page_table, request, column);
  }
  if (page < 0 || page >= a.cache.shape[0]) return nullptr;
  return static_cast<const unsigned char*>(a.cache.data) + page * a.cache.stride[0];
}

Status run(const IndexGatherArgs& a, const Launch&) {
  const bool fp8 = a.format == KeyFormat::fp8;
  const std::int64_t code_bytes = a.keys.shape[1], scale_bytes = fp8 ? 4 : a.scales.shape[1];
  for (std::int64_t request = 0; request + 1 < a.row_offsets.shape[0]; ++request) {
    const std::int64_t first = integer_at(a.row_offsets, request),
                       last = integer_at(a.row_offsets, request + 1);
    const std::int64_t start = a.start.given() ? integer_at(a.start, request) : 0;
    for (std::int64_t row = first < 0 ? 0 : first; row < last && row < a.keys.shape[0]; ++row) {
      std::int64_t position = 0;
      const bool reached = !__builtin_sub_overflow(row, first, &position) &&
                           !__builtin_add_overflow(position, start, &position);
      const unsigned char* page = reached ? find_page(a, request, position) : nullptr;
      const std::int64_t place = page != nullptr ? position % a.page_tokens : 0;
      for (std::int64_t i = 0; i < code_bytes; ++i)
        at<unsigned char>(a.keys, row, i) = page != nullptr ? page[place * code_bytes + i] : 0;
      auto* scales = static_cast<unsigned char*>(a.scales.data) + row * a.scales.stride[0] * (fp8 ? 4 : 1);
      for (std::int64_t i = 0; i < scale_bytes; ++i)
        scales[i] = page != nullptr ? page[a.page_tokens * code_bytes + place * scale_bytes + i] : 0;
    }
  }
  return {};
}

}  // namespace

extern const Kernel<IndexGatherArgs> kIndexGatherKernels[] = {
    {"reference.index_gather", [](const IndexGatherArgs&) -> const char* { return nullptr; },
     [](const IndexGatherArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

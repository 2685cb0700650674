// cpu.index_gather.rows: each task owns a run of rows and takes the requests in order, so that of requests that claim
// one row the last has it, whoever runs the tasks (IXG-18); rows of none are not written (IXG-17).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "contract/mutant.hpp"
#include "cpu/parallel.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/index_gather.hpp"

namespace keysieve::cpu {
namespace {

constexpr std::int64_t kRowsOfTask = 1024;

// A request's line of the table.
struct TableLine {
  const std::int32_t* first = nullptr;
  std::int64_t stride = 0, columns = 0;
};

TableLine table_line(const IndexGatherArgs& a, std::int64_t request) {
  const auto* table = static_cast<const std::int32_t*>(a.page_table.data);
  if (!a.table_offsets.given())
    return {table + request * a.page_table.stride[0], a.page_table.stride[1], a.page_table.shape[1]};
  const std::int64_t first = load_int(a.table_offsets, request),
                     last = load_int(a.table_offsets, request + 1);
  if (first < 0 || last > a.page_table.shape[0] || last <= first) return {};
  return {table + first * a.page_table.stride[0], a.page_table.stride[0], last - first};
}

struct Layout {
  std::int64_t code_bytes, scale_bytes, row_codes,
      row_scales;  // of a token in a page; of a row in the outputs
};

// Rows [row, row + count) get tokens [place, place + count) of a page; null: zeros.
void copy_tokens(const IndexGatherArgs& a, const Layout& l, const unsigned char* page, std::int64_t place,
                 std::int64_t row, std::int64_t count) {
  auto* keys = static_cast<unsigned char*>(a.keys.data) + row * l.row_codes;
  auto* scales = static_cast<unsigned char*>(a.scales.data) + row * l.row_scales;
  for (std::int64_t i = 0; i < count; ++i, keys += l.row_codes, scales += l.row_scales) {
    if (page == nullptr) {
      std::memset(keys, 0, static_cast<std::size_t>(l.code_bytes));
      std::memset(scales, 0, static_cast<std::size_t>(l.scale_bytes));
    } else {
      std::memcpy(keys, page + (place + i) * l.code_bytes, static_cast<std::size_t>(l.code_bytes));
      std::memcpy(scales, page + a.page_tokens * l.code_bytes + (place + i) * l.scale_bytes,
                  static_cast<std::size_t>(l.scale_bytes));
    }
  }
}

// Rows [from, to) of one request, whose first row is `first`.
void gather_rows(const IndexGatherArgs& a, const Layout& l, std::int64_t request, std::int64_t first,
                 std::int64_t from, std::int64_t to) {
  const TableLine line = table_line(a, request);
  const std::int64_t start =
      a.start.given() && !mutant("index_gather.start") ? load_int(a.start, request) : 0;
  for (std::int64_t row = from; row < to;) {
    std::int64_t position = 0;
    // IXG-19: a position below zero, past 2^63 or outside the table has no page.
    if (__builtin_sub_overflow(row, first, &position) || __builtin_add_overflow(position, start, &position) ||
        position < 0) {
      copy_tokens(a, l, nullptr, 0, row++, 1);
      continue;
    }
    const std::int64_t column = position / a.page_tokens, place = position - column * a.page_tokens;
    const std::int64_t count = std::min(to - row, a.page_tokens - place);
    const std::int64_t page = column < line.columns ? line.first[column * line.stride] : -1;
    const bool exists = page >= 0 && page < a.cache.shape[0];
    copy_tokens(a, l,
                exists ? static_cast<const unsigned char*>(a.cache.data) + page * a.cache.stride[0] : nullptr,
                place, row, count);
    row += count;
  }
}

const char* refuses(const IndexGatherArgs&) { return nullptr; }

std::size_t workspace_bytes(const IndexGatherArgs&, std::int32_t) { return 0; }

Status run(const IndexGatherArgs& a, const Launch& launch) {
  const bool fp8 = a.format == KeyFormat::fp8;
  const Layout l{a.keys.shape[1], fp8 ? 4 : a.scales.shape[1], a.keys.stride[0],
                 a.scales.stride[0] * (fp8 ? 4 : 1)};
  const std::int64_t rows = a.keys.shape[0], requests = a.row_offsets.shape[0] - 1;
  for_each_task(launch, (rows + kRowsOfTask - 1) / kRowsOfTask, [&](std::int64_t task, int) {
    const std::int64_t begin = task * kRowsOfTask, end = std::min(rows, begin + kRowsOfTask);
    for (std::int64_t request = 0; request < requests; ++request) {
      const std::int64_t first = load_int(a.row_offsets, request);
      const std::int64_t last =
          load_int(a.row_offsets, request + 1) - (mutant("index_gather.last_row") ? 1 : 0);
      gather_rows(a, l, request, first, std::max(begin, first), std::min(end, last));
    }
  });
  return {};
}

}  // namespace

extern const Kernel<IndexGatherArgs> kIndexGatherKernels[] = {
    {"cpu.index_gather.rows", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu

// topk, as defined: collect the visible scores, sort them, take the first k.
#include "keysieve/topk.hpp"

#include <algorithm>
#include <vector>

#include "reference/access.hpp"
#include "reference/page_map.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

struct Entry {
  std::int64_t column;  // from the row's start
  float score;
};

// Greater scores first, NaN before everything, the smaller column on ties.
bool ranks_before(const Entry& a, const Entry& b) {
  const bool a_nan = std::isnan(a.score), b_nan = std::isnan(b.score);
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.score != b.score) return a.score > b.score;
  return a.column < b.column;
}

std::vector<Entry> visible_entries(const TopkArgs& a, std::int64_t row) {
  constexpr std::int64_t kWidestRow = (std::int64_t{1} << 31) - 1;
  const bool compact = a.layout == ScoreLayout::compact;
  const Range visible = visible_columns(a.bounds, row, compact ? kWidestRow : a.scores.shape[1]);
  const std::int64_t size = visible.end - visible.start;
  std::vector<Entry> entries;
  if (!a.candidates.given()) {
    for (std::int64_t column = 0; column < size; ++column)
      entries.push_back({column, real_at(a.scores, row, visible.start + column)});
    return entries;
  }
  std::vector<std::int64_t> seen;
  for (std::int64_t j = 0; j < a.candidates.shape[1]; ++j) {
    const std::int64_t block = at<std::int32_t>(a.candidates, row, j);
    if (block < 0) continue;
    for (std::int64_t o = 0; o < a.block_size; ++o) {
      const std::int64_t column = block * a.block_size + o;
      if (column >= size) break;
      const std::int64_t stored = compact ? j * a.block_size + o : visible.start + column;
      entries.push_back({column, real_at(a.scores, row, stored)});
    }
  }
  // A block listed twice is the same block: its first place in the list stands.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& x, const Entry& y) { return x.column < y.column; });
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [](const Entry& x, const Entry& y) { return x.column == y.column; }),
                entries.end());
  return entries;
}

Status run(const TopkArgs& a, const Launch&) {
  for (std::int64_t row = 0; row < a.scores.shape[0]; ++row) {
    std::vector<Entry> entries = visible_entries(a, row);
    if (a.skip_neg_inf) std::erase_if(entries, [](const Entry& e) { return e.score == kMinusInfinity; });
    std::sort(entries.begin(), entries.end(), ranks_before);
    if (static_cast<std::int64_t>(entries.size()) > a.k) entries.resize(static_cast<std::size_t>(a.k));
    if (a.order == TopkOrder::ascending_column)
      std::sort(entries.begin(), entries.end(),
                [](const Entry& x, const Entry& y) { return x.column < y.column; });

    const std::int64_t start = visible_columns(a.bounds, row, (std::int64_t{1} << 31) - 1).start;
    std::int64_t used = 0;
    for (const Entry& e : entries) {
      std::int64_t value = e.column;
      if (a.space == TopkSpace::absolute) value += start;
      // What an offset makes too large for the output is the caller's, but not undefined: it wraps around.
      if (a.space == TopkSpace::offset)
        (void)__builtin_add_overflow(value, integer_at(a.offset, row), &value);
      if (a.space == TopkSpace::paged) value = slot_of(a.pages, row, e.column, a.out.dtype);
      if (a.space == TopkSpace::paged && value < 0) continue;
      set_integer(a.out, value, row, used);
      if (a.values.given()) set_real(a.values, e.score, row, used);
      if (a.raw.given()) set_integer(a.raw, e.column, row, used);
      ++used;
    }
    if (a.counts.given()) set_integer(a.counts, used, row);
    for (std::int64_t place = used; place < a.k; ++place) {
      set_integer(a.out, -1, row, place);
      if (a.values.given()) set_real(a.values, kMinusInfinity, row, place);
      if (a.raw.given()) set_integer(a.raw, -1, row, place);
    }
  }
  return {};
}

}  // namespace

extern const Kernel<TopkArgs> kTopkKernels[] = {
    {"reference.topk", [](const TopkArgs&) -> const char* { return nullptr; },
     [](const TopkArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

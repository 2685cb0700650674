// candidate_mask, as defined: look up each column's block in the list.
#include "keysieve/candidate_mask.hpp"

#include "reference/access.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

bool is_listed(const CandidateMaskArgs& a, std::int64_t row, std::int64_t block) {
  for (std::int64_t j = 0; j < a.candidates.shape[1]; ++j)
    if (at<std::int32_t>(a.candidates, row, j) == block) return true;
  return false;
}

// Some listed block begins at or past the end of the matrix.
bool reaches_edge(const CandidateMaskArgs& a, std::int64_t row, std::int64_t start, std::int64_t width) {
  const std::int64_t blocks = width > start ? (width - start - 1) / a.block_size + 1 : 0;
  for (std::int64_t j = 0; j < a.candidates.shape[1]; ++j) {
    const std::int64_t block = at<std::int32_t>(a.candidates, row, j);
    if (block >= 0 && block >= blocks) return true;
  }
  return false;
}

Status run(const CandidateMaskArgs& a, const Launch&) {
  const std::int64_t width = a.scores.shape[1];
  for (std::int64_t row = 0; row < a.scores.shape[0]; ++row) {
    const Range visible = visible_columns(a.bounds, row, width);
    const std::int64_t first = a.write_range == WriteRange::window ? visible.start : 0;
    const std::int64_t last = a.write_range == WriteRange::full ? width : visible.end;
    std::int64_t block = -1;
    bool listed = false;
    for (std::int64_t column = first; column < last; ++column) {
      const bool inside = column >= visible.start && column < visible.end;
      if (inside && (column - visible.start) / a.block_size != block) {
        block = (column - visible.start) / a.block_size;
        listed = is_listed(a, row, block);
      }
      bool stays = inside && listed;
      if (a.edge && inside && column == width - 1 && reaches_edge(a, row, visible.start, width)) stays = true;
      if (!stays) set_real(a.scores, kMinusInfinity, row, column);
    }
  }
  return {};
}

}  // namespace

extern const Kernel<CandidateMaskArgs> kCandidateMaskKernels[] = {
    {"reference.candidate_mask", [](const CandidateMaskArgs&) -> const char* { return nullptr; },
     [](const CandidateMaskArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

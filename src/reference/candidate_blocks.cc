// candidate_blocks, as defined: score every block, rank them all, take the first ones.
#include "keysieve/candidate_blocks.hpp"

#include <algorithm>
#include <vector>

#include "reference/access.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

struct Block {
  std::int64_t id;
  float score;  // NaN: holds a NaN that counts
  bool newest;
  bool left_out;
};

Block score_block(const CandidateBlocksArgs& a, std::int64_t row, std::int64_t id, const Range& visible) {
  Block block{id, kMinusInfinity, id == (visible.end - visible.start - 1) / a.block_size, false};
  bool has_nan = false;
  for (std::int64_t offset = 0; offset < a.block_size; ++offset) {
    const std::int64_t column = visible.start + id * a.block_size + offset;
    if (column >= visible.end) break;
    const float score = real_at(a.scores, row, column);
    if (std::isnan(score)) has_nan = true;
    if (score > block.score) block.score = score;
  }
  if (has_nan && a.nan == NanPolicy::keep) block.score = std::numeric_limits<float>::quiet_NaN();
  if (has_nan && a.nan == NanPolicy::drop) block.left_out = true;
  if (block.score == kMinusInfinity) block.left_out = true;
  if (block.newest) block.left_out = false;
  return block;
}

// Who is kept: the newest, then NaN, then the greater score, then the smaller id.
bool kept_before(const Block& x, const Block& y) {
  if (x.newest != y.newest) return x.newest;
  const bool x_nan = std::isnan(x.score), y_nan = std::isnan(y.score);
  if (x_nan != y_nan) return x_nan;
  if (!x_nan && x.score != y.score) return x.score > y.score;
  return x.id < y.id;
}

// Order `by_score`: NaN blocks, the newest, the rest.
bool listed_before(const Block& x, const Block& y) {
  const auto group = [](const Block& b) { return b.newest ? 1 : std::isnan(b.score) ? 0 : 2; };
  return group(x) != group(y) ? group(x) < group(y) : kept_before(x, y);
}

Status run(const CandidateBlocksArgs& a, const Launch&) {
  for (std::int64_t row = 0; row < a.scores.shape[0]; ++row) {
    const Range visible = visible_columns(a.bounds, row, a.scores.shape[1]);
    std::vector<Block> blocks;
    for (std::int64_t id = 0; visible.start + id * a.block_size < visible.end; ++id) {
      const Block block = score_block(a, row, id, visible);
      if (!block.left_out) blocks.push_back(block);
    }
    std::sort(blocks.begin(), blocks.end(), kept_before);
    const auto places = static_cast<std::size_t>(a.candidates.shape[1]);
    if (blocks.size() > places) blocks.resize(places);
    if (a.order == CandidateOrder::ascending_id)
      std::sort(blocks.begin(), blocks.end(), [](const Block& x, const Block& y) { return x.id < y.id; });
    else
      std::sort(blocks.begin(), blocks.end(), listed_before);
    for (std::size_t place = 0; place < places; ++place)
      set_integer(a.candidates, place < blocks.size() ? blocks[place].id : -1, row, place);
  }
  return {};
}

}  // namespace

extern const Kernel<CandidateBlocksArgs> kCandidateBlocksKernels[] = {
    {"reference.candidate_blocks", [](const CandidateBlocksArgs&) -> const char* { return nullptr; },
     [](const CandidateBlocksArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

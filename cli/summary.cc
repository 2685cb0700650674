#include "summary.hpp"

#include <algorithm>
#include <cmath>

#include "text.hpp"

namespace keysieve::cli {
namespace {

using io::Step;
using io::StepSummary;

void count_blocks(const Step& step, const StepOutputs& out, StepSummary& s) {
  const std::int32_t* blocks = nullptr;
  std::int64_t columns = 0;
  if (step.role == io::Role::publish && !out.candidates.empty()) {
    blocks = out.candidates.data();
    columns = step.candidate_count;
  } else if (step.role == io::Role::consume) {
    blocks = static_cast<const std::int32_t*>(step.candidates.data);
    columns = step.candidates.shape[1];
  }
  if (blocks == nullptr || !step.has_bounds()) return;
  double listed = 0, visible = 0;
  for (std::int64_t r = 0; r < step.rows; ++r) {
    const std::int64_t seen = (step.visible(r) + step.block_size - 1) / step.block_size;
    visible += static_cast<double>(seen);
    // As the operations read a list: a block counts once and only inside the row.
    std::vector<std::int32_t> ids(blocks + r * columns, blocks + (r + 1) * columns);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    listed += static_cast<double>(
        std::count_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= 0 && id < seen; }));
  }
  s.blocks_listed = listed / static_cast<double>(step.rows);
  s.blocks_visible = visible / static_cast<double>(step.rows);
}

// exp(lse of the kept keys - lse of all keys) is the share of the softmax that the kept keys hold.
void compare_with_all_keys(const Step& step, const StepOutputs& out, StepSummary& s) {
  double sum = 0, least = 1;
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < step.rows * step.heads; ++i) {
    if (std::isinf(out.dense_lse[i])) continue;  // a row that sees nothing
    const double mass = std::exp(static_cast<double>(out.lse[i]) - static_cast<double>(out.dense_lse[i]));
    sum += mass;
    least = std::min(least, mass);
    ++counted;
  }
  if (counted == 0) return;
  s.mass_mean = sum / static_cast<double>(counted);
  s.mass_least = least;
  double xy = 0, xx = 0, yy = 0, dd = 0;
  for (std::int64_t i = 0; i < out.out.size(); ++i) {
    const double x = static_cast<double>(out.out[i]), y = static_cast<double>(out.dense_out[i]);
    xy += x * y, xx += x * x, yy += y * y, dd += (x - y) * (x - y);
  }
  if (yy > 0) s.dense_distance = std::sqrt(dd / yy);
  if (xx > 0 && yy > 0) s.dense_cosine = 1 - xy / std::sqrt(xx * yy);
}

// Tiles of 128 rows by 128 keys that hold a query row and a key that one of its rows may see.
void count_tiles(const Step& step, const StepOutputs& out, StepSummary& s) {
  const std::int64_t row_tiles = (out.mask_rows + 127) / 128, words = (out.mask_words + 127) / 128;
  std::int64_t live = 0, empty = 0;
  for (std::int64_t b = 0; b < step.requests; ++b) {
    const std::int64_t first = step.q_start[static_cast<std::size_t>(b)],
                       last = step.q_start[static_cast<std::size_t>(b) + 1];
    for (std::int64_t tile = 0; tile * 128 < last - first; ++tile) {
      std::int64_t keys = 0;
      for (std::int64_t r = first + tile * 128; r < std::min(last, first + (tile + 1) * 128); ++r)
        keys = std::max(keys, step.visible(r));
      for (std::int64_t t = 0; t * 128 < keys; ++t) {
        ++live;
        if ((out.mask_any[(b * row_tiles + tile) * words + t / 32] >> (t % 32) & 1) == 0) ++empty;
      }
    }
  }
  s.mask_tiles = live;
  s.mask_tiles_empty = empty;
}

std::string sentence(const Step& step, const StepSummary& s, bool compare_dense) {
  if (s.kept < 0) return "This step selected nothing: a stage before it did not run.";
  std::string text = "This step";
  if (s.visible < 0) {
    text += " attended to " + plural(s.kept, "key") + " in " + plural(step.rows, "row") +
            " (the file does not say among how many)";
  } else {
    text += " looked at " + plural(s.visible, "key") + " in " + plural(step.rows, "row") + ", kept " +
            grouped(s.kept);
    if (s.visible > 0)
      text += " (" + percent(static_cast<double>(s.kept) / static_cast<double>(s.visible)) + ")";
  }
  if (s.mass_mean) return text + ", which carry " + percent(*s.mass_mean) + " of the attention.";
  if (compare_dense && !s.dense_missing.empty()) {
    return text + ". How much of the attention they carry is unknown: " + s.dense_missing + ".";
  }
  return text + ".";
}

}  // namespace

void summarise(const Step& step, const StepOutputs& out, bool compare_dense, StepSummary& s) {
  if (step.has_bounds()) {
    s.visible = 0;
    s.visible_least = step.visible(0);
    for (std::int64_t r = 0; r < step.rows; ++r) {
      s.visible += step.visible(r);
      s.visible_least = std::min(s.visible_least, step.visible(r));
      s.visible_most = std::max(s.visible_most, step.visible(r));
    }
  }
  if (!out.counts.empty()) {
    s.kept = 0;
    for (std::int64_t r = 0; r < step.rows; ++r) s.kept += out.counts[r];
  }
  count_blocks(step, out, s);
  if (!out.dense_lse.empty()) compare_with_all_keys(step, out, s);
  if (compare_dense && !step.has_attention)
    s.dense_missing = "the file holds no attention tensors of this layer";
  if (!out.mask_any.empty()) count_tiles(step, out, s);
  s.sentence = sentence(step, s, compare_dense);
}

}  // namespace keysieve::cli

#include <algorithm>
#include <iterator>

#include "checker.hpp"

namespace keysieve::cli {
namespace {

std::string key_with_score(std::int64_t key, float score) {
  return printed("%lld (score %.7g)", static_cast<long long>(key), static_cast<double>(score));
}

}  // namespace

void Checker::check_candidates(RowChunk rows, const Tensor& source, bool own) {
  const Tensor list = io::view(*dumped_.candidates, 2);
  const std::int64_t columns = list.shape[1];
  Buffer<std::int32_t> wanted(rows.count * columns);
  std::string why;
  if (!reference("candidate_blocks",
                 blocks_args(step_, rows, source, matrix(wanted.data(), DType::i32, rows.count, columns)),
                 why)) {
    return unchecked("candidate_blocks", why);
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t row = rows.first + r, visible = step_.visible(row);
    const std::int64_t blocks = (visible + step_.block_size - 1) / step_.block_size;
    ++finding("candidate_blocks").rows;
    const auto* ids = static_cast<const std::int32_t*>(list.data) + row * columns;
    std::set<std::int64_t> seen;
    for (std::int64_t j = 0; j < columns; ++j) {
      if (ids[j] < 0) continue;
      const bool twice = !seen.insert(ids[j]).second;
      if (!twice && ids[j] < blocks) continue;
      return breaks(
          "candidate_blocks", row, "CHK-03 block ids lie inside the row, none twice",
          printed("block %d %s", ids[j],
                  twice ? "twice" : printed("of %lld blocks", static_cast<long long>(blocks)).c_str()));
    }
    if (visible > 0 && columns > 0 && !seen.contains(blocks - 1)) {
      return breaks("candidate_blocks", row, "CHK-04 the newest block is published",
                    printed("block %lld is missing", static_cast<long long>(blocks - 1)));
    }
    const std::int64_t first = step_.first_column[static_cast<std::size_t>(row)];
    const auto score = [&](std::int64_t block) {
      double best = -std::numeric_limits<double>::infinity();
      for (std::int64_t c = block * step_.block_size; c < std::min(visible, (block + 1) * step_.block_size);
           ++c) {
        best = std::max(best, rank_score(real(source, r, first + c)));
      }
      return static_cast<float>(best);
    };
    const double slack = own ? 0 : 2 * tolerance_ * greatest_score(source, r, first, visible);
    compare_sets("candidate_blocks", row, "CHK-05 the best blocks are published, ties to the smaller id",
                 "block", wanted.data() + r * columns, columns, seen, score, slack);
  }
}

void Checker::check_selection(RowChunk rows, const Tensor& source, bool own) {
  const std::int64_t k = step_.topk;
  const Tensor target = matrix(reference_indices_.data() + rows.first * k, DType::i32, rows.count, k);
  std::string why;
  have_reference_indices_ = reference("topk", topk_args(step_, rows, source, target, {}), why);
  if (dumped_.indices == nullptr) return;
  if (!have_reference_indices_) return unchecked("topk", why);
  const Tensor list = io::view(*dumped_.indices, 2);
  if (list.shape[1] != k) {
    return breaks("topk", rows.first, "CHK-07 used places come first, in k columns",
                  printed("%lld columns for top-k %lld", static_cast<long long>(list.shape[1]),
                          static_cast<long long>(k)));
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t row = rows.first + r, visible = step_.visible(row);
    ++finding("topk").rows;
    const auto* keys = static_cast<const std::int32_t*>(list.data) + row * k;
    std::set<std::int64_t> seen, blocks;
    if (step_.role == io::Role::consume) {
      const auto* ids =
          static_cast<const std::int32_t*>(step_.candidates.data) + row * step_.candidates.shape[1];
      blocks.insert(ids, ids + step_.candidates.shape[1]);
    }
    for (std::int64_t t = 0; t < k; ++t) {
      if (keys[t] < 0) continue;
      if (t > 0 && keys[t - 1] < 0) {
        return breaks("topk", row, "CHK-07 used places come first, in k columns",
                      printed("place %lld is unused, place %lld holds key %d", static_cast<long long>(t - 1),
                              static_cast<long long>(t), keys[t]));
      }
      const bool twice = !seen.insert(keys[t]).second;
      if (twice || keys[t] >= visible) {
        return breaks(
            "topk", row, "CHK-06 selected keys lie inside the row, none twice",
            printed(
                "key %d %s", keys[t],
                twice ? "twice" : printed("of %lld visible keys", static_cast<long long>(visible)).c_str()));
      }
      if (step_.role == io::Role::consume && !blocks.contains(keys[t] / step_.block_size)) {
        return breaks("topk", row, "CHK-08 selected keys lie in candidate blocks",
                      printed("key %d of block %lld, which is not listed", keys[t],
                              static_cast<long long>(keys[t] / step_.block_size)));
      }
    }
    const std::int64_t first = step_.first_column[static_cast<std::size_t>(row)];
    const auto score = [&](std::int64_t key) { return real(source, r, first + key); };
    const double slack = own ? 0 : 2 * tolerance_ * greatest_score(source, r, first, visible);
    compare_sets("topk", row, "CHK-09 the k greatest scores are kept, ties to the smaller key", "key",
                 reference_indices_.data() + row * k, k, seen, score, slack);
  }
}

void Checker::compare_sets(const char* stage, std::int64_t row, const char* rule, const char* noun,
                           const std::int32_t* wanted, std::int64_t columns,
                           const std::set<std::int64_t>& seen,
                           const std::function<float(std::int64_t)>& score, double slack) {
  std::set<std::int64_t> expected;
  for (std::int64_t j = 0; j < columns; ++j) {
    if (wanted[j] >= 0) expected.insert(wanted[j]);
  }
  if (expected == seen) return;
  if (expected.size() != seen.size()) {
    return breaks(stage, row, rule,
                  grouped(static_cast<std::int64_t>(seen.size())) + " " + noun +
                      "s are kept, the reference keeps " +
                      grouped(static_cast<std::int64_t>(expected.size())));
  }
  std::vector<std::int64_t> missing, extra;
  std::set_difference(expected.begin(), expected.end(), seen.begin(), seen.end(),
                      std::back_inserter(missing));
  std::set_difference(seen.begin(), seen.end(), expected.begin(), expected.end(), std::back_inserter(extra));
  const auto by_score = [&](std::int64_t a, std::int64_t b) {
    return rank_score(score(a)) < rank_score(score(b));
  };
  const std::int64_t best_missing = *std::max_element(missing.begin(), missing.end(), by_score);
  const std::int64_t worst_extra = *std::min_element(extra.begin(), extra.end(), by_score);
  if (slack > 0 && rank_score(score(best_missing)) - rank_score(score(worst_extra)) <= slack) return;
  breaks(stage, row, rule,
         std::string(noun) + " " + key_with_score(best_missing, score(best_missing)) + " is missing, " +
             noun + " " + key_with_score(worst_extra, score(worst_extra)) + " is kept");
}

}  // namespace keysieve::cli

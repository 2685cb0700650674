// check_step: an engine's dumped tensors against the reference, stage by stage. Each stage is judged on what
// the engine itself fed into it (its own scores, its own selection) where the file has that, so that one
// fault does not show in every stage behind it.
//
//   CHK-01 a score equals the reference within rounding       CHK-09 the k greatest scores are kept, ties to
//   the smaller key CHK-02 a score is NaN or infinite only as the reference   CHK-10 out_counts counts the
//   used places CHK-03 block ids lie inside the row, none twice           CHK-11 out_slots holds the slot of
//   each selected key CHK-04 the newest block is published                      CHK-12 the mask keeps every
//   selected key CHK-05 the best blocks are published                      CHK-13 the mask keeps nothing else
//   CHK-06 selected keys lie inside the row, none twice       CHK-14 the output equals the reference within
//   tolerance CHK-07 used places come first, in k columns               CHK-15 the LSE equals the reference
//   within tolerance CHK-08 selected keys lie in candidate blocks
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/step_file.hpp"

namespace keysieve::cli {

struct Finding {
  enum class Verdict : std::uint8_t { holds, broken, unchecked };
  std::string stage;  // "topk"
  Verdict verdict = Verdict::holds;
  std::int64_t rows = 0;  // compared
  std::int64_t row = -1;  // of the first break
  std::string rule;       // "CHK-09 the k greatest ..."
  std::string values;     // what was seen and expected; for unchecked: why
};

// In pipeline order, for each dumped tensor. score_tolerance: see CheckCommand.
[[nodiscard]] std::vector<Finding> check_step(const io::Step& step, double score_tolerance,
                                              const std::function<void(const std::string&)>& progress);

}  // namespace keysieve::cli

// explain_step: which kernels the stages of a step, or of a shape alone, would run. Nothing is executed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/step_file.hpp"
#include "kernel_choice.hpp"

namespace keysieve::cli {

using StageExplanation = std::pair<std::string, Explanation>;

[[nodiscard]] std::vector<StageExplanation> explain_step(const io::Step& step, const KernelChoice& kernels,
                                                         const Executor* executor);

// A decode step of bf16 operands with production head sizes.
struct ShapeOfStep {
  std::int64_t rows, keys, heads, topk, candidates, block;
};
[[nodiscard]] std::vector<StageExplanation> explain_shape(const ShapeOfStep& shape,
                                                          const KernelChoice& kernels,
                                                          const Executor* executor);

}  // namespace keysieve::cli

// agreement: how far a run agrees with what the file's author computed in float64 on the same tensors.
#pragma once

#include <vector>

#include "io/report.hpp"
#include "io/step_file.hpp"
#include "pipeline.hpp"

namespace keysieve::cli {

// A selection is the same set, or differs in a row whose gap at the cut is below this: float32 sums of scores
// round at about 1e-5, so below it either choice is right.
inline constexpr double kGapRounding = 1e-5;

[[nodiscard]] std::vector<io::AgreementReport> judge_agreement(const io::Step& step, const StepOutputs& out);

// |a - b| <= 1e-3, or <= 2/128 of the expected value: what a bf16 output of float32 sums can hold.
[[nodiscard]] bool near_output(double expected, double seen);
// 1e-5, or 1.2e-4 of the expected value; equal infinities are near.
[[nodiscard]] bool near_lse(double expected, double seen);
inline constexpr double kOutputCosine = 5e-6;

}  // namespace keysieve::cli

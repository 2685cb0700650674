// summary: what a step's selection means, in numbers and in one sentence.
#pragma once

#include "io/report.hpp"
#include "io/step_file.hpp"
#include "pipeline.hpp"

namespace keysieve::cli {

void summarise(const io::Step& step, const StepOutputs& out, bool compare_dense, io::StepSummary& summary);

}  // namespace keysieve::cli

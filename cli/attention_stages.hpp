// attention_stages: from selected keys to rows of the latent pool, to the attention over them and, to compare with,
// over every key that a row sees.
#pragma once

#include "pipeline.hpp"
#include "stage_runner.hpp"

namespace keysieve::cli {

// Adds its stages to the report and its results to `out`, whose indices say what was selected.
void run_attention_stages(const io::Step& step, const RunOptions& options, StageRunner& runner,
                          StepOutputs& out, io::StepReport& report);

}  // namespace keysieve::cli

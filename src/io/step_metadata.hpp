// step_metadata: what the text pairs of a step file say to one layer. Every key of docs/step_file.md is judged where it
// stands in the file, also if the step has no use for it (STP-02). Internal to src/io.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "io/step_file.hpp"

namespace keysieve::io {

// What the file does not say is empty.
struct StepMetadata {
  std::optional<std::int64_t> topk, next_n, ratio, row_repeat, index_page_tokens, candidate_block,
      candidate_count, layer;
  std::optional<float> softmax_scale;
  std::optional<Role> role;
  LengthUnit length_unit = LengthUnit::tokens;
};

// A key with the layer's prefix comes before the same key without one. `known` collects the keys of the file that mean
// something.
[[nodiscard]] Status read_metadata(const SafetensorsFile& file, const std::string& prefix, StepMetadata& out,
                                   std::set<std::string>& known);

}  // namespace keysieve::io

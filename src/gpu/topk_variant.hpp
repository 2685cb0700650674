// topk_variant: picks the instance of a top-k kernel for these arguments.
#pragma once

#include <type_traits>

#include "gpu/topk_row.hpp"

namespace keysieve::gpu {

// Calls go(scores, listed) with the types of the kernel.
template <class Go>
auto topk_variant(const TopkArgs& a, Go&& go) {
  const auto with_scores = [&](auto scores) {
    return a.candidates.given() ? go(scores, std::true_type{}) : go(scores, std::false_type{});
  };
  return a.scores.dtype == DType::bf16 ? with_scores(Bf16Scores{}) : with_scores(F32Scores{});
}

}  // namespace keysieve::gpu

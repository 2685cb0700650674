// topk_select: the plan that the one-pass top-k kernels share. It follows from shapes and never changes a
// result.
#pragma once

#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/topk_row.hpp"

namespace keysieve::gpu {

inline constexpr std::int64_t kSelectMaxK = 4096;
inline constexpr std::int64_t kSelectMaxCandidates = 8192;
inline constexpr std::size_t kSelectStaticBytes = 4096;  // static shared memory, rounded up

// Why the one-pass kernels leave these arguments to the general one; nullptr: they take them.
const char* topk_select_refuses(const TopkArgs& a);

// Fills in parts, capacity, target and hold.
void topk_select_plan(TopkParams& p, std::uint32_t parts, std::size_t shared_bytes);

// The most elements that a row of these shapes can have.
inline std::int64_t topk_elements(const TopkArgs& a) {
  const std::int64_t width = a.scores.shape[1];
  if (!a.candidates.given() || a.layout == ScoreLayout::compact || a.block_size >= width) return width;
  // The product may not fit 64 bits: a list that is only read may repeat one element without end.
  return a.candidates.shape[1] > width / a.block_size ? width : a.candidates.shape[1] * a.block_size;
}

}  // namespace keysieve::gpu

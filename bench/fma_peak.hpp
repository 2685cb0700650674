// fma_peak: what this core reaches with nothing but multiply-adds of the instruction set that Highway has
// chosen, so that a kernel's speed can be given as a share of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace keysieve::bench {

// Nanoseconds of one f32 multiply-add of one lane, at best over some milliseconds.
[[nodiscard]] double fma_nanoseconds();

// Loads bf16 rows once, prefetching, and does nothing with them: what no kernel can undercut.
std::uint16_t read_rows(const std::uint16_t* const* rows, std::size_t count, std::size_t columns);

}  // namespace keysieve::bench

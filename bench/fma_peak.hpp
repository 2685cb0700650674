// fma_peak: what this core reaches with nothing but multiply-adds of the instruction set that Highway has
// chosen, so that a kernel's speed can be given as a share of it.
#pragma once

namespace keysieve::bench {

// Nanoseconds of one f32 multiply-add of one lane, at best over some milliseconds.
[[nodiscard]] double fma_nanoseconds();

}  // namespace keysieve::bench

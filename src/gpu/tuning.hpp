// tuning: grid and tile constants, one row per architecture, as data. Measured on sm_90a; the others take
// values that are safe there. Results never depend on them.
#pragma once

namespace keysieve::gpu {

struct Tuning {
  int architecture;  // applies to this compute capability and newer
  // candidate_mask: thread blocks per processor over all rows, and fewest columns worth a thread block.
  int mask_blocks_per_processor;
  int mask_min_columns;
};

inline constexpr Tuning kTunings[] = {
    {80, 6, 2048},
    {90, 6, 2048},
};

inline const Tuning& tuning(int architecture) {
  const Tuning* best = &kTunings[0];
  for (const Tuning& t : kTunings)
    if (t.architecture <= architecture) best = &t;
  return *best;
}

}  // namespace keysieve::gpu

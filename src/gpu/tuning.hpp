// tuning: grid and tile constants, one row per architecture, as data. Measured on sm_90a; the others take
// values that are safe there. Results never depend on them.
#pragma once

namespace keysieve::gpu {

struct Tuning {
  int architecture;  // applies to this compute capability and newer
  // candidate_mask: thread blocks per processor over all rows, fewest columns worth a thread block, and most
  // thread blocks of one row: each reads the row's whole list.
  int mask_blocks_per_processor;
  int mask_min_columns;
  int mask_max_parts;
  // candidate_blocks: the same for its first kernel; keys that a thread block of the second keeps at hand.
  int maxima_blocks_per_processor;
  int maxima_min_columns;
  int maxima_max_parts;
  int select_cached_keys;
  // topk: fewest elements of a row that are worth a thread block, and fewest thread blocks of a row worth a
  // second kernel.
  int topk_min_elements;
  int topk_min_parts;
  // packed_mask: rows per processor from which a row gets 128 threads instead of 256, and 64.
  int packed_rows_for_128;
  int packed_rows_for_64;
};

inline constexpr Tuning kTunings[] = {
    {80, 6, 2048, 22, 8, 2048, 64, 16384, 4096, 4, 4, 16},
    {90, 6, 2048, 22, 8, 2048, 64, 32768, 4096, 4, 4, 16},
};

// What benchmarks try out; null in every other program.
inline const Tuning* tuning_on_trial = nullptr;

inline const Tuning& tuning(int architecture) {
  if (tuning_on_trial != nullptr) return *tuning_on_trial;
  const Tuning* best = &kTunings[0];
  for (const Tuning& t : kTunings)
    if (t.architecture <= architecture) best = &t;
  return *best;
}

}  // namespace keysieve::gpu

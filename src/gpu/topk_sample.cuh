// topk_sample: a threshold that a few more than k scores of a row reach, from a sample of it.
#pragma once

#include "gpu/topk_words.cuh"

namespace keysieve::gpu {

struct Threshold {
  float pass_from;    // an element survives unless it is less
  std::uint32_t key;  // the sampled key
  bool strict;        // only keys above it survive: too many are equal to it
  bool whole;         // everything that may be selected survives
  bool misled;        // no float compares as needed: take the exact passes
};

__device__ inline std::uint32_t floor_key(const TopkParams& p) {
  return p.skip_minus_infinity ? kKeyMinusInfinity + 1 : kKeyMinusInfinity;
}

// The sample: maxima of groups whose size follows from the row's, so that about half of them reach the
// threshold. A group has `wide` elements at each of `merged` x `turns` spots far apart; spots are jittered,
// since scores may repeat with the row's structure. Returns the elements of a group.
template <int kThreads, int kInFlight, class Scores, bool kListed>
__device__ std::uint32_t block_sample(const TopkParams& p, const RowElements<Scores, kListed>& elements,
                                      SelectWords& words) {
  constexpr int kVector = Scores::kVector;
  constexpr int kWideLog = kVector == 8 ? 3 : 2;
  constexpr int kOfWave = kMaxima * kWave / kThreads;  // groups of a wave
  constexpr int kMergeLog = kWave / kOfWave == 8 ? 3 : kWave / kOfWave == 4 ? 2 : 1;
  static_assert(kOfWave << kMergeLog == kWave);
  const auto wanted =
      static_cast<std::uint32_t>(static_cast<float>(elements.size) / static_cast<float>(p.target));
  const int log = 31 - __clz(static_cast<int>(wanted | 1));
  const int wide_log = min(log, kWideLog), merge_log = min(log - wide_log, kMergeLog);
  const int turns_log = min(log - wide_log - merge_log, 3);
  const int wide = 1 << wide_log, turns = 1 << turns_log;
  const int spot_lane = lane_id() / kOfWave;
  std::uint32_t best = 0;
  if (spot_lane < 1 << merge_log) {
    const std::uint32_t first = elements.lead > 0 ? 1 : 0;
    const std::uint32_t last = (elements.size + elements.lead) / kVector - 1;
    // Spots are numbered so that a group's lie far apart, and a run of four lanes reads 64 bytes.
    constexpr int kRuns = kOfWave / 4 * (kThreads / kWave);
    const std::uint32_t run = wave_id() * (kOfWave / 4) + lane_id() % kOfWave / 4;
    const float step =
        static_cast<float>(last - first) / static_cast<float>(kRuns << (merge_log + turns_log));
    for (int turn = 0; turn < turns; turn += kInFlight) {
      uint4 raw[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        raw[i] = Scores::lowest();
        if (turn + i >= turns) continue;
        const std::uint32_t spot = (((turn + i) << merge_log) + spot_lane) * kRuns + run;
        const float jitter = static_cast<float>(spot * 0x9e3779b9u >> 8) * 0x1p-24f;
        const auto at = static_cast<std::uint32_t>((static_cast<float>(spot) + jitter) * step);
        raw[i] = elements.sample(min(first + (at & ~3u) + (lane_id() & 3), last));
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          if (j < wide) best = max(best, key_of(Scores::value(raw[i], j)));
    }
  }
#pragma unroll
  for (int distance = kOfWave; distance < kWave; distance *= 2)
    best = max(best, wave_shuffle_xor(best, distance));
  if (lane_id() < kOfWave) words.maxima[wave_id() * kOfWave + lane_id()] = best;
  return static_cast<std::uint32_t>(wide << (merge_log + turns_log));
}

// The threshold that the rank-th of the sampled maxima gives. One wave finds it, two bits of the key a step,
// and stops where few others lie between.
template <int kThreads, class Scores, bool kListed>
__device__ Threshold block_threshold(const TopkParams& p, const RowElements<Scores, kListed>& elements,
                                     std::uint32_t per_group, std::uint32_t rank, SelectWords& words) {
  constexpr int kEach = kMaxima / kWave;
  __syncthreads();
  if (wave_id() == 0) {
    std::uint32_t maxima[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) maxima[i] = words.maxima[i * kWave + lane_id()];
    std::uint32_t prefix = 0, at_least = kMaxima;
    for (int shift = 30; shift >= 0 && at_least > rank + rank / 8; shift -= 2) {
      std::uint32_t counts = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (std::uint32_t digit = 1; digit < 4; ++digit)
          counts += maxima[i] >= (prefix | digit << shift) ? 1u << (10 * (digit - 1)) : 0;
      counts = wave_sum(counts);
#pragma unroll
      for (std::uint32_t digit = 3; digit > 0; --digit) {
        const std::uint32_t count = counts >> (10 * (digit - 1)) & 1023;
        if (count < rank) continue;
        prefix |= digit << shift;
        at_least = count;
        break;
      }
    }
    if (lane_id() == 0) {
      words.threshold = prefix;
      words.at_least = at_least;
    }
  }
  __syncthreads();
  const std::uint32_t key = words.threshold, at_least = words.at_least, lowest = floor_key(p);
  if (key <= lowest) return {score_of(lowest), lowest, false, true, false};
  // Groups tied at the threshold tell how many elements reach it; too many for the list: leave the tied out.
  bool strict = false;
  if (at_least > rank + rank / 8) {
    const float out = 1.f - static_cast<float>(at_least) / kMaxima;
    const float reaching = out <= 0.f ? 1.f : 1.f - exp2f(log2f(out) / static_cast<float>(per_group));
    strict = reaching * static_cast<float>(elements.size) > 0.6f * static_cast<float>(p.capacity);
  }
  // Between floats that are no numbers, no threshold: a prefix inside NaN's keys, or above infinity.
  const bool misled = key > kKeyInfinity || (strict && key == kKeyInfinity);
  return {score_of(strict ? key + 1 : key), key, strict, false, misled};
}

// The rank that leaves about `target` survivors, if elements were drawn at random.
__device__ inline std::uint32_t first_rank(const TopkParams& p, std::uint32_t size, std::uint32_t per_group) {
  const float share = static_cast<float>(p.target) / static_cast<float>(size);
  const float reached = 1.f - exp2f(-1.4427f * static_cast<float>(per_group) * share);
  return min(static_cast<std::uint32_t>(reached * kMaxima) + 1, kMaxima - 1u);
}

}  // namespace keysieve::gpu

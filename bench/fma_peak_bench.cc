#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/fma_peak_bench.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <benchmark/benchmark.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <chrono>

#include "fma_peak.hpp"

HWY_BEFORE_NAMESPACE();
namespace keysieve::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 independent chains hide 4 cycles of latency on two units and, with keys and queries, still fit 16
// registers.
double probe() {
  constexpr int kChains = 12, kRounds = 4096;
  const hn::ScalableTag<float> f;
  using Reals = hn::Vec<decltype(f)>;
  volatile float one = 1, tiny = 1e-3F;
  const Reals factor = hn::Set(f, one), addend = hn::Set(f, tiny);
  Reals sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(f, one);
  double best = 1e18;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], factor, addend);
    }
    best = std::min(
        best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  Reals total = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) total = hn::Add(total, sums[i]);
  volatile float sink = hn::GetLane(total);
  static_cast<void>(sink);
  return best / (static_cast<double>(kChains) * kRounds * static_cast<double>(hn::Lanes(f)));
}

std::uint16_t read(const std::uint16_t* const* rows, std::size_t count, std::size_t columns) {
  constexpr std::size_t kAhead = 32;
  const hn::ScalableTag<std::uint16_t> d;
  const std::size_t step = hn::Lanes(d);
  auto seen = hn::Zero(d);
  for (std::size_t r = 0; r < count; ++r) {
    const std::uint16_t* row = rows[r];
    const std::uint16_t* ahead = rows[r + kAhead < count ? r + kAhead : r];
    for (std::size_t line = 0; line < columns; line += 32) {
      hwy::Prefetch(ahead + line);
      for (std::size_t c = line; c < line + 32; c += step) seen = hn::Or(seen, hn::LoadU(d, row + c));
    }
  }
  return hn::GetLane(seen);
}

}  // namespace keysieve::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keysieve::bench {

HWY_EXPORT(probe);

HWY_EXPORT(read);

std::uint16_t read_rows(const std::uint16_t* const* rows, std::size_t count, std::size_t columns) {
  return HWY_DYNAMIC_DISPATCH(read)(rows, count, columns);
}

double fma_nanoseconds() { return HWY_DYNAMIC_DISPATCH(probe)(); }

}  // namespace keysieve::bench
#endif

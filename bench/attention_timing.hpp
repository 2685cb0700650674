// attention_timing: runs an attention call and reports it against the multiply-add peak that a probe measures
// before and after it.
#pragma once

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fma_peak.hpp"
#include "keysieve/executor.hpp"
#include "keysieve/plan.hpp"

namespace keysieve::bench {

// Time that this thread has run: other work on the machine does not count, as it does on a wall clock.
inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
inline double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best iteration counts: whatever disturbs one only adds. `products` multiply-adds are useful work.
template <class Body>
void time_products(benchmark::State& state, double (*seconds)(), int threads, double products, Body&& body) {
  double best = 1e18;
  double peak = fma_nanoseconds();
  for (auto _ : state) {
    const double start = seconds();
    body();
    const double taken = seconds() - start;
    state.SetIterationTime(taken);
    best = std::min(best, taken);
  }
  peak = std::min(peak, fma_nanoseconds());
  state.counters["best_us"] = best * 1e6;
  state.counters["gflops"] = 2 * products / best * 1e-9;
  state.counters["peak_gflops"] = 2 / peak;
  state.counters["share_of_peak"] = peak * 1e-9 * products / best / threads;
}

// Scratch of a plan, aligned.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : bytes_(bytes), memory_(bytes + 64) {}
  [[nodiscard]] Workspace view() {
    void* data = memory_.data();
    std::size_t space = memory_.size();
    return {std::align(64, bytes_, data, space), bytes_};
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> memory_;
};

template <class Args>
void time_call(benchmark::State& state, const Args& args, int threads, double products) {
  const ThreadPool pool(threads);
  const Executor executor = pool.executor();
  Plan<Args> planned;
  if (const Status s = plan(args, {.concurrency = threads}, planned); !s.ok()) {
    state.SkipWithError(s.message().c_str());
    return;
  }
  Scratch scratch(planned.workspace_bytes);
  time_products(state, threads == 1 ? cpu_seconds : clock_seconds, threads, products, [&] {
    static_cast<void>(run(planned, args, scratch.view(), {nullptr, threads > 1 ? &executor : nullptr}));
    benchmark::ClobberMemory();
  });
  state.SetLabel(planned.kernel_name);
}

inline std::vector<std::uint16_t> random_bf16(std::int64_t count, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  for (std::uint16_t& v : values)
    v = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
  return values;
}

inline float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

template <class Body>
void add(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.3);
}

}  // namespace keysieve::bench

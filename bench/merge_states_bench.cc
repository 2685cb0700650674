// merge_states: bytes per second against memcpy over as many bytes, read and written, in the same benchmark.
#include <cstring>

#include "attention_timing.hpp"
#include "keysieve/merge_states.hpp"

namespace keysieve::bench {
namespace {

void merge(benchmark::State& state, std::int64_t parts, std::int64_t rows, DType dtype) {
  constexpr std::int64_t kHeads = 128, kColumns = 512;
  const auto element = static_cast<std::size_t>(dtype_bytes(dtype));
  const auto states = static_cast<std::size_t>(rows * kHeads);
  std::vector<std::byte> outs(static_cast<std::size_t>(parts) * states * kColumns * element);
  std::vector<std::byte> out(states * kColumns * element);
  std::vector<float> lses, lse(states);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < static_cast<std::size_t>(parts) * states; ++i) lses.push_back(normal(random));
  MergeStatesArgs a;
  a.outs = Tensor::dense(outs.data(), dtype, {parts, rows, kHeads, kColumns});
  a.lses = Tensor::dense(lses.data(), DType::f32, {parts, rows, kHeads});
  a.out = Tensor::dense(out.data(), dtype, {rows, kHeads, kColumns});
  a.lse = Tensor::dense(lse.data(), DType::f32, {rows, kHeads});
  MergeStatesPlan planned;
  if (const Status s = plan(a, {}, planned); !s.ok()) return state.SkipWithError(s.message().c_str());
  Scratch scratch(planned.workspace_bytes);
  // A copy of half as many bytes moves as many.
  const std::size_t moved = outs.size() + out.size();
  std::vector<std::byte> from(moved / 2), to(moved / 2);
  double best = 1e18, copy = 1e18;
  for (auto _ : state) {
    double start = cpu_seconds();
    std::memcpy(to.data(), from.data(), moved / 2);
    benchmark::ClobberMemory();
    copy = std::min(copy, cpu_seconds() - start);
    start = cpu_seconds();
    static_cast<void>(run(planned, a, scratch.view(), {}));
    benchmark::ClobberMemory();
    const double taken = cpu_seconds() - start;
    state.SetIterationTime(taken);
    best = std::min(best, taken);
  }
  state.counters["best_us"] = best * 1e6;
  state.counters["gigabytes_per_second"] = static_cast<double>(moved) / best * 1e-9;
  state.counters["share_of_copy"] = copy / best;
  state.SetLabel(planned.kernel_name);
}

const int kRegistered = [] {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t parts : {2, 8})
      for (const std::int64_t rows : {1, 64})
        add("merge_states/" + std::string(dtype_name(dtype)) + "/parts:" + std::to_string(parts) +
                "/rows:" + std::to_string(rows) + "/heads:128",
            [=](benchmark::State& state) { merge(state, parts, rows, dtype); });
  return 0;
}();

}  // namespace
}  // namespace keysieve::bench

// What a recorded run says of itself, beside Google Benchmark's own context: the commit, the processor and the
// instruction set. KEYSIEVE_BENCH_WITHOUT_AVX512 measures what a processor without it would run.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "commit.hpp"

namespace keysieve::bench {
namespace {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string instruction_set() {
  const auto supported = hwy::SupportedTargets();
  for (const std::int64_t set : {HWY_AVX3, HWY_AVX2, HWY_NEON})
    if ((supported & set) != 0) return hwy::TargetName(set);
  return "portable";
}

[[maybe_unused]] const bool added = [] {
  // hwy::DisableTargets would not do: Highway 1.0.3 forgets it at the next SupportedTargets().
  if (std::getenv("KEYSIEVE_BENCH_WITHOUT_AVX512") != nullptr)
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~std::int64_t{HWY_AVX3 | HWY_AVX3_DL});
  benchmark::AddCustomContext("commit", KEYSIEVE_COMMIT);
  benchmark::AddCustomContext("processor", processor());
  benchmark::AddCustomContext("instruction_set", instruction_set());
  return true;
}();

}  // namespace
}  // namespace keysieve::bench

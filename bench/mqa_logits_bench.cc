// mqa_logits: nanoseconds per key and row, and the share of the multiply-add peak that a probe measures in
// the same benchmark, before and after. Keys lie in L2 unless the name says otherwise. `naive` is the
// definition in plain loops over f32 copies of the operands, which somebody would write first.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fma_peak.hpp"
#include "keysieve/mqa_logits.hpp"
#include "support/learned.hpp"

namespace keysieve::bench {
namespace {

struct Case {
  bool fp8, paged;
  std::int64_t rows, heads, keys, width;
  Tail tail = Tail::untouched;
  int threads = 1;
};

// One request whose rows all see the first `keys` columns.
struct Operands {
  std::vector<std::uint8_t> q, keys;
  std::vector<float> weights, scales, scores, q_f32, keys_f32;
  std::vector<std::int32_t> table, ends;
  MqaLogitsArgs args;
};

float from_code(std::uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                   : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return code >= 128 ? -size : size;
}

void fill_elements(std::vector<std::uint8_t>& bytes, std::vector<float>& values, std::int64_t count, bool fp8,
                   std::mt19937& random) {
  std::normal_distribution<float> normal;
  bytes.resize(static_cast<std::size_t>(count) * (fp8 ? 1 : 2));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    if (fp8) {
      bytes[i] = static_cast<std::uint8_t>(random() % 0x7f | (random() & 0x80));
      values.push_back(from_code(bytes[i]));
      continue;
    }
    const auto bits = std::bit_cast<std::uint32_t>(normal(random)) & 0xffff0000U;
    bytes[2 * i] = static_cast<std::uint8_t>(bits >> 16);
    bytes[2 * i + 1] = static_cast<std::uint8_t>(bits >> 24);
    values.push_back(std::bit_cast<float>(bits));
  }
}

Operands make_operands(const Case& c) {
  constexpr std::int64_t kDim = 128, kPage = 64;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Operands o;
  const DType element = c.fp8 ? DType::u8 : DType::bf16;
  fill_elements(o.q, o.q_f32, c.rows * c.heads * kDim, c.fp8, random);
  fill_elements(o.keys, o.keys_f32, c.keys * kDim, c.fp8, random);
  for (std::int64_t i = 0; i < c.rows * c.heads; ++i) o.weights.push_back(normal(random));
  for (std::int64_t i = 0; i < c.keys; ++i) o.scales.push_back(std::exp(normal(random)));
  o.ends.assign(static_cast<std::size_t>(c.rows), static_cast<std::int32_t>(c.keys));
  o.scores.resize(static_cast<std::size_t>(c.rows * c.width));
  o.args.q = Tensor::dense(o.q.data(), element, {c.rows, c.heads, kDim});
  o.args.weights = Tensor::dense(o.weights.data(), DType::f32, {c.rows, c.heads});
  o.args.bounds.end = Tensor::dense(o.ends.data(), DType::i32, {c.rows});
  o.args.scores = Tensor::dense(o.scores.data(), DType::f32, {c.rows, c.width});
  o.args.tail = c.tail;
  if (!c.paged) {
    o.args.keys = Tensor::dense(o.keys.data(), element, {c.keys, kDim});
    if (c.fp8) o.args.key_scales = Tensor::dense(o.scales.data(), DType::f32, {c.keys});
    return o;
  }
  const std::int64_t pages = c.keys / kPage;
  for (std::int64_t p = 0; p < pages; ++p) o.table.push_back(static_cast<std::int32_t>(p));
  std::shuffle(o.table.begin(), o.table.end(), random);
  o.table.resize(static_cast<std::size_t>((c.width + kPage - 1) / kPage), -1);
  if (c.fp8) {
    // Any bytes do, so codes of one page may become those of another; scales must be numbers.
    o.keys.resize(static_cast<std::size_t>(pages * kPage * (kDim + 4)), 0x38);
    for (std::int64_t p = 0; p < pages; ++p)
      std::memcpy(o.keys.data() + (p * (kDim + 4) + kDim) * kPage, o.scales.data() + p * kPage, kPage * 4);
    o.args.cache = Tensor::dense(o.keys.data(), element, {pages, kPage * (kDim + 4)});
  } else {
    o.args.cache = Tensor::dense(o.keys.data(), element, {pages, kPage, kDim});
  }
  o.args.page_table =
      Tensor::dense(o.table.data(), DType::i32, {1, static_cast<std::int64_t>(o.table.size())});
  return o;
}

// Seconds that this thread has run. Other work on the machine does not count, as it does on a wall clock.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Times `body` each iteration and reports the best: whatever disturbs it only adds.
template <class Body>
void measure(benchmark::State& state, double (*seconds)(), double key_rows, double products, Body&& body) {
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
  state.counters["ns_per_key_row"] = best * 1e9 / key_rows;
  state.counters["peak_ns_per_key_row"] = peak * products / key_rows;
  state.counters["share_of_peak"] = peak * products / (best * 1e9);
}

void score(benchmark::State& state, const MqaLogitsArgs& args, int threads, double key_rows) {
  const ThreadPool pool(threads);
  const Executor executor = pool.executor();
  MqaLogitsPlan planned;
  if (const Status s = plan(args, {.concurrency = threads}, planned); !s.ok()) {
    state.SkipWithError(s.message().c_str());
    return;
  }
  std::vector<std::byte> memory(planned.workspace_bytes + 64);
  void* scratch = memory.data();
  std::size_t space = memory.size();
  std::align(64, planned.workspace_bytes, scratch, space);
  const double products = key_rows * static_cast<double>(args.q.shape[1] * args.q.shape[2]);
  measure(state, threads == 1 ? thread_seconds : wall_seconds, key_rows, products, [&] {
    static_cast<void>(
        run(planned, args, {scratch, planned.workspace_bytes}, {nullptr, threads > 1 ? &executor : nullptr}));
    benchmark::ClobberMemory();
  });
  state.SetLabel(planned.kernel_name);
}

void naive(benchmark::State& state, const Operands& o, const Case& c) {
  const auto dim = static_cast<std::size_t>(o.args.q.shape[2]), heads = static_cast<std::size_t>(c.heads);
  measure(state, thread_seconds, static_cast<double>(c.rows * c.keys),
          static_cast<double>(c.rows * c.keys * c.heads * 128), [&] {
            for (std::size_t r = 0; r < static_cast<std::size_t>(c.rows); ++r)
              for (std::size_t k = 0; k < static_cast<std::size_t>(c.keys); ++k) {
                float sum = 0;
                for (std::size_t h = 0; h < heads; ++h) {
                  float dot = 0;
                  for (std::size_t d = 0; d < dim; ++d)
                    dot += o.q_f32[(r * heads + h) * dim + d] * o.keys_f32[k * dim + d];
                  sum += o.weights[r * heads + h] * std::max(0.0F, dot);
                }
                const_cast<float&>(o.scores[r * static_cast<std::size_t>(c.width) + k]) = sum * o.scales[k];
              }
            benchmark::ClobberMemory();
          });
}

template <class Body>
void add(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.2);
}

void add_case(const std::string& name, const Case& c) {
  add("mqa_logits/" + name, [c](benchmark::State& state) {
    const Operands o = make_operands(c);
    score(state, o.args, c.threads, static_cast<double>(c.rows * c.keys));
  });
}

const int kRegistered = [] {
  for (const bool fp8 : {true, false}) {
    const std::string format = fp8 ? "e4m3" : "bf16";
    // The bars: 64 heads, one core, keys in L2.
    for (const std::int64_t set : {HWY_AVX2, HWY_AVX3}) {
      if ((hwy::SupportedTargets() & set) == 0) continue;
      for (const bool paged : {true, false})
        for (const std::int64_t rows : {1, 6}) {
          const Case c{fp8, paged, rows, 64, 1536, 1536};
          add("mqa_logits/" + format + (paged ? "/paged" : "/ragged") + "/rows:" + std::to_string(rows) +
                  "/heads:64/" + hwy::TargetName(set),
              [c, set](benchmark::State& state) {
                hwy::SetSupportedTargetsForTest(set);
                const Operands o = make_operands(c);
                score(state, o.args, 1, static_cast<double>(c.rows * c.keys));
                hwy::SetSupportedTargetsForTest(0);
              });
        }
    }
    add_case(format + "/paged/rows:1/heads:32", {fp8, true, 1, 32, 1536, 1536});
    add_case(format + "/paged/rows:1/heads:8", {fp8, true, 1, 8, 1536, 1536});
    add_case(format + "/paged/rows:1/heads:64/keys:131072", {fp8, true, 1, 64, 131072, 131072});
    add_case(format + "/ragged/rows:64/heads:64/keys:8192", {fp8, false, 64, 64, 8192, 8192});
    add_case(format + "/paged/rows:1/heads:64/keys:32768/threads:2",
             {fp8, true, 1, 64, 32768, 32768, Tail::untouched, 2});
    // Cost follows the live data: the same 1,536 keys in a row reserved for a million.
    add_case(format + "/paged/rows:1/heads:64/width:1048576", {fp8, true, 1, 64, 1536, 1 << 20});
    add("mqa_logits/" + format + "/naive/rows:1/heads:64", [fp8](benchmark::State& state) {
      const Case c{fp8, false, 1, 64, 192, 192};
      const Operands o = make_operands(c);
      naive(state, o, c);
    });
  }
  add_case("e4m3/paged/rows:1/heads:64/width:1048576/neg_inf",
           {true, true, 1, 64, 1536, 1 << 20, Tail::neg_inf});
  add("mqa_logits/learned/decode8_layer3", [](benchmark::State& state) {
    const test::LearnedFile file("decode8_layer3_index");
    if (!file.found()) {
      state.SkipWithError(test::kLearnedDataMissing);
      return;
    }
    MqaLogitsArgs a;
    a.q = file["index_q"];
    a.weights = file["index_w"];
    a.keys = file["index_k"];
    a.bounds.start = test::slice(file["k_start"], 0, 8);
    a.bounds.end = test::slice(file["k_start"], 1, 8);
    std::vector<float> scores(static_cast<std::size_t>(8 * a.keys.shape[0]));
    a.scores = Tensor::dense(scores.data(), DType::f32, {8, a.keys.shape[0]});
    score(state, a, 1, static_cast<double>(a.keys.shape[0]));
  });
  return 0;
}();

}  // namespace
}  // namespace keysieve::bench

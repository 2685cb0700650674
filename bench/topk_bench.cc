// topk on the CPU, against one vectorised max pass over the same row (the least that reading it can cost) and
// against the usual way, std::nth_element over columns. Both sides of a ratio are timed by turns in one run.
//
// KEYSIEVE_TEST_DATA names a folder with learned step files; without it the family `learned` is absent.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/topk_bench.cc"  // from src/, which is on the include path
#include <hwy/foreach_target.h>
// Must come after foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace keysieve::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float max_pass(const float* scores, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Set(d, -1e30f), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Max(a, hn::LoadU(d, scores + i));
    b = hn::Max(b, hn::LoadU(d, scores + i + lanes));
    c = hn::Max(c, hn::LoadU(d, scores + i + 2 * lanes));
    e = hn::Max(e, hn::LoadU(d, scores + i + 3 * lanes));
  }
  float best = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
  for (; i < n; ++i) best = scores[i] > best ? scores[i] : best;
  return best;
}

}  // namespace keysieve::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>

#include "keysieve/topk.hpp"
#include "score_rows.hpp"
#include "support/tensor_box.hpp"

namespace keysieve::bench {
namespace {

HWY_EXPORT(max_pass);
using test::Family;

template <class Work>
double seconds(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One call with its memory: `rows` rows of which each call takes all.
struct Call {
  std::vector<float> scores;
  std::vector<std::uint16_t> scores16;
  std::vector<std::int32_t> end, out, candidates;
  std::vector<float> values;
  std::vector<unsigned char> workspace;
  TopkArgs args;
  TopkPlan planned;

  void plan_it() {
    if (Status s = plan(args, {}, planned); !s.ok()) std::abort();
    workspace.resize(planned.workspace_bytes + 64);
  }
  void operator()() {
    auto* memory = workspace.data() + (64 - reinterpret_cast<std::uintptr_t>(workspace.data()) % 64);
    if (Status s = run(planned, args, {memory, planned.workspace_bytes}, {}); !s.ok()) std::abort();
  }
};

Call make_call(std::vector<float> scores, std::int64_t live, std::int64_t k) {
  Call c;
  c.scores = std::move(scores);
  const auto width = static_cast<std::int64_t>(c.scores.size());
  c.end = {static_cast<std::int32_t>(live)};
  c.out.resize(static_cast<std::size_t>(k));
  c.args.scores = Tensor::dense(c.scores.data(), DType::f32, {1, width});
  c.args.bounds.end = Tensor::dense(c.end.data(), DType::i32, {1});
  c.args.k = k;
  c.args.out = Tensor::dense(c.out.data(), DType::i32, {1, k});
  c.plan_it();
  return c;
}

// Times `ours` and `yardstick` by turns; reports ours, the least of both and their ratio.
template <class Ours, class Yardstick>
void by_turns(benchmark::State& state, Ours&& ours, const char* name, Yardstick&& yardstick) {
  double least_ours = 1e9, least_yardstick = 1e9;
  for (auto _ : state) {
    least_yardstick = std::min(least_yardstick, seconds(yardstick));
    const double t = seconds(ours);
    least_ours = std::min(least_ours, t);
    state.SetIterationTime(t);
  }
  state.counters["least_us"] = least_ours * 1e6;
  state.counters[std::string(name) + "_us"] = least_yardstick * 1e6;
  state.counters[std::string("ratio_to_") + name] = least_ours / least_yardstick;
}

void against_max_pass(benchmark::State& state, const std::string& family, std::int64_t width, std::int64_t k,
                      int rows) {
  std::vector<Call> calls;
  for (int r = 0; r < rows; ++r) {
    std::vector<float> scores = scores_of(family, width);
    std::rotate(scores.begin(), scores.begin() + r * 977, scores.end());
    calls.push_back(make_call(std::move(scores), width, k));
  }
  float sink = 0;
  double ours = 0, yardstick = 0;
  std::size_t next = 0;
  double least_ours = 1e9, least_max = 1e9;
  for (auto _ : state) {
    Call& c = calls[next];
    next = (next + 1) % calls.size();
    const double m = seconds([&] { sink += HWY_DYNAMIC_DISPATCH(max_pass)(c.scores.data(), width); });
    const double t = seconds(c);
    ours += t;
    yardstick += m;
    least_ours = std::min(least_ours, t);
    least_max = std::min(least_max, m);
    state.SetIterationTime(t);
  }
  benchmark::DoNotOptimize(sink);
  state.counters["least_us"] = least_ours * 1e6;
  state.counters["max_pass_us"] = least_max * 1e6;
  state.counters["ratio_to_max_pass"] = least_ours / least_max;
  state.counters["mean_ratio"] = ours / yardstick;
  state.counters["bytes_per_second"] =
      benchmark::Counter(static_cast<double>(width * 4), benchmark::Counter::kIsIterationInvariantRate);
}

// The way most code does it: a list of columns, nth_element, sort.
void nth_element_way(const std::vector<float>& scores, std::int64_t k, std::vector<std::int32_t>& columns) {
  columns.resize(scores.size());
  std::iota(columns.begin(), columns.end(), 0);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::nth_element(columns.begin(), columns.begin() + k, columns.end(), better);
  std::sort(columns.begin(), columns.begin() + k);
}

void against_nth_element(benchmark::State& state, const std::string& family, std::int64_t width,
                         std::int64_t k) {
  Call c = make_call(scores_of(family, width), width, k);
  std::vector<std::int32_t> columns;
  by_turns(state, c, "nth_element", [&] { nth_element_way(c.scores, k, columns); });
}

// A row of which one percent is live, against a row that is only that wide.
void one_percent_live(benchmark::State& state, std::int64_t width, std::int64_t k) {
  std::vector<float> scores = scores_of("random", width);
  std::vector<float> narrow(scores.begin(), scores.begin() + width / 100);
  Call wide = make_call(std::move(scores), width / 100, k);
  Call exact = make_call(std::move(narrow), width / 100, k);
  by_turns(state, wide, "narrow_row", exact);
}

// Restricted to 2048 blocks of 8 of a row, against a plain row of 16,384 contiguous scores.
void candidates(benchmark::State& state, std::int64_t width, std::int64_t k, bool shuffled) {
  constexpr std::int64_t kBlocks = 2048, kBlock = 8;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(width / kBlock));
  std::iota(ids.begin(), ids.end(), 0);
  std::mt19937 random(5);
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(kBlocks);
  if (!shuffled) std::sort(ids.begin(), ids.end());
  std::vector<float> scores = scores_of("random", width);
  std::vector<float> contiguous;
  for (const std::int32_t id : ids)
    contiguous.insert(contiguous.end(), scores.begin() + id * kBlock, scores.begin() + (id + 1) * kBlock);
  Call plain = make_call(std::move(contiguous), kBlocks * kBlock, k);
  Call restricted = make_call(std::move(scores), width, k);
  restricted.candidates = ids;
  restricted.args.candidates = Tensor::dense(restricted.candidates.data(), DType::i32, {1, kBlocks});
  restricted.plan_it();
  by_turns(state, restricted, "plain_16384", plain);
}

void by_score(benchmark::State& state, std::int64_t width, std::int64_t k) {
  Call plain = make_call(scores_of("random", width), width, k);
  Call ordered = make_call(scores_of("random", width), width, k);
  ordered.args.order = TopkOrder::by_score;
  ordered.plan_it();
  by_turns(state, ordered, "by_column", plain);
}

void bf16(benchmark::State& state, std::int64_t width, std::int64_t k) {
  Call plain = make_call(scores_of("random", width), width, k);
  Call half = make_call(scores_of("random", width), width, k);
  for (const float s : half.scores) half.scores16.push_back(test::to_bf16(s));
  half.args.scores = Tensor::dense(half.scores16.data(), DType::bf16, {1, width});
  half.plan_it();
  by_turns(state, half, "f32", plain);
}

// 64 rows on all cores of the machine against one.
void threads(benchmark::State& state, int count) {
  constexpr std::int64_t kRows = 64, kWidth = 32'768, kK = 2048;
  std::vector<float> scores = scores_of("random", kRows * kWidth);
  std::vector<std::int32_t> end(kRows, kWidth), out(static_cast<std::size_t>(kRows * kK));
  TopkArgs a;
  a.scores = Tensor::dense(scores.data(), DType::f32, {kRows, kWidth});
  a.bounds.end = Tensor::dense(end.data(), DType::i32, {kRows});
  a.k = kK;
  a.out = Tensor::dense(out.data(), DType::i32, {kRows, kK});
  ThreadPool pool(count);
  const Executor executor = pool.executor();
  const auto timed = [&](const Executor* e) {
    TopkPlan p;
    if (!plan(a, {.concurrency = e == nullptr ? 1 : e->concurrency}, p).ok()) std::abort();
    std::vector<unsigned char> memory(p.workspace_bytes + 64);
    auto* start = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
    return [=, &a, memory = std::move(memory)]() {
      if (!run(p, a, {start, p.workspace_bytes}, {nullptr, e}).ok()) std::abort();
    };
  };
  by_turns(state, timed(&executor), "one_thread", timed(nullptr));
}

[[maybe_unused]] const bool registered = [] {
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond);
  };
  std::vector<std::string> families = {"random", "relu_like", "all_equal", "crowded", "ascending", "ties"};
  if (!learned_row().empty()) families.insert(families.begin(), "learned");
  for (const std::string& family : families)
    for (const std::int64_t width : {8'192, 131'072, 1'048'576})
      for (const std::int64_t k : {512, 2048})
        add("topk/" + family + "/" + std::to_string(width) + "/k" + std::to_string(k),
            [=](benchmark::State& s) { against_max_pass(s, family, width, k, 1); });
  for (const std::int64_t k : {512, 2048})
    add("topk/random_8_rows_by_turns/131072/k" + std::to_string(k),
        [=](benchmark::State& s) { against_max_pass(s, "random", 131'072, k, 8); });
  add("topk/nth_element/131072/k2048",
      [](benchmark::State& s) { against_nth_element(s, "random", 131'072, 2048); });
  for (const std::int64_t width : {819'200, 10'485'760})
    add("topk/one_percent_live/" + std::to_string(width),
        [=](benchmark::State& s) { one_percent_live(s, width, 512); });
  for (const std::int64_t width : {131'072, 1'048'576})
    for (const std::int64_t k : {512, 2048})
      for (const bool shuffled : {false, true})
        add(std::string("topk/candidates") + (shuffled ? "_shuffled/" : "/") + std::to_string(width) + "/k" +
                std::to_string(k),
            [=](benchmark::State& s) { candidates(s, width, k, shuffled); });
  add("topk/by_score/131072/k2048", [](benchmark::State& s) { by_score(s, 131'072, 2048); });
  add("topk/bf16/131072/k2048", [](benchmark::State& s) { bf16(s, 131'072, 2048); });
  add("topk/threads/2", [](benchmark::State& s) { threads(s, 2); });
  return true;
}();

}  // namespace
}  // namespace keysieve::bench
#endif  // HWY_ONCE

// candidate_blocks on the CPU: against one vectorised max pass over the same scores, against block maxima and
// std::nth_element, and against itself on rows that are only as wide as they are long.
#include <algorithm>
#include <numeric>

#include "keysieve/candidate_blocks.hpp"
#include "support/families.hpp"
#include "turns.hpp"

namespace keysieve::bench {
namespace {

constexpr std::int64_t kReserved = 1 << 20, kBlock = 8, kPlaces = 2048;

// The least that reading a row can cost; the compiler makes vectors of it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
[[gnu::target_clones("avx512f", "avx2", "default"), gnu::optimize("O3,fast-math")]]
#endif
float max_of(const float* scores, std::int64_t count) {
  float best[32];
  std::fill_n(best, 32, -1e30f);
  for (std::int64_t c = 0; c + 32 <= count; c += 32)
    for (int i = 0; i < 32; ++i) best[i] = scores[c + i] > best[i] ? scores[c + i] : best[i];
  return *std::max_element(best, best + 32);
}

struct Shape {
  std::int64_t rows, live, width;
  float* scores;
  std::vector<std::int32_t> end, lists;

  Shape(std::int64_t r, std::int64_t l, std::int64_t w, test::Family family)
      : rows(r),
        live(l),
        width(w),
        scores(reserve<float>(static_cast<std::size_t>(r * w))),
        end(static_cast<std::size_t>(r), static_cast<std::int32_t>(l)),
        lists(static_cast<std::size_t>(r * kPlaces)) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<float> values = test::make_scores(family, live, static_cast<std::uint64_t>(row));
      std::copy(values.begin(), values.end(), scores + row * width);
    }
  }
  ~Shape() { release(scores, static_cast<std::size_t>(rows * width)); }
  [[nodiscard]] CandidateBlocksArgs args() {
    CandidateBlocksArgs a;
    a.scores = Tensor::dense(scores, DType::f32, {rows, width});
    a.bounds.end = Tensor::dense(end.data(), DType::i32, {rows});
    a.candidates = Tensor::dense(lists.data(), DType::i32, {rows, kPlaces});
    return a;
  }
  [[nodiscard]] float max_pass() const {
    float best = -1e30f;
    for (std::int64_t row = 0; row < rows; ++row) best = std::max(best, max_of(scores + row * width, live));
    return best;
  }
  void naive(std::vector<float>& maxima, std::vector<std::int32_t>& ids) {
    const std::int64_t blocks = (live + kBlock - 1) / kBlock;
    maxima.resize(static_cast<std::size_t>(blocks));
    ids.resize(static_cast<std::size_t>(blocks));
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* s = scores + row * width;
      for (std::int64_t b = 0; b < blocks; ++b)
        maxima[static_cast<std::size_t>(b)] =
            *std::max_element(s + b * kBlock, s + std::min(live, b * kBlock + kBlock));
      maxima.back() = 1e30f;
      std::iota(ids.begin(), ids.end(), 0);
      const auto places = std::min(kPlaces, blocks);
      if (places < blocks)
        std::nth_element(ids.begin(), ids.begin() + places, ids.end(), [&](std::int32_t x, std::int32_t y) {
          const float a = maxima[static_cast<std::size_t>(x)], b = maxima[static_cast<std::size_t>(y)];
          return a != b ? a > b : x < y;
        });
      std::sort(ids.begin(), ids.begin() + places);
      std::copy_n(ids.begin(), places, lists.begin() + row * kPlaces);
    }
  }
};

constexpr test::Family kFamilies[] = {test::Family::random, test::Family::learned_like,
                                      test::Family::all_equal, test::Family::nan};

void AgainstMaxPass(benchmark::State& state) {
  const test::Family family = kFamilies[state.range(2)];
  Shape shape(state.range(0), state.range(1), kReserved, family);
  Call call(shape.args());
  float best = 0;
  const Turns t = take_turns(state, call, [&] { benchmark::DoNotOptimize(best = shape.max_pass()); });
  std::vector<float> maxima;
  std::vector<std::int32_t> ids;
  double naive = 1e9;
  for (int i = 0; i < 3; ++i) naive = std::min(naive, seconds_of([&] { shape.naive(maxima, ids); }));
  state.SetLabel(test::family_name(family));
  state.counters["over_max_pass"] = t.ours / t.other;
  state.counters["naive_over_ours"] = naive / t.ours;
  state.counters["GB_per_s"] = static_cast<double>(shape.rows * shape.live) * 4e-9 / t.ours;
}
BENCHMARK(AgainstMaxPass)
    ->Name("candidate_blocks/against_max_pass")
    ->ArgNames({"rows", "live", "family"})
    ->ArgsProduct({{1}, {131072, 1 << 20}, {0, 1, 2, 3}})
    ->Args({96, 131072, 1})
    ->UseManualTime()
    ->MinTime(0.5)
    ->Unit(benchmark::kMicrosecond);

void ReservedWidth(benchmark::State& state) {
  const std::int64_t live = state.range(0);
  Shape wide(8, live, kReserved, test::Family::random), narrow(8, live, live, test::Family::random);
  Call ours(wide.args()), same(narrow.args());
  const Turns t = take_turns(state, ours, same);
  state.counters["over_narrow"] = t.ours / t.other;
}
BENCHMARK(ReservedWidth)
    ->Name("candidate_blocks/reserved_over_narrow")
    ->ArgName("live")
    ->Arg(128)
    ->Arg(1024)
    ->Arg(10486)
    ->Arg(65536)
    ->Arg(131072)
    ->Arg(524288)
    ->Arg(1 << 20)
    ->UseManualTime()
    ->MinTime(0.5)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace keysieve::bench

// candidate_mask on the CPU, live range: against memset of the same live columns, against a loop over
// columns, and against itself on rows that are only as wide as they are long.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "keysieve/candidate_mask.hpp"
#include "turns.hpp"

namespace keysieve::bench {
namespace {

constexpr std::int64_t kReserved = 1 << 20, kBlock = 8, kListed = 2048;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Scores of `rows` rows, `width` reserved and `live` used, with lists of distinct blocks, ascending.
struct Shape {
  std::int64_t rows, live, width;
  float* scores;
  std::vector<std::int32_t> end, lists;
  std::int64_t kept = 0;  // columns of a row that stay

  Shape(std::int64_t r, std::int64_t l, std::int64_t w)
      : rows(r),
        live(l),
        width(w),
        scores(reserve<float>(static_cast<std::size_t>(r * w))),
        end(static_cast<std::size_t>(r), static_cast<std::int32_t>(l)),
        lists(static_cast<std::size_t>(r * kListed), -1) {
    const std::int64_t blocks = (live + kBlock - 1) / kBlock,
                       listed = std::min(kListed, std::max<std::int64_t>(blocks / 2, 1));
    std::mt19937 random(5);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks));
    for (std::int64_t row = 0; row < rows; ++row) {
      std::iota(ids.begin(), ids.end(), 0);
      std::shuffle(ids.begin(), ids.end(), random);
      auto* list = lists.data() + row * kListed;
      std::copy_n(ids.begin(), listed, list);
      std::sort(list, list + listed);
      for (std::int64_t c = 0; c < live; ++c) scores[row * width + c] = static_cast<float>(c);
    }
    kept = listed * kBlock;
  }
  ~Shape() { release(scores, static_cast<std::size_t>(rows * width)); }

  [[nodiscard]] CandidateMaskArgs args(WriteRange range = WriteRange::live) {
    CandidateMaskArgs a;
    a.scores = Tensor::dense(scores, DType::f32, {rows, width});
    a.bounds.end = Tensor::dense(end.data(), DType::i32, {rows});
    a.candidates = Tensor::dense(lists.data(), DType::i32, {rows, kListed});
    a.write_range = range;
    return a;
  }
  void fill() const {
    for (std::int64_t row = 0; row < rows; ++row)
      std::memset(scores + row * width, 0xff, static_cast<std::size_t>(live) * 4);
  }
  // As written first: a flag a block, then every column asks for its flag.
  void naive(std::vector<unsigned char>& flags) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::fill(flags.begin(), flags.end(), 0);
      for (std::int64_t j = 0; j < kListed; ++j)
        if (const std::int32_t b = lists[static_cast<std::size_t>(row * kListed + j)];
            b >= 0 && b * kBlock < live)
          flags[static_cast<std::size_t>(b)] = 1;
      for (std::int64_t c = 0; c < live; ++c)
        if (!flags[static_cast<std::size_t>(c / kBlock)]) scores[row * width + c] = kMinusInfinity;
    }
  }
};

void AgainstMemset(benchmark::State& state) {
  Shape shape(state.range(0), state.range(1), kReserved);
  Call call(shape.args());
  const Turns t = take_turns(state, call, [&] { shape.fill(); });
  const double written = static_cast<double>(shape.rows * (shape.live - shape.kept)) * 4;
  const double filled = static_cast<double>(shape.rows * shape.live) * 4;
  state.counters["written_GB_per_s"] = written / t.ours * 1e-9;
  state.counters["memset_GB_per_s"] = filled / t.other * 1e-9;
  state.counters["share_of_memset"] = written / t.ours / (filled / t.other);
}
BENCHMARK(AgainstMemset)
    ->Name("candidate_mask/live_against_memset")
    ->ArgNames({"rows", "live"})
    ->Args({96, 131072})
    ->Args({24, 131072})
    ->Args({6, 131072})
    ->Args({96, 1024})
    ->Args({96, 8192})
    ->Args({1, 1 << 20})
    ->UseManualTime()
    ->MinTime(1.0)
    ->Unit(benchmark::kMicrosecond);

void AgainstLoop(benchmark::State& state) {
  Shape shape(state.range(0), state.range(1), kReserved);
  Call call(shape.args());
  std::vector<unsigned char> flags(kReserved / kBlock);
  const Turns t = take_turns(state, call, [&] { shape.naive(flags); });
  state.counters["loop_over_ours"] = t.other / t.ours;
}
BENCHMARK(AgainstLoop)
    ->Name("candidate_mask/live_against_loop")
    ->ArgNames({"rows", "live"})
    ->Args({96, 131072})
    ->Args({6, 131072})
    ->UseManualTime()
    ->MinTime(0.5)
    ->Unit(benchmark::kMicrosecond);

void ReservedWidth(benchmark::State& state) {
  const std::int64_t live = state.range(0);
  Shape wide(8, live, kReserved), narrow(8, live, live);
  Call ours(wide.args()), same(narrow.args());
  const Turns t = take_turns(state, ours, same);
  state.counters["over_narrow"] = t.ours / t.other;
}
BENCHMARK(ReservedWidth)
    ->Name("candidate_mask/live_reserved_over_narrow")
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

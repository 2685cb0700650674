// packed_mask on the CPU: ns per index from top-k lists, against zero fill and a loop over the indices; from
// candidates and scores; with a summary; and back to lists.
#include <algorithm>
#include <cstring>
#include <random>

#include "keysieve/packed_mask.hpp"
#include "turns.hpp"

namespace keysieve::bench {
namespace {

// One request of `queries` rows, each with k keys of `keys`, ascending as topk gives them or shuffled.
struct Shape {
  std::int64_t queries, keys, k;
  PackedMaskShape shape;
  std::vector<std::int32_t> q_start, count, lists;
  std::vector<std::uint32_t> mask, any, all;

  Shape(std::int64_t q, std::int64_t n, std::int64_t listed, bool sorted)
      : queries(q),
        keys(n),
        k(listed),
        shape(packed_mask_shape(1, q, n)),
        q_start{0, static_cast<std::int32_t>(q)},
        count{static_cast<std::int32_t>(n)},
        lists(static_cast<std::size_t>(q * listed)),
        mask(static_cast<std::size_t>(shape.rows * shape.words), 0xdeadbeef),
        any(static_cast<std::size_t>((shape.rows + 127) / 128 * ((shape.words + 127) / 128))),
        all(any.size()) {
    std::mt19937 random(9);
    for (std::int64_t row = 0; row < queries; ++row) {
      auto* list = lists.data() + row * k;
      // Selection sampling: k of the keys, ascending.
      std::int64_t found = 0;
      for (std::int64_t key = 0; key < keys && found < k; ++key)
        if (static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(keys - key)) < k - found)
          list[found++] = static_cast<std::int32_t>(key);
      if (!sorted) std::shuffle(list, list + k, random);
    }
  }
  [[nodiscard]] PackedMaskArgs args() {
    PackedMaskArgs a;
    a.q_start = Tensor::dense(q_start.data(), DType::i32, {2});
    a.key_count = Tensor::dense(count.data(), DType::i32, {1});
    a.indices = Tensor::dense(lists.data(), DType::i32, {queries, k});
    a.mask = Tensor::dense(mask.data(), DType::u32, {1, shape.rows, shape.words});
    return a;
  }
  void add_summary(PackedMaskArgs& a) {
    const std::int64_t strips = (shape.rows + 127) / 128, places = (shape.words + 127) / 128;
    a.any = Tensor::dense(any.data(), DType::u32, {1, strips, places});
    a.all = Tensor::dense(all.data(), DType::u32, {1, strips, places});
  }
  void naive() {
    std::memset(mask.data(), 0, mask.size() * 4);
    for (std::int64_t row = 0; row < queries; ++row)
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int32_t key = lists[static_cast<std::size_t>(row * k + j)];
        if (key >= 0 && key < keys)
          mask[static_cast<std::size_t>(row * shape.words + key / 32)] |= 1u << (key % 32);
      }
  }
};

void FromIndices(benchmark::State& state) {
  Shape shape(state.range(0), state.range(1), state.range(2), state.range(3) != 0);
  Call call(shape.args());
  const Turns t = take_turns(state, call, [&] { shape.naive(); });
  const double indices = static_cast<double>(shape.queries * shape.k);
  state.counters["ns_per_index"] = t.ours * 1e9 / indices;
  state.counters["naive_ns_per_index"] = t.other * 1e9 / indices;
}
BENCHMARK(FromIndices)
    ->Name("packed_mask/from_indices")
    ->ArgNames({"queries", "keys", "k", "sorted"})
    ->Args({256, 2048, 2048, 1})
    ->Args({1024, 8192, 2048, 1})
    ->Args({4096, 32768, 2048, 1})
    ->Args({4096, 32768, 2048, 0})
    ->UseManualTime()
    ->MinTime(1.0)
    ->Unit(benchmark::kMicrosecond);

void Summary(benchmark::State& state) {
  Shape shape(state.range(0), state.range(1), state.range(2), true);
  PackedMaskArgs with = shape.args();
  shape.add_summary(with);
  Call ours(with), plain(shape.args());
  const Turns t = take_turns(state, ours, plain);
  state.counters["over_plain"] = t.ours / t.other;
}
BENCHMARK(Summary)
    ->Name("packed_mask/with_summary")
    ->ArgNames({"queries", "keys", "k"})
    ->Args({1024, 8192, 2048})
    ->Args({4096, 32768, 2048})
    ->UseManualTime()
    ->MinTime(0.5)
    ->Unit(benchmark::kMicrosecond);

void FromCandidates(benchmark::State& state) {
  Shape shape(1024, 32768, 2048, true);
  PackedMaskArgs a = shape.args();
  for (std::int32_t& key : shape.lists) key /= 8;
  a.candidates = a.indices;
  a.indices = {};
  Call ours(a), plain(shape.args());
  const Turns t = take_turns(state, ours, plain);
  state.counters["ns_per_candidate"] = t.ours * 1e9 / static_cast<double>(shape.queries * shape.k);
}
BENCHMARK(FromCandidates)
    ->Name("packed_mask/from_candidates")
    ->UseManualTime()
    ->MinTime(0.5)
    ->Unit(benchmark::kMicrosecond);

void FromScores(benchmark::State& state) {
  Shape shape(256, 32768, 1, true);
  std::vector<float> scores(static_cast<std::size_t>(shape.queries * shape.keys)), thresholds(256, 0.5f);
  std::mt19937 random(2);
  for (float& s : scores) s = static_cast<float>(random() & 0xffff) / 65536.f;
  PackedMaskArgs a = shape.args();
  a.indices = {};
  a.scores = Tensor::dense(scores.data(), DType::f32, {shape.queries, shape.keys});
  a.thresholds = Tensor::dense(thresholds.data(), DType::f32, {shape.queries});
  Call ours(a);
  const Turns t = take_turns(
      state, ours, [&] { benchmark::DoNotOptimize(*std::max_element(scores.begin(), scores.end())); });
  state.counters["GB_per_s"] = static_cast<double>(scores.size()) * 4e-9 / t.ours;
}
BENCHMARK(FromScores)
    ->Name("packed_mask/from_scores")
    ->UseManualTime()
    ->MinTime(0.5)
    ->Unit(benchmark::kMicrosecond);

void Inverse(benchmark::State& state) {
  Shape shape(1024, 32768, 2048, true);
  Call build(shape.args());
  build();
  std::vector<std::int32_t> out(shape.lists.size());
  MaskIndicesArgs a;
  a.q_start = shape.args().q_start;
  a.key_count = shape.args().key_count;
  a.mask = shape.args().mask;
  a.out = Tensor::dense(out.data(), DType::i32, {shape.queries, shape.k});
  Call ours(a);
  const Turns t = take_turns(state, ours, build);
  if (out != shape.lists) state.SkipWithError("the lists differ");
  state.counters["ns_per_index"] = t.ours * 1e9 / static_cast<double>(shape.queries * shape.k);
}
BENCHMARK(Inverse)->Name("mask_indices/lists")->UseManualTime()->MinTime(0.5)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace keysieve::bench

// Every operation on one thread and on two, by turns: seconds on the wall, the least of each. Each call takes some
// ten milliseconds, so that waking the second thread does not count.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "keysieve/candidate_blocks.hpp"
#include "keysieve/candidate_mask.hpp"
#include "keysieve/executor.hpp"
#include "keysieve/masked_mha.hpp"
#include "keysieve/merge_states.hpp"
#include "keysieve/mqa_logits.hpp"
#include "keysieve/packed_mask.hpp"
#include "keysieve/sparse_mla.hpp"
#include "keysieve/topk.hpp"
#include "keysieve/translate.hpp"
#include "turns.hpp"

namespace keysieve::bench {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The tensors of one call.
class Memory {
 public:
  template <class T, class Value>
  Tensor tensor(DType dtype, std::initializer_list<std::int64_t> shape, Value&& value) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    auto& bytes = blocks_.emplace_back(static_cast<std::size_t>(count) * sizeof(T));
    auto* data = reinterpret_cast<T*>(bytes.data());
    for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(value(i));
    return Tensor::dense(data, dtype, shape);
  }
  Tensor ints(std::initializer_list<std::int64_t> shape, std::int64_t value) {
    return tensor<std::int32_t>(DType::i32, shape, [&](std::int64_t) { return value; });
  }
  // Distinct picks of [0, below), ascending, for each row.
  Tensor picks(std::int64_t rows, std::int64_t count, std::int64_t below) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(below)), picked;
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t row = 0; row < rows; ++row)
      std::sample(all.begin(), all.end(), std::back_inserter(picked), count, random_);
    return tensor<std::int32_t>(DType::i32, {rows, count},
                                [&](std::int64_t i) { return picked[static_cast<std::size_t>(i)]; });
  }
  Tensor floats(std::initializer_list<std::int64_t> shape) {
    return tensor<float>(DType::f32, shape, [&](std::int64_t) { return normal_(random_); });
  }
  Tensor bf16(std::initializer_list<std::int64_t> shape) {
    return tensor<std::uint16_t>(DType::bf16, shape, [&](std::int64_t) {
      return std::bit_cast<std::uint32_t>(normal_(random_)) >> 16;
    });
  }

 private:
  std::vector<std::vector<unsigned char>> blocks_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

// Rows that are all the same memory, which fits a core's cache.
Tensor one_row_as(std::int64_t rows, Tensor row) {
  row.shape[0] = rows;
  row.stride[0] = 0;
  return row;
}

template <class Args>
void measure(benchmark::State& state, const Args& args) {
  static const ThreadPool pool(2);
  static const Executor executor = pool.executor();
  struct Way {
    Plan<Args> planned;
    std::vector<unsigned char> memory;
    const Executor* executor;
    double least = 1e9;
  };
  Way one, two;
  one.executor = nullptr;
  two.executor = &executor;
  for (Way* way : {&one, &two}) {
    if (const Status s = plan(args, {.concurrency = way == &one ? 1 : 2}, way->planned); !s.ok())
      return state.SkipWithError(s.message().c_str());
    way->memory.resize(way->planned.workspace_bytes + 64);
  }
  for (auto _ : state) {
    for (Way* way : {&one, &two}) {
      auto* start = way->memory.data() + (64 - reinterpret_cast<std::uintptr_t>(way->memory.data()) % 64);
      const double begin = wall_seconds();
      const Status s =
          run(way->planned, args, {start, way->planned.workspace_bytes}, {nullptr, way->executor});
      const double seconds = wall_seconds() - begin;
      if (!s.ok()) return state.SkipWithError(s.message().c_str());
      way->least = std::min(way->least, seconds);
      state.SetIterationTime(seconds);
    }
  }
  state.counters["one_thread_us"] = one.least * 1e6;
  state.counters["two_threads_us"] = two.least * 1e6;
  state.counters["speedup"] = one.least / two.least;
}

void mqa_logits_scaling(benchmark::State& state) {
  constexpr std::int64_t kRows = 6, kHeads = 64, kKeys = 32'768;
  Memory m;
  MqaLogitsArgs a;
  a.q = m.bf16({kRows, kHeads, 128});
  a.weights = m.floats({kRows, kHeads});
  a.keys = m.bf16({kKeys, 128});
  a.bounds.end = m.ints({kRows}, kKeys);
  a.scores = m.floats({kRows, kKeys});
  measure(state, a);
}

void candidate_blocks_scaling(benchmark::State& state) {
  constexpr std::int64_t kRows = 512, kWidth = 131'072;
  Memory m;
  CandidateBlocksArgs a;
  a.scores = one_row_as(kRows, m.floats({1, kWidth}));
  a.bounds.end = m.ints({kRows}, kWidth);
  a.candidates = m.ints({kRows, 2048}, 0);
  measure(state, a);
}

void candidate_mask_scaling(benchmark::State& state) {
  constexpr std::int64_t kRows = 96, kWidth = 131'072;
  Memory m;
  CandidateMaskArgs a;
  a.scores = m.floats({kRows, kWidth});
  a.bounds.end = m.ints({kRows}, kWidth);
  a.candidates = m.picks(kRows, 2048, kWidth / 8);
  measure(state, a);
}

void topk_scaling(benchmark::State& state) {
  constexpr std::int64_t kRows = 512, kWidth = 131'072;
  Memory m;
  TopkArgs a;
  a.scores = one_row_as(kRows, m.floats({1, kWidth}));
  a.bounds.end = m.ints({kRows}, kWidth);
  a.k = 2048;
  a.out = m.ints({kRows, a.k}, 0);
  measure(state, a);
}

void translate_scaling(benchmark::State& state) {
  constexpr std::int64_t kRows = 1024, kK = 2048, kWidth = 131'072;
  Memory m;
  TranslateArgs a;
  a.indices = m.picks(kRows, kK, kWidth);
  a.pages.page_table = m.tensor<std::int32_t>(DType::i32, {kRows, kWidth / 64},
                                              [](std::int64_t i) { return i * 7919 % 65'536; });
  a.slots = m.ints({kRows, kK}, 0);
  measure(state, a);
}

void packed_mask_scaling(benchmark::State& state) {
  constexpr std::int64_t kQueries = 4096, kKeys = 32'768;
  const PackedMaskShape shape = packed_mask_shape(1, kQueries, kKeys);
  Memory m;
  PackedMaskArgs a;
  a.q_start = m.tensor<std::int32_t>(DType::i32, {2}, [](std::int64_t i) { return i * kQueries; });
  a.key_count = m.ints({1}, kKeys);
  a.indices = m.picks(kQueries, 2048, kKeys);
  a.mask = m.tensor<std::uint32_t>(DType::u32, {1, shape.rows, shape.words}, [](std::int64_t) { return 0; });
  measure(state, a);
}

void mask_indices_scaling(benchmark::State& state) {
  constexpr std::int64_t kQueries = 4096, kKeys = 8192;
  const PackedMaskShape shape = packed_mask_shape(1, kQueries, kKeys);
  Memory m;
  std::mt19937 random(3);
  MaskIndicesArgs a;
  a.q_start = m.tensor<std::int32_t>(DType::i32, {2}, [](std::int64_t i) { return i * kQueries; });
  a.key_count = m.ints({1}, kKeys);
  a.mask = m.tensor<std::uint32_t>(DType::u32, {1, shape.rows, shape.words},
                                   [&](std::int64_t) { return random() & random(); });
  a.out = m.ints({kQueries, 2560}, 0);
  measure(state, a);
}

void masked_mha_scaling(benchmark::State& state) {
  constexpr std::int64_t kQueries = 256, kKeys = 2048, kHeads = 8;
  Memory m;
  MaskedMhaArgs a;
  a.q = m.bf16({kQueries, kHeads, 192});
  a.k = m.bf16({kKeys, kHeads, 192});
  a.v = m.bf16({kKeys, kHeads, 128});
  a.q_start = m.tensor<std::int32_t>(DType::i32, {2}, [](std::int64_t i) { return i * kQueries; });
  a.k_start = m.tensor<std::int32_t>(DType::i32, {2}, [](std::int64_t i) { return i * kKeys; });
  a.softmax_scale = 1 / std::sqrt(192.f);
  a.out = m.bf16({kQueries, kHeads, 128});
  measure(state, a);
}

void sparse_mla_scaling(benchmark::State& state) {
  constexpr std::int64_t kRows = 32, kHeads = 16, kK = 2048, kPages = 128;
  Memory m;
  SparseMlaArgs a;
  a.q = m.bf16({kRows, kHeads, 576});
  a.cache = m.bf16({kPages, 64, 576});
  a.indices = m.picks(kRows, kK, kPages * 64);
  a.softmax_scale = 1 / std::sqrt(576.f);
  a.out = m.bf16({kRows, kHeads, 512});
  measure(state, a);
}

void merge_states_scaling(benchmark::State& state) {
  constexpr std::int64_t kParts = 4, kRows = 128, kHeads = 128;
  Memory m;
  MergeStatesArgs a;
  a.outs = m.bf16({kParts, kRows, kHeads, 512});
  a.lses = m.floats({kParts, kRows, kHeads});
  a.out = m.bf16({kRows, kHeads, 512});
  measure(state, a);
}

[[maybe_unused]] const bool registered = [] {
  const auto add = [](const char* name, void (*body)(benchmark::State&)) {
    benchmark::RegisterBenchmark(name, body)->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(2.0);
  };
  add("thread_scaling/mqa_logits/rows:6/heads:64/keys:32768", mqa_logits_scaling);
  add("thread_scaling/candidate_blocks/rows:512/live:131072", candidate_blocks_scaling);
  add("thread_scaling/candidate_mask/rows:96/live:131072", candidate_mask_scaling);
  add("thread_scaling/topk/rows:512/live:131072/k:2048", topk_scaling);
  add("thread_scaling/translate/rows:1024/k:2048", translate_scaling);
  add("thread_scaling/packed_mask/queries:4096/keys:32768/k:2048", packed_mask_scaling);
  add("thread_scaling/mask_indices/queries:4096/keys:8192", mask_indices_scaling);
  add("thread_scaling/masked_mha/queries:256/keys:2048/heads:8", masked_mha_scaling);
  add("thread_scaling/sparse_mla/rows:32/heads:16/k:2048", sparse_mla_scaling);
  add("thread_scaling/merge_states/parts:4/rows:128/heads:128", merge_states_scaling);
  return true;
}();

}  // namespace
}  // namespace keysieve::bench

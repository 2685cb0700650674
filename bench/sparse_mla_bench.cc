// sparse_mla: share of the multiply-add peak, for many heads and few. The slots lie at random either in a
// pool of 2,000 (2 MB, cached) or of 40,000 (46 MB: every key comes from memory). `naive` is the definition
// in plain loops.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention_timing.hpp"
#include "keysieve/sparse_mla.hpp"
#include "support/learned.hpp"

namespace keysieve::bench {
namespace {

struct Case {
  std::int64_t rows, heads, k, dim, slots;
  int threads = 1;

  // As many lists as fill a cache of 64 MB, where the pool does.
  [[nodiscard]] std::int64_t lists() const { return slots > 10000 ? slots / (rows * k) : 1; }
};

// An engine's pool starts at a page, so a key of 1,152 bytes is 18 whole cache lines.
constexpr std::int64_t kLine = 32;

struct Operands {
  std::vector<std::uint16_t> q, cache, out;
  [[nodiscard]] std::uint16_t* pool() {
    return cache.data() + (64 - reinterpret_cast<std::uintptr_t>(cache.data()) % 64) % 64 / 2;
  }
  std::vector<std::int32_t> indices;
  std::vector<float> lse;
  SparseMlaArgs args;
};

double products(const SparseMlaArgs& a, std::int64_t keys) {
  return static_cast<double>(a.q.shape[1] * keys * (a.q.shape[2] + 512));
}

Operands make_operands(const Case& c) {
  Operands o;
  o.q = random_bf16(c.rows * c.heads * c.dim, 1);
  o.cache = random_bf16(c.slots * c.dim + kLine, 2);
  o.out.resize(static_cast<std::size_t>(c.rows * c.heads * 512));
  o.lse.resize(static_cast<std::size_t>(c.rows * c.heads));
  std::vector<std::int32_t> order(static_cast<std::size_t>(c.slots));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(3);
  while (static_cast<std::int64_t>(o.indices.size()) < c.lists() * c.rows * c.k) {
    std::shuffle(order.begin(), order.end(), random);
    o.indices.insert(o.indices.end(), order.begin(), order.end());
  }
  o.args.q = Tensor::dense(o.q.data(), DType::bf16, {c.rows, c.heads, c.dim});
  o.args.cache = Tensor::dense(o.pool(), DType::bf16, {c.slots, 1, c.dim});
  o.args.indices = Tensor::dense(o.indices.data(), DType::i32, {c.rows, c.k});
  o.args.softmax_scale = 0.0722F;
  o.args.out = Tensor::dense(o.out.data(), DType::bf16, {c.rows, c.heads, 512});
  o.args.lse = Tensor::dense(o.lse.data(), DType::f32, {c.rows, c.heads});
  return o;
}

void naive_row(Operands& o, std::int64_t row, std::vector<float>& score, std::vector<float>& sums) {
  const std::int64_t heads = o.args.q.shape[1], dim = o.args.q.shape[2], k = o.args.indices.shape[1];
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::uint16_t* q = o.q.data() + (row * heads + h) * dim;
    float largest = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const std::uint16_t* key =
          o.pool() + std::int64_t{o.indices[static_cast<std::size_t>(row * k + j)]} * dim;
      float dot = 0;
      for (std::int64_t d = 0; d < dim; ++d) dot += bf16_value(q[d]) * bf16_value(key[d]);
      score[static_cast<std::size_t>(j)] = dot * o.args.softmax_scale;
      largest = std::max(largest, score[static_cast<std::size_t>(j)]);
    }
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::uint16_t* key =
          o.pool() + std::int64_t{o.indices[static_cast<std::size_t>(row * k + j)]} * dim;
      const float weight = std::exp(score[static_cast<std::size_t>(j)] - largest);
      sum += weight;
      for (std::size_t c = 0; c < 512; ++c) sums[c] += weight * bf16_value(key[c]);
    }
    for (const float s : sums) benchmark::DoNotOptimize(s / sum);
  }
}

std::string name_of(const Case& c) {
  return "sparse_mla/heads:" + std::to_string(c.heads) + "/k:" + std::to_string(c.k) +
         "/d:" + std::to_string(c.dim) + "/rows:" + std::to_string(c.rows) +
         (c.slots > 10000  ? "/memory"
          : c.slots < 1000 ? "/L2"
                           : "/cached") +
         (c.threads > 1 ? "/threads:" + std::to_string(c.threads) : "");
}

// One call after another with its own list, so that a large pool's keys are out of the caches again.
void time_lists(benchmark::State& state, const Case& c) {
  Operands o = make_operands(c);
  const ThreadPool pool(c.threads);
  const Executor executor = pool.executor();
  Plan<SparseMlaArgs> planned;
  if (const Status s = plan(o.args, {.concurrency = c.threads}, planned); !s.ok())
    return state.SkipWithError(s.message().c_str());
  Scratch scratch(planned.workspace_bytes);
  std::int64_t turn = 0;
  time_products(state, c.threads == 1 ? cpu_seconds : clock_seconds, c.threads,
                static_cast<double>(c.rows) * products(o.args, c.k), [&] {
                  o.args.indices.data = o.indices.data() + turn++ % c.lists() * c.rows * c.k;
                  static_cast<void>(
                      run(planned, o.args, scratch.view(), {nullptr, c.threads > 1 ? &executor : nullptr}));
                  benchmark::ClobberMemory();
                });
  state.SetLabel(planned.kernel_name);
  if (c.heads > 2) return;
  // The same keys, loaded once and no more.
  std::vector<const std::uint16_t*> key;
  for (const std::int32_t slot : o.indices) key.push_back(o.pool() + slot * c.dim);
  double read = 1e18;
  for (std::int64_t i = 0; i < 20 * c.lists(); ++i) {
    const double start = cpu_seconds();
    benchmark::DoNotOptimize(read_rows(key.data() + i % c.lists() * c.rows * c.k,
                                       static_cast<std::size_t>(c.rows * c.k),
                                       static_cast<std::size_t>(c.dim)));
    read = std::min(read, cpu_seconds() - start);
  }
  state.counters["read_us"] = read * 1e6;
}

void add_case(const Case& c) {
  add(name_of(c), [c](benchmark::State& state) { time_lists(state, c); });
}

// Decode step of the trained model: 8 requests, 8 heads, top 512, the rows' own keys side by side.
void learned_decode(benchmark::State& state) {
  const test::LearnedFile file("decode8_layer3_attn");
  if (!file.found()) return state.SkipWithError(test::kLearnedDataMissing);
  const Tensor q = file["layer3.mla_q"], kv = file["layer3.kv"], topk = file["layer3.topk"];
  const auto* position = file.data<std::int32_t>("layer3.kv_pos");
  const auto* start = file.data<std::int32_t>("layer3.kv_start");
  const auto* chosen = file.data<std::int32_t>("layer3.topk");
  const std::int64_t rows = q.shape[0], k = topk.shape[1];
  std::vector<std::int32_t> indices;
  std::int64_t keys = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t j = 0; j < k; ++j) {
      const auto* found = std::find(position + start[row], position + start[row + 1], chosen[row * k + j]);
      const bool listed = chosen[row * k + j] >= 0 && found != position + start[row + 1];
      indices.push_back(listed ? static_cast<std::int32_t>(found - position) : -1);
      keys += listed ? 1 : 0;
    }
  }
  std::vector<std::uint16_t> out(static_cast<std::size_t>(rows * q.shape[1] * 512));
  SparseMlaArgs a;
  a.q = q;
  a.cache = Tensor::dense(kv.data, DType::bf16, {kv.shape[0], 1, kv.shape[1]});
  a.indices = Tensor::dense(indices.data(), DType::i32, {rows, k});
  a.softmax_scale = 0.07216878F;
  a.out = Tensor::dense(out.data(), DType::bf16, {rows, q.shape[1], 512});
  time_call(state, a, 1, products(a, keys));
}

const int kRegistered = [] {
  for (const std::int64_t heads : {1, 2, 3, 4, 8, 12, 16, 17, 32, 64, 128})
    for (const std::int64_t slots : {300, 2000, 64000}) add_case({1, heads, 2048, 576, slots});
  for (const std::int64_t k : {512, 1024}) add_case({1, 128, k, 512, 2000});
  for (const int threads : {1, 2}) {
    add_case({1, 128, 2048, 576, 2001, threads});
    add_case({8, 16, 2048, 576, 64001, threads});
  }
  add("sparse_mla/learned_decode8", learned_decode);
  for (const std::int64_t heads : {8, 128}) {
    const Case c{1, heads, 2048, 576, 2000};
    add("naive/" + name_of(c), [c](benchmark::State& state) {
      Operands o = make_operands(c);
      std::vector<float> score(static_cast<std::size_t>(c.k)), sums(512);
      time_products(state, cpu_seconds, 1, products(o.args, c.k), [&] {
        naive_row(o, 0, score, sums);
        benchmark::ClobberMemory();
      });
    });
  }
  return 0;
}();

}  // namespace
}  // namespace keysieve::bench

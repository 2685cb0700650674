// sparse_mla: share of the multiply-add peak, for many heads and few. The slots lie at random either in a
// pool of 2,000 (2 MB, cached) or of 40,000 (46 MB: every key comes from memory). `naive` is the definition
// in plain loops.
#include <cmath>

#include "attention_timing.hpp"
#include "keysieve/sparse_mla.hpp"
#include "support/learned.hpp"

namespace keysieve::bench {
namespace {

struct Case {
  std::int64_t rows, heads, k, dim, slots;
  int threads = 1;
};

struct Operands {
  std::vector<std::uint16_t> q, cache, out;
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
  o.cache = random_bf16(c.slots * c.dim, 2);
  o.out.resize(static_cast<std::size_t>(c.rows * c.heads * 512));
  o.lse.resize(static_cast<std::size_t>(c.rows * c.heads));
  std::mt19937 random(3);
  for (std::int64_t i = 0; i < c.rows * c.k; ++i)
    o.indices.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(c.slots)));
  o.args.q = Tensor::dense(o.q.data(), DType::bf16, {c.rows, c.heads, c.dim});
  o.args.cache = Tensor::dense(o.cache.data(), DType::bf16, {c.slots, 1, c.dim});
  o.args.indices = Tensor::dense(o.indices.data(), DType::i32, {c.rows, c.k});
  o.args.softmax_scale = 0.0722F;
  o.args.out = Tensor::dense(o.out.data(), DType::bf16, {c.rows, c.heads, 512});
  o.args.lse = Tensor::dense(o.lse.data(), DType::f32, {c.rows, c.heads});
  return o;
}

void naive_row(const Operands& o, std::int64_t row, std::vector<float>& score, std::vector<float>& sums) {
  const std::int64_t heads = o.args.q.shape[1], dim = o.args.q.shape[2], k = o.args.indices.shape[1];
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::uint16_t* q = o.q.data() + (row * heads + h) * dim;
    float largest = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const std::uint16_t* key =
          o.cache.data() + std::int64_t{o.indices[static_cast<std::size_t>(row * k + j)]} * dim;
      float dot = 0;
      for (std::int64_t d = 0; d < dim; ++d) dot += bf16_value(q[d]) * bf16_value(key[d]);
      score[static_cast<std::size_t>(j)] = dot * o.args.softmax_scale;
      largest = std::max(largest, score[static_cast<std::size_t>(j)]);
    }
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::uint16_t* key =
          o.cache.data() + std::int64_t{o.indices[static_cast<std::size_t>(row * k + j)]} * dim;
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
         (c.slots > 10000 ? "/memory" : "/cached") +
         (c.threads > 1 ? "/threads:" + std::to_string(c.threads) : "");
}

void add_case(const Case& c) {
  add(name_of(c), [c](benchmark::State& state) {
    const Operands o = make_operands(c);
    time_call(state, o.args, c.threads, static_cast<double>(c.rows) * products(o.args, c.k));
  });
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
  for (const std::int64_t heads : {1, 2, 4, 8, 12, 16, 17, 32, 64, 128})
    for (const std::int64_t slots : {2000, 40000}) add_case({1, heads, 2048, 576, slots});
  for (const std::int64_t k : {512, 1024}) add_case({1, 128, k, 512, 2000});
  for (const int threads : {1, 2}) {
    add_case({1, 128, 2048, 576, 2001, threads});
    add_case({8, 16, 2048, 576, 40001, threads});
  }
  add("sparse_mla/learned_decode8", learned_decode);
  for (const std::int64_t heads : {8, 128}) {
    const Case c{1, heads, 2048, 576, 2000};
    add("naive/" + name_of(c), [c](benchmark::State& state) {
      const Operands o = make_operands(c);
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

// masked_mha: share of the multiply-add peak. Useful products are those of kept (query, key) pairs only, so a
// sparse mask shows what a tile spends on keys that only some of its queries keep. `learned` is the selection
// of 64 neighbouring queries of a trained model, top 256 of 12,345 keys. `naive` is the definition in plain
// loops.
#include <cmath>

#include "attention_timing.hpp"
#include "keysieve/masked_mha.hpp"
#include "support/learned.hpp"

namespace keysieve::bench {
namespace {

enum class Mask { none, ones, causal, learned };

struct Case {
  std::int64_t queries, keys, heads, dqk, dv;
  Mask mask = Mask::none;
  int threads = 1;
};

struct Operands {
  std::vector<std::uint16_t> q, k, v, out;
  std::vector<std::uint32_t> mask;
  std::vector<std::int32_t> q_start, k_start, q_offset{0};
  MaskedMhaArgs args;
  double pairs = 0;  // kept (query, key) pairs
};

Operands make_operands(const Case& c, const std::int32_t* topk = nullptr, std::int64_t topk_count = 0) {
  Operands o;
  o.q = random_bf16(c.queries * c.heads * c.dqk, 1);
  o.k = random_bf16(c.keys * c.heads * c.dqk, 2);
  o.v = random_bf16(c.keys * c.heads * c.dv, 3);
  o.out.resize(static_cast<std::size_t>(c.queries * c.heads * c.dv));
  o.q_start = {0, static_cast<std::int32_t>(c.queries)};
  o.k_start = {0, static_cast<std::int32_t>(c.keys)};
  o.args.q = Tensor::dense(o.q.data(), DType::bf16, {c.queries, c.heads, c.dqk});
  o.args.k = Tensor::dense(o.k.data(), DType::bf16, {c.keys, c.heads, c.dqk});
  o.args.v = Tensor::dense(o.v.data(), DType::bf16, {c.keys, c.heads, c.dv});
  o.args.q_start = Tensor::dense(o.q_start.data(), DType::i32, {2});
  o.args.k_start = Tensor::dense(o.k_start.data(), DType::i32, {2});
  o.args.softmax_scale = 0.0722F;
  o.args.out = Tensor::dense(o.out.data(), DType::bf16, {c.queries, c.heads, c.dv});
  o.pairs = static_cast<double>(c.queries * c.keys);
  const std::int64_t words = (c.keys + 127) / 128 * 4;
  if (c.mask == Mask::ones || c.mask == Mask::learned) {
    o.mask.assign(static_cast<std::size_t>(c.queries * words), c.mask == Mask::ones ? ~0U : 0U);
    o.args.mask = Tensor::dense(o.mask.data(), DType::u32, {1, c.queries, words});
  }
  if (c.mask == Mask::causal) {
    o.args.causal = true;
    o.args.q_offset = Tensor::dense(o.q_offset.data(), DType::i32, {1});
    o.pairs = static_cast<double>(c.queries) *
              (static_cast<double>(c.keys) - static_cast<double>(c.queries - 1) / 2);
  }
  if (c.mask == Mask::learned) {
    o.pairs = 0;
    for (std::int64_t i = 0; i < c.queries * topk_count; ++i) {
      if (topk[i] < 0) continue;
      o.mask[static_cast<std::size_t>(i / topk_count * words + topk[i] / 32)] |= 1U << (topk[i] % 32);
      o.pairs += 1;
    }
  }
  return o;
}

void naive(const Operands& o, std::vector<float>& score) {
  const std::int64_t queries = o.args.q.shape[0], keys = o.args.k.shape[0], heads = o.args.q.shape[1];
  const std::int64_t dqk = o.args.q.shape[2], dv = o.args.v.shape[2];
  float sums[256];
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::uint16_t* q = o.q.data() + (i * heads + h) * dqk;
      float largest = -INFINITY, sum = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::uint16_t* k = o.k.data() + (j * heads + h) * dqk;
        float dot = 0;
        for (std::int64_t d = 0; d < dqk; ++d) dot += bf16_value(q[d]) * bf16_value(k[d]);
        score[static_cast<std::size_t>(j)] = dot * o.args.softmax_scale;
        largest = std::max(largest, score[static_cast<std::size_t>(j)]);
      }
      std::fill(sums, sums + dv, 0.0F);
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::uint16_t* v = o.v.data() + (j * heads + h) * dv;
        const float weight = std::exp(score[static_cast<std::size_t>(j)] - largest);
        sum += weight;
        for (std::int64_t c = 0; c < dv; ++c) sums[c] += weight * bf16_value(v[c]);
      }
      for (std::int64_t c = 0; c < dv; ++c) benchmark::DoNotOptimize(sums[c] / sum);
    }
  }
}

double products(const Operands& o, const Case& c) {
  return o.pairs * static_cast<double>(c.heads * (c.dqk + c.dv));
}

std::string name_of(const Case& c) {
  const char* mask = c.mask == Mask::none     ? "none"
                     : c.mask == Mask::ones   ? "ones"
                     : c.mask == Mask::causal ? "causal"
                                              : "learned";
  return "masked_mha/d:" + std::to_string(c.dqk) + "x" + std::to_string(c.dv) +
         "/queries:" + std::to_string(c.queries) + "/keys:" + std::to_string(c.keys) +
         "/heads:" + std::to_string(c.heads) + "/mask:" + mask +
         (c.threads > 1 ? "/threads:" + std::to_string(c.threads) : "");
}

const int kRegistered = [] {
  std::vector<Case> cases;
  for (const Mask mask : {Mask::none, Mask::ones, Mask::causal})
    cases.push_back({256, 2048, 8, 192, 128, mask});
  cases.push_back({256, 2048, 8, 128, 128});
  cases.push_back({256, 2048, 8, 256, 256});
  cases.push_back({1, 2048, 8, 192, 128});
  cases.push_back({7, 2048, 8, 192, 128});
  cases.push_back({256, 2048, 8, 192, 128, Mask::ones, 2});
  for (const Case& c : cases) {
    add(name_of(c), [c](benchmark::State& state) {
      const Operands o = make_operands(c);
      time_call(state, o.args, c.threads, products(o, c));
    });
  }
  // The same 64 queries with their selection and with all keys: what the mask saves.
  for (const Mask mask : {Mask::learned, Mask::none}) {
    const Case c{64, 12345, 8, 192, 128, mask};
    add(name_of(c), [c](benchmark::State& state) {
      const test::LearnedFile file("prefill64_ctx12345");
      if (!file.found()) return state.SkipWithError(test::kLearnedDataMissing);
      const Operands o = make_operands(c, file.data<std::int32_t>("layer3.expected_topk"), 256);
      time_call(state, o.args, c.threads, products(o, c));
    });
  }
  const Case c{32, 1024, 2, 192, 128};
  add("naive/" + name_of(c), [c](benchmark::State& state) {
    const Operands o = make_operands(c);
    std::vector<float> score(static_cast<std::size_t>(c.keys));
    time_products(state, cpu_seconds, 1, products(o, c), [&] {
      naive(o, score);
      benchmark::ClobberMemory();
    });
  });
  add(name_of(c), [c](benchmark::State& state) {
    const Operands o = make_operands(c);
    time_call(state, o.args, 1, products(o, c));
  });
  return 0;
}();

}  // namespace
}  // namespace keysieve::bench

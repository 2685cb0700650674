// One decode step of sparse attention: score the cached keys, select the best, attend to those alone; then
// measure what that left out by attending to everything.
//
// The made-up keys have a few hundred that answer the queries, as trained models have.
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <keysieve/mqa_logits.hpp>
#include <keysieve/sparse_mla.hpp>
#include <keysieve/topk.hpp>
#include <numeric>
#include <random>
#include <vector>

using namespace keysieve;

namespace {

constexpr std::int64_t kRows = 4, kKeys = 8192, kKept = 512, kPage = 64;
constexpr std::int64_t kIndexHeads = 8, kIndexDim = 128, kHeads = 16, kLatent = 576, kValue = 512;

std::uint16_t bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

const ThreadPool& pool() {
  static const ThreadPool threads;
  return threads;
}

// Plans, runs and tells which kernel it was.
template <class Args>
void call(const char* stage, const Args& args) {
  const Executor executor = pool().executor();
  Plan<Args> planned;
  Status status = plan(args, {.concurrency = executor.concurrency}, planned);
  std::vector<std::byte> memory(planned.workspace_bytes + 64);
  void* aligned = memory.data();
  std::size_t space = memory.size();
  std::align(64, planned.workspace_bytes, aligned, space);
  const auto began = std::chrono::steady_clock::now();
  if (status.ok()) status = run(planned, args, {aligned, planned.workspace_bytes}, {nullptr, &executor});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }
  std::printf("%-22s %-28s %8.2f ms\n", stage, planned.kernel_name, took.count());
}

}  // namespace

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;

  // Queries of all heads point roughly one way; every 40th key answers it.
  std::vector<float> topic(kLatent);
  for (float& x : topic) x = normal(random);
  std::vector<std::uint16_t> q(kRows * kHeads * kLatent), cache(kKeys * kLatent),
      index_q(kRows * kIndexHeads * kIndexDim), index_keys(kKeys * kIndexDim);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = bf16(topic[i % kLatent] + 0.3f * normal(random));
  for (std::int64_t key = 0; key < kKeys; ++key)
    for (std::int64_t d = 0; d < kLatent; ++d) {
      const float value = normal(random) + (key % 40 == 0 ? 0.25f : 0.f) * topic[static_cast<std::size_t>(d)];
      cache[static_cast<std::size_t>(key * kLatent + d)] = bf16(value);
      if (d < kIndexDim) index_keys[static_cast<std::size_t>(key * kIndexDim + d)] = bf16(value);
    }
  for (std::size_t i = 0; i < index_q.size(); ++i)
    index_q[i] = bf16(topic[i % kIndexDim] + 0.3f * normal(random));
  std::vector<float> weights(kRows * kIndexHeads, 1.f / kIndexHeads), scores(kRows * kKeys);
  std::vector<std::int32_t> ends = {8192, 8191, 5000, 700}, kept(kRows * kKept), counts(kRows);

  MqaLogitsArgs score;
  score.q = Tensor::dense(index_q.data(), DType::bf16, {kRows, kIndexHeads, kIndexDim});
  score.weights = Tensor::dense(weights.data(), DType::f32, {kRows, kIndexHeads});
  score.keys = Tensor::dense(index_keys.data(), DType::bf16, {kKeys, kIndexDim});
  score.bounds.end = Tensor::dense(ends.data(), DType::i32, {kRows});
  score.scores = Tensor::dense(scores.data(), DType::f32, {kRows, kKeys});
  call("score the keys", score);

  TopkArgs select;
  select.scores = score.scores;
  select.bounds = score.bounds;
  select.k = kKept;
  select.out = Tensor::dense(kept.data(), DType::i32, {kRows, kKept});
  select.counts = Tensor::dense(counts.data(), DType::i32, {kRows});
  call("select the best", select);

  // The cache lies in one piece here, so that positions are slots.
  std::vector<float> out(kRows * kHeads * kValue), lse(kRows * kHeads), all_out(out.size()),
      all_lse(lse.size());
  SparseMlaArgs attend;
  attend.q = Tensor::dense(q.data(), DType::bf16, {kRows, kHeads, kLatent});
  attend.cache = Tensor::dense(cache.data(), DType::bf16, {kKeys / kPage, kPage, kLatent});
  attend.indices = select.out;
  attend.softmax_scale = 1.f / std::sqrt(192.f);
  attend.out = Tensor::dense(out.data(), DType::f32, {kRows, kHeads, kValue});
  attend.lse = Tensor::dense(lse.data(), DType::f32, {kRows, kHeads});
  call("attend to the kept", attend);

  std::vector<std::int32_t> every(kRows * kKeys);
  for (std::int64_t row = 0; row < kRows; ++row)
    std::iota(every.begin() + row * kKeys, every.begin() + (row + 1) * kKeys, 0);
  attend.indices = Tensor::dense(every.data(), DType::i32, {kRows, kKeys});
  attend.lengths = score.bounds.end;
  attend.out = Tensor::dense(all_out.data(), DType::f32, {kRows, kHeads, kValue});
  attend.lse = Tensor::dense(all_lse.data(), DType::f32, {kRows, kHeads});
  call("attend to everything", attend);

  bool sensible = true;
  for (std::int64_t row = 0; row < kRows; ++row) {
    // exp(lse) sums the unnormalised weights, so a quotient of two is the share that the kept keys carry.
    double share = 0, xy = 0, xx = 0, yy = 0;
    for (std::int64_t i = row * kHeads; i < (row + 1) * kHeads; ++i)
      share += std::exp(lse[static_cast<std::size_t>(i)] - all_lse[static_cast<std::size_t>(i)]) / kHeads;
    for (std::int64_t i = row * kHeads * kValue; i < (row + 1) * kHeads * kValue; ++i) {
      const double x = out[static_cast<std::size_t>(i)], y = all_out[static_cast<std::size_t>(i)];
      xy += x * y, xx += x * x, yy += y * y;
    }
    const auto r = static_cast<std::size_t>(row);
    std::printf(
        "row %d looked at %4d keys, kept %3d, which carry %5.1f %% of the attention; cosine distance %.1e\n",
        static_cast<int>(row), ends[r], counts[r], 100 * share, 1 - xy / std::sqrt(xx * yy));
    sensible = sensible && counts[r] == kKept && share > 0.5 && share < 1.001;
  }
  return sensible ? 0 : 1;
}

// gpu_topk_bench FILE [quick|parts]: times top-k on device 0 and writes one JSON (timing.hpp says how). Beside each
// shape: the time that reading the live scores takes at this device's copy speed, and a sort of every row.
// `quick`: one family. `parts`: the shapes of few rows with other numbers of thread blocks a row.
#include <cstdio>
#include <random>
#include <string>

#include "commit.hpp"
#include "gpu/kernels.hpp"
#include "gpu/sort_rows.hpp"
#include "gpu/timing.hpp"
#include "keysieve/topk.hpp"
#include "score_rows.hpp"

namespace keysieve::bench {
namespace {

struct Shape {
  std::int64_t rows, live;
  double must;  // us, warm, k 512
};
constexpr Shape kShapes[] = {{1, 8192, 7},       {1, 131072, 12},  {1, 1048576, 16}, {8, 131072, 13},
                             {8, 1048576, 24},   {64, 8192, 7},    {64, 32768, 11},  {64, 131072, 20},
                             {64, 1048576, 85},  {96, 131072, 24}, {256, 8192, 10},  {256, 131072, 50},
                             {256, 1048576, 300}};

struct Result {
  std::string name, family;
  std::int64_t k;
  double warm, cold, floor, sorted, target;
};

class Bench {
 public:
  Bench() : workspace_(std::size_t{64} << 20), scores_(kMostRows * kMostWidth * 4) {
    copy_speed_ = clock_.copy_speed();
  }

  void fill(const std::string& family) {
    family_ = family;
    // Rows begin at other places of the same scores.
    const std::vector<float> values = scores_of(family, (std::int64_t{1} << 22) + 12288);
    const std::size_t bytes = values.size() * 4;
    for (std::size_t at = 0; at < scores_.bytes; at += bytes)
      check(gpu::copy_to_device(static_cast<char*>(scores_.data) + at, values.data(),
                                std::min(bytes, scores_.bytes - at)));
  }

  TopkArgs args(std::int64_t rows, std::int64_t width, const Memory& end, const Memory& out, std::int64_t k) {
    TopkArgs a;
    a.scores = Tensor::dense(scores_.data, DType::f32, {rows, width}, kDevice);
    a.bounds.end = Tensor::dense(end.data, DType::i32, {rows}, kDevice);
    a.k = k;
    a.out = Tensor::dense(out.data, DType::i32, {rows, k}, kDevice);
    return a;
  }

  // `width`: what is reserved; 0: what is live.
  void topk(const Shape& shape, std::int64_t k, bool sorted, std::int64_t width = 0) {
    const Memory end(std::vector<std::int32_t>(shape.rows, static_cast<std::int32_t>(shape.live)));
    const Memory out(static_cast<std::size_t>(shape.rows * k * 4));
    const Enqueue ours =
        planned_call(args(shape.rows, width == 0 ? shape.live : width, end, out, k), workspace_);
    Result r{std::to_string(shape.rows) + " x " + std::to_string(shape.live) +
                 (width == 0 ? "" : " of " + std::to_string(width)),
             family_,
             k,
             clock_.microseconds(ours, false),
             clock_.microseconds(ours, true),
             static_cast<double>(shape.rows * shape.live) * 4 / copy_speed_,
             0,
             shape.must * target_factor(k)};
    if (sorted) {
      Memory scratch(sort_rows_bytes(shape.live));
      // So many rows at most: the others take as long again.
      const std::int64_t some = std::min<std::int64_t>(shape.rows, 8);
      r.sorted =
          clock_.microseconds(
              [&](gpu::StreamHandle s) {
                sort_rows(static_cast<float*>(scores_.data), shape.live, some, shape.live, scratch.data, s);
              },
              false, 10) *
          static_cast<double>(shape.rows) / static_cast<double>(some);
    }
    add(r);
  }

  // k of 2,048 candidate blocks of 8 in 131,072 live of 1,048,576 columns.
  void candidates(std::int64_t rows, std::int64_t k, double target) {
    constexpr std::int64_t kPlaces = 2048, kLive = 131072;
    std::mt19937_64 random(7);
    std::vector<std::int32_t> blocks;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < kPlaces; ++j)  // distinct and ascending
        blocks.push_back(static_cast<std::int32_t>(j * 8 + static_cast<std::int64_t>(random() % 8)));
    const Memory list(blocks), end(std::vector<std::int32_t>(rows, kLive));
    const Memory out(static_cast<std::size_t>(rows * k * 4));
    TopkArgs a = args(rows, kMostWidth, end, out, k);
    a.candidates = Tensor::dense(list.data, DType::i32, {rows, kPlaces}, kDevice);
    a.block_size = 8;
    const Enqueue ours = planned_call(a, workspace_);
    add({"candidates " + std::to_string(rows) + " x 16384 of " + std::to_string(kLive), family_, k,
         clock_.microseconds(ours, false), clock_.microseconds(ours, true),
         static_cast<double>(rows) * 16384 * 4 / copy_speed_, 0, target});
  }

  void parts(const Shape& shape, std::int64_t k) {
    const Memory end(std::vector<std::int32_t>(shape.rows, static_cast<std::int32_t>(shape.live)));
    const Memory out(static_cast<std::size_t>(shape.rows * k * 4));
    const TopkArgs a = args(shape.rows, shape.live, end, out, k);
    std::printf("%lld x %lld, k %lld:", static_cast<long long>(shape.rows),
                static_cast<long long>(shape.live), static_cast<long long>(k));
    for (const std::uint32_t n : {1u, 2u, 4u, 8u, 16u, 24u, 32u}) {
      const double us = clock_.microseconds(
          [&](gpu::StreamHandle s) {
            check(gpu::TopkStream::run_in_parts(
                a, {{workspace_.data, workspace_.bytes}, nullptr, 1, s, kDevice}, n));
          },
          false);
      std::printf("  %u: %.2f", n, us);
    }
    std::printf("\n");
  }

  void write(const char* path) {
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) std::perror(path), std::exit(1);
    std::fprintf(
        file, "{\n  \"commit\": \"%s\",\n  \"device\": {\"architecture\": %d, \"processors\": %d},\n",
        KEYSIEVE_COMMIT, gpu::device_facts(kDevice).architecture, gpu::device_facts(kDevice).processors);
    std::fprintf(
        file, "  \"unit\": \"us, median of graph replays\",\n  \"copy_tb_per_s\": %.3f,\n  \"results\": [\n",
        copy_speed_ / 1e6);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const Result& r = results_[i];
      std::fprintf(file,
                   "    {\"name\": \"%s\", \"family\": \"%s\", \"k\": %lld, \"warm\": %.2f, \"cold\": %.2f, "
                   "\"floor\": %.2f, \"sorted\": %.2f, \"target\": %.2f}%s\n",
                   r.name.c_str(), r.family.c_str(), static_cast<long long>(r.k), r.warm, r.cold, r.floor,
                   r.sorted, r.target, i + 1 < results_.size() ? "," : "");
    }
    std::fprintf(file, "  ]\n}\n");
    std::fclose(file);
  }

 private:
  // What the bars allow: 15 % more for k 2048, 20 % for equal scores, twice for a crowd in one bin.
  [[nodiscard]] double target_factor(std::int64_t k) const {
    return (k > 512 ? 1.15 : 1) * (family_ == "all_equal" ? 1.2 : family_ == "crowded" ? 2 : 1);
  }
  void add(const Result& r) {
    results_.push_back(r);
    std::printf("%-12s k %4lld %-32s warm %8.2f cold %8.2f floor %7.2f sorted %9.1f target %6.1f%s\n",
                r.family.c_str(), static_cast<long long>(r.k), r.name.c_str(), r.warm, r.cold, r.floor,
                r.sorted, r.target, r.target > 0 && r.warm > r.target ? "  OVER" : "");
  }

  static constexpr std::int64_t kMostRows = 256, kMostWidth = 1048576;
  Clock clock_;
  Memory workspace_, scores_;
  std::string family_;
  double copy_speed_ = 1;
  std::vector<Result> results_;
};

}  // namespace
}  // namespace keysieve::bench

int main(int argc, char** argv) {
  using namespace keysieve::bench;
  if (const char* refusal = keysieve::gpu::device_refusal(kDevice)) {
    std::printf("gpu_topk_bench: skipped, %s\n", refusal);
    return 77;
  }
  const std::string mode = argc > 2 ? argv[2] : "";
  Bench bench;
  if (mode == "parts") {
    bench.fill("relu_like");
    for (const Shape& shape : kShapes)
      if (shape.rows <= 64 && shape.live > 8192)
        for (const std::int64_t k : {512, 2048}) bench.parts(shape, k);
    return 0;
  }
  std::vector<std::string> families = {"relu_like", "random", "learned", "all_equal", "crowded"};
  if (mode == "quick") families = {"relu_like"};
  for (const std::string& family : families) {
    if (family == "learned" && learned_row().empty()) continue;
    bench.fill(family);
    for (const std::int64_t k : {512, 2048})
      for (const Shape& shape : kShapes)
        bench.topk(shape, k, family == "relu_like" && k == 512 && mode != "quick");
    bench.candidates(96, 512, 9);
    bench.candidates(6, 512, 7);
    if (family == "relu_like" || family == "learned")
      for (std::int64_t live = 1024; live <= 1048576; live *= 4)
        bench.topk({96, live, 0}, 512, false, 1048576);
  }
  bench.write(argc > 1 ? argv[1] : "topk.json");
  return 0;
}

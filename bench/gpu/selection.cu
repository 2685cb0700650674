// gpu_selection_bench [FILE [PART]]: times candidate masks, candidate selection and packed masks on device 0 and
// writes one JSON (timing.hpp says how). Beside each: the time that the bytes alone take at this device's measured
// copy and fill speed, and a naive kernel for the same result.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "commit.hpp"
#include "gpu/timing.hpp"
#include "gpu/tuning.hpp"
#include "keysieve/candidate_blocks.hpp"
#include "keysieve/candidate_mask.hpp"
#include "keysieve/packed_mask.hpp"

namespace keysieve::bench {
namespace {

__global__ void nothing_kernel() {}

// The naive ways: flags in global memory and a mask over the whole width; zero fill and atomics.
__global__ void naive_flags_kernel(const int* list, int places, unsigned char* flags, std::int64_t blocks) {
  for (int j = threadIdx.x; j < places; j += blockDim.x) {
    const int id = list[std::int64_t{blockIdx.x} * places + j];
    if (id >= 0 && id < blocks) flags[blockIdx.x * blocks + id] = 1;
  }
}
__global__ void naive_mask_kernel(float* scores, const unsigned char* flags, const int* end,
                                  std::int64_t width, std::int64_t blocks) {
  const std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (c < width && !(c < end[row] && flags[row * blocks + c / 8] != 0))
    scores[row * width + c] = -__builtin_huge_valf();
}
__global__ void naive_scatter_kernel(const int* list, int places, unsigned* mask, std::int64_t words) {
  const std::int64_t row = blockIdx.x;
  for (int j = threadIdx.x; j < places; j += blockDim.x) {
    const int key = list[row * places + j];
    if (key >= 0 && key < words * 32) atomicOr(&mask[row * words + key / 32], 1u << (key % 32));
  }
}

struct Result {
  std::string name;
  double warm, cold, floor, peer_warm, target;
};

std::vector<std::int32_t> sorted_sample(std::int64_t rows, std::int64_t places, std::int64_t from) {
  std::mt19937_64 random(7);
  std::vector<std::int32_t> all;
  std::vector<std::int32_t> row(static_cast<std::size_t>(places));
  for (std::int64_t r = 0; r < rows; ++r) {
    // Evenly spread with a random step inside each cell: distinct and ascending.
    for (std::int64_t j = 0; j < places; ++j) {
      if (from <= places) {  // all there are, then nothing
        row[static_cast<std::size_t>(j)] = j < from ? static_cast<std::int32_t>(j) : -1;
        continue;
      }
      const std::int64_t low = j * from / places, high = std::max(low + 1, (j + 1) * from / places);
      row[static_cast<std::size_t>(j)] =
          low < from ? static_cast<std::int32_t>(low + random() % (high - low)) : -1;
    }
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

class Bench {
 public:
  Bench() : workspace_(std::size_t{128} << 20), scores_(std::size_t{96} * kWidth * 4) {
    copy_per_us_ = clock_.copy_speed();
    fill_per_us_ = clock_.fill_speed();
    empty_ = clock_.microseconds([](gpu::StreamHandle s) { nothing_kernel<<<1, 32, 0, s>>>(); }, false);
    refill();
  }

  CandidateMaskArgs mask_args(std::int64_t rows, const Memory& list, const Memory& end, WriteRange range) {
    CandidateMaskArgs a;
    a.scores = Tensor::dense(scores_.data, DType::f32, {rows, kWidth}, kDevice);
    a.candidates = Tensor::dense(list.data, DType::i32, {rows, kPlaces}, kDevice);
    a.bounds.end = Tensor::dense(end.data, DType::i32, {rows}, kDevice);
    a.write_range = range;
    return a;
  }

  void mask(std::int64_t rows, std::int64_t live, WriteRange range, double target, bool peer) {
    const Memory list(sorted_sample(rows, kPlaces, live / 8)),
        end(std::vector<std::int32_t>(rows, static_cast<std::int32_t>(live)));
    const auto ours = planned_call(mask_args(rows, list, end, range), workspace_);
    const double kept = std::min<double>(kPlaces * 8, live);
    const double written = (range == WriteRange::full ? kWidth : live) - kept;
    Result r{std::string("candidate_mask ") + (range == WriteRange::full ? "full" : "live") + " " +
                 std::to_string(rows) + " x " + std::to_string(live) + " of 1048576",
             clock_.microseconds(ours, false),
             clock_.microseconds(ours, true),
             rows * written * 4 / fill_per_us_,
             0,
             target};
    if (peer) {
      const std::int64_t blocks = kWidth / 8;
      Memory flags(static_cast<std::size_t>(rows * blocks));
      r.peer_warm = clock_.microseconds(
          [&](gpu::StreamHandle s) {
            check(gpu::fill_bytes(flags.data, 0, flags.bytes, s));
            naive_flags_kernel<<<static_cast<unsigned>(rows), 512, 0, s>>>(
                static_cast<int*>(list.data), kPlaces, static_cast<unsigned char*>(flags.data), blocks);
            naive_mask_kernel<<<dim3(static_cast<unsigned>(kWidth / 256), static_cast<unsigned>(rows)), 256,
                                0, s>>>(static_cast<float*>(scores_.data),
                                        static_cast<unsigned char*>(flags.data), static_cast<int*>(end.data),
                                        kWidth, blocks);
          },
          false, 20);
    }
    results_.push_back(r);
  }

  void blocks(std::int64_t rows, std::int64_t live, double target,
              CandidateOrder order = CandidateOrder::ascending_id) {
    const Memory end(std::vector<std::int32_t>(rows, static_cast<std::int32_t>(live)));
    Memory list(static_cast<std::size_t>(rows) * kPlaces * 4);
    CandidateBlocksArgs a;
    a.scores = Tensor::dense(scores_.data, DType::f32, {rows, kWidth}, kDevice);
    a.candidates = Tensor::dense(list.data, DType::i32, {rows, kPlaces}, kDevice);
    a.bounds.end = Tensor::dense(end.data, DType::i32, {rows}, kDevice);
    a.order = order;
    const auto ours = planned_call(a, workspace_);
    results_.push_back({std::string("candidate_blocks ") +
                            (order == CandidateOrder::by_score ? "by score " : "") + std::to_string(rows) +
                            " x " + std::to_string(live) + " best 2048 of 8",
                        clock_.microseconds(ours, false), clock_.microseconds(ours, true),
                        rows * live * 4.0 / copy_per_us_, 0, target});
  }

  void packed(std::int64_t rows, std::int64_t keys, bool summary, double target) {
    const Memory list(sorted_sample(rows, kPlaces, keys)),
        q_start(std::vector<std::int32_t>{0, static_cast<std::int32_t>(rows)});
    const Memory count(std::vector<std::int32_t>{static_cast<std::int32_t>(keys)});
    const PackedMaskShape shape{1, (rows + 255) / 256 * 256, (keys + 127) / 128 * 4};
    Memory mask(static_cast<std::size_t>(shape.rows * shape.words * 4)),
        any(static_cast<std::size_t>(shape.rows * 8)), all(any.bytes);
    PackedMaskArgs a;
    a.q_start = Tensor::dense(q_start.data, DType::i32, {2}, kDevice);
    a.key_count = Tensor::dense(count.data, DType::i32, {1}, kDevice);
    a.indices = Tensor::dense(list.data, DType::i32, {rows, kPlaces}, kDevice);
    a.mask = Tensor::dense(mask.data, DType::u32, {1, shape.rows, shape.words}, kDevice);
    if (summary) {
      a.any = Tensor::dense(any.data, DType::u32, {1, (shape.rows + 127) / 128, (shape.words + 127) / 128},
                            kDevice);
      a.all = Tensor::dense(all.data, DType::u32, {1, (shape.rows + 127) / 128, (shape.words + 127) / 128},
                            kDevice);
    }
    const auto ours = planned_call(a, workspace_);
    const double floor = (rows * kPlaces * 4.0 + shape.rows * shape.words * 4.0) / copy_per_us_;
    Result r{"packed_mask " + std::to_string(rows) + " x " + std::to_string(keys) +
                 (summary ? " with summary" : ""),
             clock_.microseconds(ours, false),
             clock_.microseconds(ours, true),
             floor,
             0,
             target};
    if (!summary)
      r.peer_warm = clock_.microseconds(
          [&](gpu::StreamHandle s) {
            check(gpu::fill_bytes(mask.data, 0, mask.bytes, s));
            naive_scatter_kernel<<<static_cast<unsigned>(rows), 256, 0, s>>>(
                static_cast<int*>(list.data), kPlaces, static_cast<unsigned*>(mask.data), shape.words);
          },
          false);
    results_.push_back(r);
  }

  // Random scores: a mask leaves little of them.
  void refill() {
    std::vector<float> values(std::size_t{1} << 22);
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    for (float& v : values) v = 4.f - 12.f * std::abs(normal(random)) + 2.f * normal(random);
    const std::size_t bytes = values.size() * 4;
    for (std::size_t at = 0; at < scores_.bytes; at += bytes)
      check(gpu::copy_to_device(static_cast<char*>(scores_.data) + at, values.data(),
                                std::min(bytes, scores_.bytes - at)));
  }

  void trial(const char* label, const gpu::Tuning& t, const std::function<void()>& body) {
    gpu::tuning_on_trial = &t;
    const std::size_t first = results_.size();
    body();
    for (std::size_t i = first; i < results_.size(); ++i) results_[i].name += std::string(" [") + label + "]";
    gpu::tuning_on_trial = nullptr;
  }

  void write(const char* path) {
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) std::perror(path), std::exit(1);
    std::fprintf(
        file, "{\n  \"commit\": \"%s\",\n  \"device\": {\"architecture\": %d, \"processors\": %d},\n",
        KEYSIEVE_COMMIT, gpu::device_facts(kDevice).architecture, gpu::device_facts(kDevice).processors);
    std::fprintf(file,
                 "  \"unit\": \"us, median of graph replays\",\n  \"empty_kernel\": %.2f,\n  "
                 "\"copy_tb_per_s\": %.3f,\n  \"fill_tb_per_s\": %.3f,\n  \"results\": [\n",
                 empty_, copy_per_us_ / 1e6, fill_per_us_ / 1e6);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const Result& r = results_[i];
      std::fprintf(file,
                   "    {\"name\": \"%s\", \"warm\": %.2f, \"cold\": %.2f, \"floor\": %.2f, \"naive_warm\": "
                   "%.2f, \"target\": %.1f}%s\n",
                   r.name.c_str(), r.warm, r.cold, r.floor, r.peer_warm, r.target,
                   i + 1 < results_.size() ? "," : "");
      std::printf("%-62s warm %8.2f cold %8.2f floor %7.2f naive %8.2f target %6.1f\n", r.name.c_str(),
                  r.warm, r.cold, r.floor, r.peer_warm, r.target);
    }
    std::fprintf(file, "  ]\n}\n");
    std::fclose(file);
    std::printf("empty kernel %.2f us, copy %.2f TB/s, fill %.2f TB/s\n", empty_, copy_per_us_ / 1e6,
                fill_per_us_ / 1e6);
  }

 private:
  static constexpr std::int64_t kWidth = 1048576, kPlaces = 2048;
  Clock clock_;
  Memory workspace_, scores_;
  double copy_per_us_ = 1, fill_per_us_ = 1, empty_ = 0;
  std::vector<Result> results_;
};

}  // namespace
}  // namespace keysieve::bench

int main(int argc, char** argv) {
  using namespace keysieve::bench;
  using namespace keysieve;
  if (const char* refusal = gpu::device_refusal(kDevice)) {
    std::printf("gpu_selection_bench: skipped, %s\n", refusal);
    return 77;
  }
  const std::string what = argc > 2 ? argv[2] : "all";
  const auto wanted = [&](const char* part) { return what == "all" || what == part; };
  Bench bench;
  if (what == "one") {  // for a profiler
    bench.blocks(6, 131072, 14);
    return 0;
  }
  if (wanted("blocks")) {
    bench.blocks(96, 131072, 30);
    bench.blocks(24, 131072, 0);
    bench.blocks(6, 131072, 14);
    bench.blocks(96, 1048576, 0);
    bench.blocks(6, 1048576, 0);
    bench.blocks(6, 131072, 0, CandidateOrder::by_score);
  }
  const gpu::Tuning base = gpu::tuning(gpu::device_facts(kDevice).architecture);
  if (what == "blocks-trials") {
    for (const int parts : {16, 64})
      for (const int cached : {16384, 32768}) {
        gpu::Tuning t = base;
        t.maxima_max_parts = parts;
        t.select_cached_keys = cached;
        bench.trial(("maxima " + std::to_string(parts) + ", cached " + std::to_string(cached)).c_str(), t,
                    [&] { bench.blocks(96, 131072, 30), bench.blocks(6, 131072, 14); });
      }
  }
  if (wanted("packed")) {
    bench.packed(256, 2048, false, 6);
    bench.packed(1024, 8192, false, 9);
    bench.packed(4096, 32768, false, 20);
    bench.packed(4096, 32768, true, 0);
  }
  if (what == "packed-trials") {
    for (const int for_128 : {1, 2, 4, 8})
      for (const int for_64 : {8, 16, 1000}) {
        gpu::Tuning t = base;
        t.packed_rows_for_128 = for_128;
        t.packed_rows_for_64 = for_64;
        bench.trial(("128 from " + std::to_string(for_128) + ", 64 from " + std::to_string(for_64)).c_str(),
                    t, [&] {
                      bench.packed(256, 2048, false, 6);
                      bench.packed(1024, 8192, false, 9);
                      bench.packed(4096, 32768, false, 20);
                    });
      }
  }
  if (wanted("masks")) {
    bench.mask(96, 131072, WriteRange::live, 17, true);
    bench.mask(24, 131072, WriteRange::live, 8, true);
    bench.mask(6, 131072, WriteRange::live, 6, true);
    bench.mask(96, 1048576, WriteRange::full, 150, true);
    for (std::int64_t live = 1024; live <= 1048576; live *= 2)
      bench.mask(96, live, WriteRange::live, 0, false);
  }
  if (what == "masks-trials") {
    for (const int blocks : {2, 3, 4, 6, 8})
      for (const int parts : {22, 44}) {
        gpu::Tuning t = base;
        t.mask_blocks_per_processor = blocks;
        t.mask_max_parts = parts;
        bench.trial((std::to_string(blocks) + " a processor, " + std::to_string(parts) + " a row").c_str(), t,
                    [&] {
                      for (const int rows : {96, 24, 6}) bench.mask(rows, 131072, WriteRange::live, 0, false);
                      bench.mask(96, 1024, WriteRange::live, 0, false);
                      bench.mask(96, 1048576, WriteRange::full, 150, false);
                    });
      }
  }
  bench.write(argc > 1 ? argv[1] : "selection.json");
  return 0;
}

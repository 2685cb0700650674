// What only devices have: the plan of a top-k, which must not show in its result.
#include "contract/topk.hpp"

#include <gtest/gtest.h>

#include "gpu/device.hpp"
#include "gpu/kernels.hpp"
#include "support/device_parity.hpp"
#include "support/families.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

struct PlannedCall {
  std::int64_t rows, width, k;
  TensorBox scores, start, end, out, values, counts;

  PlannedCall(Family family, DType dtype, std::int64_t r, std::int64_t w, std::int64_t n)
      : rows(r),
        width(w),
        k(n),
        scores(dtype, {r, w}, 1),
        start(DType::i32, {r}),
        end(DType::i64, {r}),
        out(DType::i32, {r, n}),
        values(DType::f32, {r, n}),
        counts(DType::i32, {r}) {
    const std::vector<float> data = make_scores(family, r * w, static_cast<std::uint64_t>(w + n));
    scores.fill([&](std::int64_t i, std::int64_t j) { return data[static_cast<std::size_t>(i * w + j)]; });
    start.fill([](std::int64_t i, std::int64_t) { return 3 * i; });
    end.fill([&](std::int64_t i, std::int64_t) { return i == 1 ? w / 3 : w - i; });
  }
  TopkArgs args() {
    TopkArgs a;
    a.scores = scores.tensor();
    a.bounds.start = start.tensor();
    a.bounds.end = end.tensor();
    a.k = k;
    a.out = out.tensor();
    a.values = values.tensor();
    a.counts = counts.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&scores, &start, &end, &out, &values, &counts}; }
};

// A row in 1 to 32 parts: held in registers, listed behind a good or a bad threshold, or joined from lists that
// run full.
TEST(TopkPlan, ThePartsOfARowDoNotShow) {
  constexpr std::size_t kWorkspace = std::size_t{8} << 20;
  void* workspace = nullptr;
  ASSERT_EQ(gpu::allocate(&workspace, kWorkspace), gpu::kSuccess);
  for (const Family family : all_families()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t width : {9001, 70000, 150000}) {
        for (const std::int64_t k : {1, 512, 2048}) {
          PlannedCall expected(family, dtype, 3, width, k);
          ASSERT_TRUE(run_with(expected.args(), "reference").ok());
          for (const std::uint32_t parts : {1u, 2u, 5u, 16u, 32u}) {
            PlannedCall got(family, dtype, 3, width, k);
            DeviceCall<TopkArgs> call(*device_harness, got.args(), got.boxes());
            ASSERT_TRUE(call.plan_for("cuda.topk.stream").ok());
            call.upload(got.boxes());
            ASSERT_EQ(gpu::fill_bytes(workspace, 0xA7, kWorkspace), gpu::kSuccess);
            ASSERT_LE(gpu::TopkStream::workspace_bytes_in_parts(call.args(), parts), kWorkspace);
            const Launch launch{
                {workspace, kWorkspace}, nullptr, 1, device_harness->stream(), {DeviceType::cuda, 0}};
            const Status ran = gpu::TopkStream::run_in_parts(call.args(), launch, parts);
            ASSERT_TRUE(ran.ok()) << ran.message();
            ASSERT_EQ(device_harness->finish(), "");
            call.download(got.boxes());
            SameBytes{}(family_name(family) + ", " + std::to_string(parts) + " parts, width " +
                            std::to_string(width) + ", k " + std::to_string(k),
                        expected.boxes(), got.boxes());
          }
        }
      }
    }
  }
  (void)gpu::release(workspace);
}

// Great scores where topk_filter.cuh looks for its threshold, fewer than k of them: they make a threshold that too few
// elements reach.
TEST(TopkPlan, AMisleadingSampleIsRepaired) {
  constexpr std::int64_t kWidth = 70000, kSelected = 512, kThreads = 1024, kTurns = 2;
  const auto make = [&] {
    PlannedCall call(Family::random, DType::f32, 1, kWidth, kSelected);
    call.start.fill([](std::int64_t, std::int64_t) { return 0; });
    call.end.fill([&](std::int64_t, std::int64_t) { return kWidth; });
    const float step = static_cast<float>(kWidth / 4) / static_cast<float>(kThreads / 2 * kTurns);
    for (std::uint32_t spot = 0; spot < 496; spot += 8) {  // a thread's other spot is 512 further
      const float jitter = static_cast<float>(spot * 0x9e3779b9u >> 8) * 0x1p-24f;
      const auto vector =
          static_cast<std::int64_t>((static_cast<float>(spot) + jitter) * step) & ~std::int64_t{1};
      for (std::int64_t j = 0; j < 8; ++j) call.scores.set(100. + static_cast<double>(j), 0, vector * 4 + j);
    }
    return call;
  };
  PlannedCall expected = make();
  ASSERT_TRUE(run_with(expected.args(), "reference").ok());
  constexpr std::size_t kWorkspace = std::size_t{1} << 20;
  void* workspace = nullptr;
  ASSERT_EQ(gpu::allocate(&workspace, kWorkspace), gpu::kSuccess);
  for (const std::uint32_t parts : {1u, 8u}) {
    PlannedCall got = make();
    DeviceCall<TopkArgs> call(*device_harness, got.args(), got.boxes());
    ASSERT_TRUE(call.plan_for("cuda.topk.stream").ok());
    call.upload(got.boxes());
    const Launch launch{{workspace, kWorkspace}, nullptr, 1, device_harness->stream(), {DeviceType::cuda, 0}};
    ASSERT_TRUE(gpu::TopkStream::run_in_parts(call.args(), launch, parts).ok());
    ASSERT_EQ(device_harness->finish(), "");
    call.download(got.boxes());
    SameBytes{}(std::to_string(parts) + " parts", expected.boxes(), got.boxes());
  }
  (void)gpu::release(workspace);
}

// A device that is not there counts as one with 48 KiB a thread block. On real ones of compute capability 8.x the
// largest lists do not fit either, and a launch would fail.
TEST(TopkPlan, ListsThatDoNotFitAreRefused) {
  constexpr Device kNowhere{DeviceType::cuda, 1000};
  TopkArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {2, 16384}, kNowhere);
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {2}, kNowhere);
  const auto take = [&](std::int64_t k) {
    a.k = k;
    a.out = Tensor::dense(nullptr, DType::i32, {2, k}, kNowhere);
  };
  take(512);
  EXPECT_EQ(gpu::TopkHeld::refuses(a), nullptr);
  take(4096);
  a.order = TopkOrder::by_score;
  EXPECT_NE(gpu::TopkHeld::refuses(a), nullptr);
  take(512);
  a.order = TopkOrder::ascending_column;
  a.candidates = Tensor::dense(nullptr, DType::i32, {2, 2048}, kNowhere);
  EXPECT_NE(gpu::TopkHeld::refuses(a), nullptr);
  EXPECT_EQ(gpu::TopkRadix::refuses(a), nullptr);
}

}  // namespace
}  // namespace keysieve::test

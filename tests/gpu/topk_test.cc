// What only devices have: the plan of a top-k, which must not show in its result.
#include "contract/topk.hpp"

#include <gtest/gtest.h>

#include "cuda/sm90/topk_cluster.hpp"
#include "gpu/device.hpp"
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

// A row in 1 to 16 parts, from registers and streamed, guessed right, repaired or passed over three times.
TEST(TopkPlan, ThePartsOfARowDoNotShow) {
  if (gpu::device_facts({DeviceType::cuda, 0}).architecture < 90) GTEST_SKIP() << "no thread block clusters";
  for (const Family family : all_families()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t width : {9001, 70000}) {
        for (const std::int64_t k : {1, 512, 2048}) {
          PlannedCall expected(family, dtype, 3, width, k);
          ASSERT_TRUE(run_with(expected.args(), "reference").ok());
          for (const std::uint32_t parts : {1u, 2u, 4u, 8u, 16u}) {
            PlannedCall got(family, dtype, 3, width, k);
            DeviceCall<TopkArgs> call(*device_harness, got.args(), got.boxes());
            ASSERT_TRUE(call.plan_for("cuda.topk.select").ok());
            call.upload(got.boxes());
            const Launch launch{{}, nullptr, 1, device_harness->stream(), {DeviceType::cuda, 0}};
            const Status ran = cuda::TopkCluster::run_in_parts(call.args(), launch, parts);
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
}

}  // namespace
}  // namespace keysieve::test

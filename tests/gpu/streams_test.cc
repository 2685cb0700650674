// Calls on several streams at once, and graphs of several streams replayed at once, share no hidden state: each
// leaves what it leaves alone.
#include <gtest/gtest.h>

#include <memory>

#include "calls.hpp"
#include "harness.hpp"

namespace keysieve::test {
namespace {

constexpr int kStreams = 6;
constexpr int kRounds = 20;  // of one call on each stream, without waiting between them

template <class Bundle>
struct Lane {
  std::unique_ptr<Harness> harness = std::make_unique<Harness>();
  Bundle data, expected;
  std::unique_ptr<DeviceCall<decltype(std::declval<Bundle>().args())>> call;
  void* stream = nullptr;
};

template <class MakeCall>
void expect_independent(MakeCall&& make_call) {
  using Bundle = decltype(make_call(0));
  for (const std::string& kernel : device_kernels(make_call(0).args())) {
    std::vector<Lane<Bundle>> lanes(kStreams);
    for (int i = 0; i < kStreams; ++i) {
      Lane<Bundle>& lane = lanes[static_cast<std::size_t>(i)];
      lane.data = make_call(i % 5);
      lane.expected = lane.data;
      // In-place calls come to rest after the first round.
      ASSERT_TRUE(run_with(lane.expected.args(), "reference").ok());
      using Call = DeviceCall<decltype(lane.data.args())>;
      lane.call = std::make_unique<Call>(*lane.harness, lane.data.args(), lane.data.boxes());
      const Status planned = lane.call->plan_for(kernel.c_str());
      ASSERT_TRUE(planned.ok()) << planned.message();
      lane.stream = lane.harness->stream();
    }
    const auto prepare = [&] {
      for (Lane<Bundle>& lane : lanes) lane.call->upload(lane.data.boxes());
      for (Lane<Bundle>& lane : lanes) lane.harness->stream();  // waits for the copies
    };
    const auto judge = [&](const char* what) {
      for (Lane<Bundle>& lane : lanes) ASSERT_EQ(lane.harness->finish(), "") << kernel << what;
      for (Lane<Bundle>& lane : lanes) {
        Bundle got = lane.data;
        lane.call->download(got.boxes());
        SameBytes{}(kernel + what + std::to_string(&lane - lanes.data()), lane.expected.boxes(), got.boxes());
      }
    };
    prepare();
    for (int round = 0; round < kRounds; ++round)
      for (Lane<Bundle>& lane : lanes) ASSERT_TRUE(lane.call->enqueue_on(lane.stream).ok());
    judge(", stream ");
    for (Lane<Bundle>& lane : lanes) {
      lane.harness->begin_capture();
      ASSERT_TRUE(lane.call->enqueue_on(lane.stream).ok());
      lane.harness->end_capture();
    }
    prepare();
    for (int round = 0; round < kRounds; ++round)
      for (Lane<Bundle>& lane : lanes) lane.harness->replay_now();
    judge(", graph ");
  }
}

constexpr Shape kShape{70000, 1, 8, 1, 2048, DType::f32, DType::i32};

TEST(Streams, CandidateMask) {
  expect_independent([](int variant) { return make<MaskCall>(kShape, variant); });
}
TEST(Streams, CandidateBlocks) {
  expect_independent([](int variant) { return make<BlocksCall>(kShape, variant); });
}
TEST(Streams, Topk) {
  expect_independent([](int variant) { return make_topk_call(false, variant); });
}
TEST(Streams, TopkInParts) {
  expect_independent([](int variant) { return make_topk_call(false, variant, 140000); });
}
TEST(Streams, TopkOfCandidates) {
  expect_independent([](int variant) { return make_topk_call(true, variant); });
}
TEST(Streams, Translate) { expect_independent(make_translate_call); }
TEST(Streams, PackedMask) { expect_independent(make_packed_mask_call); }
TEST(Streams, MaskIndices) { expect_independent(make_mask_indices_call); }

}  // namespace
}  // namespace keysieve::test

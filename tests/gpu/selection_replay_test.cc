// One captured graph must serve every later length, candidate list, page table and score: shapes alone may be in
// it.
#include <gtest/gtest.h>

#include "calls.hpp"

namespace keysieve::test {
namespace {

// make_call(variant) for each of five variants, in one graph.
template <class MakeCall>
void expect_replays(MakeCall&& make_call) {
  std::vector<decltype(make_call(0))> bundles, expected;
  for (int variant = 0; variant < 5; ++variant) {
    bundles.push_back(make_call(variant));
    expected.push_back(bundles.back());
    ASSERT_TRUE(run_with(expected.back().args(), "reference").ok());
  }
  expect_device_replays(*device_harness, bundles, expected, SameBytes{});
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const std::int64_t column_stride : {1, 2})
    for (const std::int64_t row_repeat : {1, 3})
      for (const std::int64_t block_size : {8, 16})
        all.push_back({8192, row_repeat, block_size, column_stride, 300,
                       block_size == 8 ? DType::f32 : DType::bf16,
                       row_repeat == 1 ? DType::i64 : DType::i32});
  all.push_back({262144, 1, 8, 1, 2048, DType::f32, DType::i32});
  all.push_back({262144, 1, 16, 1, 512, DType::bf16, DType::i64});
  all.push_back({9000, 1, 1, 1, 3000, DType::f32, DType::i32});
  all.push_back({9000, 1, 3, 1, 5000, DType::f32, DType::i32});
  all.push_back({9000, 1, 20000, 1, 2, DType::f32, DType::i32});
  return all;
}

TEST(SelectionReplay, CandidateMask) {
  for (const Shape& s : shapes())
    for (const WriteRange range : {WriteRange::full, WriteRange::live, WriteRange::window}) {
      SCOPED_TRACE("width " + std::to_string(s.width) + " block " + std::to_string(s.block_size));
      expect_replays([&](int variant) {
        auto c = make<MaskCall>(s, variant);
        c.mask.write_range = range;
        c.mask.edge = s.row_repeat == 1;
        return c;
      });
    }
}

TEST(SelectionReplay, CandidateBlocks) {
  for (const Shape& s : shapes())
    for (const CandidateOrder order : {CandidateOrder::ascending_id, CandidateOrder::by_score}) {
      SCOPED_TRACE("width " + std::to_string(s.width) + " block " + std::to_string(s.block_size));
      expect_replays([&](int variant) {
        auto c = make<BlocksCall>(s, variant);
        c.blocks.order = order;
        return c;
      });
    }
}

TEST(SelectionReplay, Topk) {
  expect_replays([](int variant) { return make_topk_call(false, variant); });
}
// Rows that several thread blocks share, and shorter ones among them.
TEST(SelectionReplay, TopkInParts) {
  expect_replays([](int variant) { return make_topk_call(false, variant, 140000); });
}
TEST(SelectionReplay, TopkOfCandidates) {
  expect_replays([](int variant) { return make_topk_call(true, variant); });
}
TEST(SelectionReplay, Translate) { expect_replays(make_translate_call); }
TEST(SelectionReplay, PackedMask) { expect_replays(make_packed_mask_call); }
TEST(SelectionReplay, MaskIndices) { expect_replays(make_mask_indices_call); }

}  // namespace
}  // namespace keysieve::test

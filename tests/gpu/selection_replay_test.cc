// One captured graph must serve every later length, candidate list and score: shapes alone may be in it.
#include <gtest/gtest.h>

#include "support/families.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

struct Call {
  TensorBox scores, start, end, candidates;
  CandidateMaskArgs mask;
  CandidateBlocksArgs blocks;
};

struct MaskCall : Call {
  CandidateMaskArgs args() {
    CandidateMaskArgs a = mask;
    a.scores = scores.tensor();
    a.bounds.start = start.tensor();
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&scores, &start, &end, &candidates}; }
};

struct BlocksCall : Call {
  CandidateBlocksArgs args() {
    CandidateBlocksArgs a = blocks;
    a.scores = scores.tensor();
    a.bounds.start = start.tensor();
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&scores, &start, &end, &candidates}; }
};

struct Shape {
  std::int64_t width, row_repeat, block_size, column_stride, places;
  DType dtype, bounds;
};

// Ends: nothing, all, and both sides of every border that a tile could have.
std::vector<std::int64_t> ends(std::int64_t width, int variant) {
  const std::vector<std::int64_t> all = {
      0,  1,         1023, 1024,  1025, width / 2, width - 1,    width,         width + 100000,
      -5, width / 3, 8,    width, 0,    4096,      width - 1024, width / 2 + 3, 2048};
  std::vector<std::int64_t> picked;
  for (int i = 0; i < 4; ++i) picked.push_back(all[static_cast<std::size_t>(variant * 4 + i) % all.size()]);
  return picked;
}

template <class Bundle>
Bundle make(const Shape& s, int variant) {
  const std::int64_t entries = 4, rows = entries * s.row_repeat;
  Bundle call;
  call.scores = TensorBox(s.dtype, {rows, s.width}, 3, s.column_stride, variant == 9 ? 1 : 0);
  call.start = TensorBox(s.bounds, {entries});
  call.end = TensorBox(s.bounds, {entries});
  call.candidates = TensorBox(DType::i32, {rows, s.places}, 1);
  const std::vector<float> values =
      make_scores(variant % 2 == 0 ? Family::learned_like : Family::ties, rows * s.width, 17 + variant);
  call.scores.fill([&](auto i, auto j) { return values[static_cast<std::size_t>(i * s.width + j)]; });
  const std::int64_t starts[] = {0, 3, 7, 1024};
  const std::vector<std::int64_t> last = ends(s.width, variant);
  call.start.fill([&](auto i, auto) { return starts[(i + variant) % 4]; });
  call.end.fill([&](auto i, auto) { return last[static_cast<std::size_t>(i)]; });
  call.candidates.fill([&](auto i, auto j) {
    if (variant == 1) return std::int64_t{-1};
    if (j % 11 == 3) return std::int64_t{-1};
    if (j % 13 == 5) return s.width / s.block_size + j;  // past the width
    return (i * 31 + j * 7) % (s.width / s.block_size + 2);
  });
  call.mask.block_size = s.block_size;
  call.mask.bounds.row_repeat = s.row_repeat;
  call.blocks.block_size = s.block_size;
  call.blocks.bounds.row_repeat = s.row_repeat;
  return call;
}

template <class Bundle, class Change>
void expect_replays(const Shape& s, Change&& change) {
  std::vector<Bundle> bundles, expected;
  for (int variant = 0; variant < 5; ++variant) {
    bundles.push_back(make<Bundle>(s, variant));
    change(bundles.back());
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
      expect_replays<MaskCall>(s, [&](MaskCall& c) {
        c.mask.write_range = range;
        c.mask.edge = s.row_repeat == 1;
      });
    }
}

TEST(SelectionReplay, CandidateBlocks) {
  for (const Shape& s : shapes())
    for (const CandidateOrder order : {CandidateOrder::ascending_id, CandidateOrder::by_score}) {
      SCOPED_TRACE("width " + std::to_string(s.width) + " block " + std::to_string(s.block_size));
      expect_replays<BlocksCall>(s, [&](BlocksCall& c) { c.blocks.order = order; });
    }
}

}  // namespace
}  // namespace keysieve::test

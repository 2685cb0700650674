// The kept rules of candidate_blocks: BLK-07 .. BLK-13, and the failures seen in the field.
#include "keysieve/candidate_blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "support/address_space.hpp"
#include "support/families.hpp"
#include "support/learned.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr NanPolicy kPolicies[] = {NanPolicy::keep, NanPolicy::drop, NanPolicy::ignore};
constexpr CandidateOrder kOrders[] = {CandidateOrder::ascending_id, CandidateOrder::by_score};

struct BlocksCall {
  TensorBox scores, start, end, candidates;
  CandidateBlocksArgs extra;

  CandidateBlocksArgs args() {
    CandidateBlocksArgs a = extra;
    a.scores = scores.tensor();
    a.bounds.start = start.tensor();
    if (start.bytes().empty()) a.bounds.start = {};
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&scores, &start, &end, &candidates}; }
};

struct Seed {
  std::int64_t width;
  std::int64_t places;
  Family family = Family::random;
  std::int64_t block_size = 8;
  DType dtype = DType::f32;
  std::vector<std::int64_t> starts{0};
  std::vector<std::int64_t> ends{};  // empty: the seven edges of a width and 0
  std::int64_t row_repeat = 1;
  std::int64_t column_stride = 1;
  DType bounds_dtype = DType::i32;
};

// Outside its bounds a row holds what must not count: NaN, +inf and 1e30.
BlocksCall make_call(const Seed& seed) {
  const std::int64_t w = seed.width;
  std::vector<std::int64_t> ends = seed.ends, entry_starts, entry_ends;
  if (ends.empty()) ends = {0, 1, 1023, 1024, 1025, w / 2, w - 1, w};
  for (const std::int64_t start : seed.starts)
    for (const std::int64_t end : ends) {
      entry_starts.push_back(start);
      entry_ends.push_back(end);
    }
  const auto entries = static_cast<std::int64_t>(entry_ends.size());
  const std::int64_t rows = entries * seed.row_repeat;
  BlocksCall call{TensorBox(seed.dtype, {rows, w}, 3, seed.column_stride, 1),
                  TensorBox(seed.bounds_dtype, {entries}, 0, 2),
                  TensorBox(seed.bounds_dtype, {entries}, 0, 3),
                  TensorBox(DType::i32, {rows, seed.places}, 1, seed.column_stride),
                  {}};
  call.start.fill([&](auto i, auto) { return entry_starts[static_cast<std::size_t>(i)]; });
  call.end.fill([&](auto i, auto) { return entry_ends[static_cast<std::size_t>(i)]; });
  const std::vector<float> values = make_scores(seed.family, w + 64, static_cast<std::uint64_t>(w));
  call.scores.fill([&](auto i, auto j) {
    const auto entry = static_cast<std::size_t>(i / seed.row_repeat);
    const bool visible = j >= entry_starts[entry] && j < entry_ends[entry];
    if (!visible) return j % 3 == 0 ? kNan : j % 3 == 1 ? kInfinity : 1e30f;
    return values[static_cast<std::size_t>(j + i % 64)];
  });
  call.candidates.fill([](auto, auto) { return 123456; });
  call.extra.bounds.row_repeat = seed.row_repeat;
  call.extra.block_size = seed.block_size;
  return call;
}

void expect_all_rules(const Seed& seed) {
  const BlocksCall call = make_call(seed);
  for (const NanPolicy policy : kPolicies)
    for (const CandidateOrder order : kOrders)
      expect_parity([&] {
        BlocksCall one = call;
        one.extra.nan = policy;
        one.extra.order = order;
        return one;
      });
}

// BLK-07 .. BLK-12 at every block size that has a path of its own (1, 2, 4, 8, 16), one that is scalar (3)
// and ones of whole vectors and a rest (24, 100).
TEST(CandidateBlocks, MatchesReferenceOnSmallWidths) {
  for (const Family family : {Family::nan, Family::infinities, Family::ties, Family::signed_zeros})
    for (const std::int64_t block_size : {1, 2, 3, 4, 8, 16, 24, 100})
      for (const std::int64_t places : {1, 5, 40})
        expect_all_rules({.width = 300,
                          .places = places,
                          .family = family,
                          .block_size = block_size,
                          .dtype = places == 5 ? DType::bf16 : DType::f32,
                          .starts = {0, 3, 300},
                          .ends = {300, 0, -3, 150, 309, 1, 4, 12, 20, 299},
                          .column_stride = places == 40 ? 2 : 1});
}

TEST(CandidateBlocks, MatchesReferenceOnEveryFamily) {
  for (const Family family : all_families()) {
    expect_all_rules(
        {.width = 5000, .places = 64, .family = family, .starts = {7}, .ends = {5000, 4096, 40}});
    expect_all_rules({.width = 40000, .places = 700, .family = family, .ends = {40000}});
  }
}

TEST(CandidateBlocks, MatchesReferenceOverTheSeedMatrix) {
  for (const std::int64_t row_repeat : {1, 3})
    for (const std::int64_t block_size : {8, 16})
      for (const std::int64_t column_stride : {1, 2}) {
        const BlocksCall call = make_call({.width = 8192,
                                           .places = 128,
                                           .family = Family::learned_like,
                                           .block_size = block_size,
                                           .dtype = column_stride == 1 ? DType::f32 : DType::bf16,
                                           .starts = {0, 3, 7, 1024},
                                           .row_repeat = row_repeat,
                                           .column_stride = column_stride,
                                           .bounds_dtype = row_repeat == 1 ? DType::i64 : DType::i32});
        expect_parity([&] { return call; });
      }
}

TEST(CandidateBlocks, MatchesReferenceOnWideRows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const BlocksCall call = make_call({.width = 262144,
                                       .places = 2048,
                                       .family = Family::learned_like,
                                       .dtype = dtype,
                                       .starts = {3},
                                       .ends = {262144, 131072, 17000}});
    expect_parity([&] { return call; });
  }
}

TEST(CandidateBlocks, MatchesReferenceOnLengths) {
  for (const std::int64_t ratio : {1, 4}) {
    BlocksCall call = make_call(
        {.width = 600, .places = 20, .family = Family::ties, .ends = {600, 600, 600, 600}, .row_repeat = 3});
    call.start = {};
    call.end.fill([](auto i, auto) { return i * 700 - 2; });
    call.extra.bounds = {};
    call.extra.bounds.form = BoundsForm::lengths;
    call.extra.bounds.next_n = 3;
    call.extra.bounds.ratio = ratio;
    expect_parity([&] { return call; });
  }
}

TEST(CandidateBlocks, NothingToDoIsLegal) {
  for (const auto& [rows, width, places] : {std::tuple{0, 8, 2}, {3, 0, 2}, {3, 20, 0}}) {
    BlocksCall call{TensorBox(DType::f32, {rows, width}),
                    {},
                    TensorBox(DType::i32, {rows}),
                    TensorBox(DType::i32, {rows, places}),
                    {}};
    call.scores.fill([](auto, auto) { return 1; });
    call.end.fill([](auto i, auto) { return i * 9; });
    expect_parity([&] { return call; });
  }
}

// Runs one row on every cpu kernel and on the reference, and returns the list, the same everywhere.
std::vector<std::int32_t> select(const std::vector<float>& scores, std::int64_t places,
                                 const CandidateBlocksArgs& options, std::int64_t start = 0) {
  BlocksCall call{TensorBox(DType::f32, {1, static_cast<std::int64_t>(scores.size())}),
                  TensorBox::of<std::int64_t>(DType::i32, {start}),
                  TensorBox::of<std::int64_t>(DType::i32, {static_cast<std::int64_t>(scores.size())}),
                  TensorBox(DType::i32, {1, places}), options};
  call.scores.fill([&](auto, auto j) { return scores[static_cast<std::size_t>(j)]; });
  expect_parity([&] { return call; });
  EXPECT_TRUE(run_with(call.args(), "cpu").ok());
  std::vector<std::int32_t> list;
  for (std::int64_t i = 0; i < places; ++i) list.push_back(call.candidates.at<std::int32_t>(0, i));
  return list;
}

using List = std::vector<std::int32_t>;

CandidateBlocksArgs blocks_of(std::int64_t block_size, NanPolicy nan = NanPolicy::keep,
                              CandidateOrder order = CandidateOrder::ascending_id) {
  CandidateBlocksArgs a;
  a.block_size = block_size;
  a.nan = nan;
  a.order = order;
  return a;
}

// BLK-08: the block of the newest key stays, whatever it and the others hold.
TEST(CandidateBlocks, NewestBlockIsAlwaysKept) {
  const CandidateBlocksArgs two = blocks_of(2);
  EXPECT_EQ(select({kNan, 1, kInfinity, 2, -5, -5}, 1, two), List({2}));
  EXPECT_EQ(select({kNan, 1, kInfinity, 2, -kInfinity}, 2, two), List({0, 2}));
  EXPECT_EQ(select({7, 1, kInfinity, 2, kNan}, 2, blocks_of(2, NanPolicy::drop)), List({1, 2}));
  EXPECT_EQ(select({7, 1, 8, 2, kNan}, 2, blocks_of(2, NanPolicy::ignore)), List({1, 2}));
  // Blocks count from the row's start: with start 1 they are {1, 2}, {3, 4}, {5}.
  EXPECT_EQ(select({kNan, 1, 2, 9, 2, -4}, 2, two, 1), List({1, 2}));
}

// BLK-09: keep, drop and ignore.
TEST(CandidateBlocks, NanPolicies) {
  const std::vector<float> scores = {1, kNan, kInfinity, 2, -kNan, 3, 5, 5, 0, 0};
  EXPECT_EQ(select(scores, 3, blocks_of(2)), List({0, 2, 4}));
  EXPECT_EQ(select(scores, 3, blocks_of(2, NanPolicy::drop)), List({1, 3, 4}));
  EXPECT_EQ(select(scores, 5, blocks_of(2, NanPolicy::drop)), List({1, 3, 4, -1, -1}));
  EXPECT_EQ(select(scores, 4, blocks_of(2, NanPolicy::ignore)), List({1, 2, 3, 4}));
  EXPECT_EQ(select({kNan, kNan, 1, 1, 0, 0}, 4, blocks_of(2, NanPolicy::ignore)), List({1, 2, -1, -1}));
}

// BLK-10: -inf blocks are never taken, and equal scores go to the smaller id; -0 equals +0.
TEST(CandidateBlocks, MinusInfinityAndTies) {
  EXPECT_EQ(select({-kInfinity, -kInfinity, 1, -kInfinity, 3}, 5, blocks_of(2)), List({1, 2, -1, -1, -1}));
  EXPECT_EQ(select({-0.f, -0.f, 0.f, 0.f, -1, -1, -9, -9}, 2, blocks_of(2)), List({0, 3}));
  EXPECT_EQ(select({4, 4, 4, 4, 4, 4}, 3, blocks_of(1)), List({0, 1, 5}));
}

// BLK-11: NaN blocks, the newest, then the rest, even +inf.
TEST(CandidateBlocks, OrderByScore) {
  EXPECT_EQ(select({1, kInfinity, kNan, 7, kNan, kInfinity, 7, -2}, 8,
                   blocks_of(1, NanPolicy::keep, CandidateOrder::by_score)),
            List({2, 4, 7, 1, 5, 3, 6, 0}));
  EXPECT_EQ(select({1, 3, kNan}, 4, blocks_of(1, NanPolicy::keep, CandidateOrder::by_score)),
            List({2, 1, 0, -1}));
}

// BLK-12: a short row's unused places hold -1, and no id reaches past the row. The newest block is in the
// list although it is not whole: 11 keys in blocks of 4 are blocks 0, 1 and 2.
TEST(CandidateBlocksCases, H26_short_rows_leave_no_place_unwritten) {
  BlocksCall call = make_call({.width = 2048, .places = 512, .block_size = 4, .ends = {0, 3, 4, 11, 2047}});
  expect_parity([&] { return call; });
  ASSERT_TRUE(run_with(call.args(), "cpu").ok());
  const std::int64_t blocks[] = {0, 1, 1, 3, 512};
  for (std::int64_t row = 0; row < 5; ++row)
    for (std::int64_t i = 0; i < 512; ++i)
      EXPECT_EQ(call.candidates.at<std::int32_t>(row, i), i < blocks[row] ? i : -1) << row << " " << i;
}

// Ids past 20 bits keep their value and their rank.
TEST(CandidateBlocksCases, H67_more_blocks_than_20_bits_count) {
  constexpr std::int64_t kBlocks = (1 << 20) + 5;
  std::vector<float> scores(kBlocks, -1.f);
  scores[(1 << 20) + 3] = 7.f;
  EXPECT_EQ(select(scores, 2, blocks_of(1)), List({(1 << 20) + 3, (1 << 20) + 4}));
  scores[5] = kNan;
  EXPECT_EQ(select(scores, 2, blocks_of(1)), List({5, (1 << 20) + 4}));
  EXPECT_EQ(select(scores, 3, blocks_of(1, NanPolicy::drop, CandidateOrder::by_score)),
            List({(1 << 20) + 4, (1 << 20) + 3, 0}));
}

// A row's list does not depend on where it stands, on its neighbours or on the width.
TEST(CandidateBlocks, BatchAndWidthDoNotMatter) {
  const std::vector<float> scores = make_scores(Family::ties, 40000, 3);
  List alone;
  for (const auto& [rows, place, width] :
       {std::tuple{1, 0, 40000}, {64, 63, 40000}, {5, 2, 65536}, {2, 1, 262144}}) {
    BlocksCall call{TensorBox(DType::f32, {rows, width}),
                    {},
                    TensorBox(DType::i32, {rows}),
                    TensorBox(DType::i32, {rows, 2048}),
                    {}};
    for (std::int64_t c = 0; c < 40000; ++c)
      call.scores.at<float>(place, c) = scores[static_cast<std::size_t>(c)];
    call.end.fill([&, at = place](auto i, auto) { return i == at ? 40000 : i * 17; });
    ASSERT_TRUE(run_with(call.args(), "cpu", "", &two_threads()).ok());
    List list;
    for (std::int64_t i = 0; i < 2048; ++i) list.push_back(call.candidates.at<std::int32_t>(place, i));
    if (alone.empty()) alone = list;
    EXPECT_EQ(alone, list);
  }
}

// A short row of a buffer that is reserved for a million columns costs what a short buffer costs (BLK-13),
// and rows may lie more than 2^31 elements apart.
TEST(CandidateBlocks, CostFollowsTheLiveColumns) {
  const std::int64_t stride = (std::int64_t{1} << 31) + 64;
  AddressSpace memory(static_cast<std::size_t>(stride + (1 << 20)) * 4);
  if (memory.data() == nullptr) GTEST_SKIP() << "no 8 GB of address space";
  const auto scores = [&](std::int64_t width) {
    Tensor t = Tensor::dense(memory.data(), DType::f32, {2, width});
    t.stride[0] = stride;
    return t;
  };
  auto* row = static_cast<float*>(memory.data()) + stride;
  for (int c = 0; c < 10000; ++c) row[c] = static_cast<float>((c * 7919) % 10007);
  TensorBox end = TensorBox::of<int>(DType::i32, {10000, 10000}), candidates(DType::i32, {2, 64});
  const auto seconds = [&](std::int64_t width) {
    CandidateBlocksArgs a;
    a.scores = scores(width);
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    CandidateBlocksPlan p;
    EXPECT_TRUE(plan(a, {}, p).ok());
    GuardedWorkspace workspace(p.workspace_bytes);
    double best = 1;
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 10; ++i) EXPECT_TRUE(run(p, a, workspace.view(), {}).ok());
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  };
  const double narrow = seconds(10000), wide = seconds(1 << 20);
  if (kTimesCount) {
    EXPECT_LT(wide, 2 * narrow);
  }
  EXPECT_EQ(candidates.at<std::int32_t>(1, 63), 1249);
  EXPECT_EQ(candidates.at<std::int32_t>(0, 0), 0);
}

std::vector<std::int32_t> published_of(const std::int32_t* lists, std::int64_t row, std::int64_t places) {
  std::vector<std::int32_t> list(lists + row * places, lists + (row + 1) * places);
  std::erase_if(list, [](std::int32_t b) { return b < 0; });
  std::sort(list.begin(), list.end());
  return list;
}

// The model's own publisher: layer 2's float64 scores must give the candidates it published, where the gap
// between the last block taken and the best one left out exceeds its bf16 rounding.
TEST(CandidateBlocks, LearnedPublisher) {
  const LearnedFile file("prefill64_ctx12345");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  const auto scores = file.data<double>("layer2.expected_scores");
  const auto checked = file.data<std::int32_t>("checked_rows");
  const auto query_pos = file.data<std::int32_t>("query_pos");
  const auto published = file.data<std::int32_t>("candidate_blocks");
  constexpr std::int64_t kKeys = 12345, kPlaces = 256;
  BlocksCall call{TensorBox(DType::f32, {4, kKeys}),
                  {},
                  TensorBox(DType::i32, {4}),
                  TensorBox(DType::i32, {4, kPlaces}),
                  {}};
  call.scores.fill([&](auto i, auto j) { return scores[static_cast<std::size_t>(i * kKeys + j)]; });
  call.end.fill([&](auto i, auto) {
    return query_pos[static_cast<std::size_t>(checked[static_cast<std::size_t>(i)])] + 1;
  });
  const BlocksCall fresh = call;
  expect_parity([&] { return fresh; });
  ASSERT_TRUE(run_with(call.args(), "cpu").ok());
  int compared = 0;
  for (std::int64_t row = 0; row < 4; ++row) {
    const std::int64_t checked_row = checked[static_cast<std::size_t>(row)];
    const std::int64_t end = query_pos[static_cast<std::size_t>(checked_row)] + 1;
    std::vector<double> best(static_cast<std::size_t>((end + 7) / 8), -1e300);
    for (std::int64_t c = 0; c < end; ++c)
      best[static_cast<std::size_t>(c / 8)] =
          std::max(best[static_cast<std::size_t>(c / 8)], scores[static_cast<std::size_t>(row * kKeys + c)]);
    best.back() = 1e300;
    std::sort(best.rbegin(), best.rend());
    const List expected = published_of(published, checked_row, kPlaces);
    List got;
    for (std::int64_t i = 0; i < kPlaces; ++i) got.push_back(call.candidates.at<std::int32_t>(row, i));
    List differing;
    std::set_symmetric_difference(expected.begin(), expected.end(), got.begin(), got.end(),
                                  std::back_inserter(differing));
    const double gap = best[kPlaces - 1] - best[kPlaces];
    RecordProperty("row" + std::to_string(row),
                   std::to_string(gap) + ": " + std::to_string(differing.size()));
    if (gap < 1e-4) continue;
    EXPECT_TRUE(differing.empty()) << "row " << checked_row << ", gap " << gap << ", " << differing.size()
                                   << " differ";
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace keysieve::test

// The kept rules of packed_mask and mask_indices: PKM-33 .. PKM-39, and the failures seen in the field.
#include "keysieve/packed_mask.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "support/families.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kShortest = std::numeric_limits<std::int64_t>::min();

enum class Source { indices, candidates, scores };
constexpr Source kSources[] = {Source::indices, Source::candidates, Source::scores};

struct MaskBuild {
  TensorBox q_start, key_first, key_count, source, thresholds, start, end, mask, any, all;
  PackedMaskArgs extra;
  Source kind = Source::indices;

  PackedMaskArgs args() {
    const auto given = [](TensorBox& box) { return box.bytes().empty() ? Tensor{} : box.tensor(); };
    PackedMaskArgs a = extra;
    a.q_start = q_start.tensor();
    a.key_first = given(key_first);
    a.key_count = key_count.tensor();
    (kind == Source::indices      ? a.indices
     : kind == Source::candidates ? a.candidates
                                  : a.scores) = source.tensor();
    a.thresholds = given(thresholds);
    a.bounds.start = given(start);
    a.bounds.end = given(end);
    a.mask = mask.tensor();
    a.any = given(any);
    a.all = given(all);
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&q_start, &key_first, &key_count, &source, &thresholds, &start, &end, &mask, &any, &all};
  }
};

struct Plan {
  Source kind = Source::indices;
  std::vector<std::int64_t> q_start;
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> count;
  std::int64_t rows = 128, words = 8, tokens = 0, listed = 40;
  std::int64_t column_stride = 1, block_size = 8, width = 300;
  DType dtype = DType::f32;
  bool bounds = false, summary = true;
  DType starts = DType::i32;
};

MaskBuild make_build(const Plan& plan) {
  const auto requests = static_cast<std::int64_t>(plan.count.size());
  const std::int64_t strips = (plan.rows + 127) / 128, tile_words = (plan.words + 127) / 128;
  MaskBuild b;
  b.kind = plan.kind;
  b.q_start = TensorBox(plan.starts, {requests + 1}, 0, 2);
  b.q_start.fill([&](auto i, auto) { return plan.q_start[static_cast<std::size_t>(i)]; });
  b.key_count = TensorBox(DType::i64, {requests}, 0, 3);
  b.key_count.fill([&](auto i, auto) { return plan.count[static_cast<std::size_t>(i)]; });
  if (!plan.first.empty()) {
    b.key_first = TensorBox(DType::i64, {requests}, 0, 1);
    b.key_first.fill([&](auto i, auto) { return plan.first[static_cast<std::size_t>(i)]; });
  }
  std::mt19937_64 random(17);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  if (plan.kind == Source::scores) {
    b.source = TensorBox(plan.dtype, {plan.tokens, plan.width}, 5, plan.column_stride, 1);
    const std::vector<float> values = make_scores(Family::nan, 4099, 5);
    b.source.fill([&](auto i, auto j) { return values[static_cast<std::size_t>((i * 37 + j) % 4099)]; });
    b.thresholds = TensorBox(DType::f32, {plan.tokens}, 0, 2);
    b.thresholds.fill([&](auto i, auto) -> float {
      return i % 7 == 6   ? std::numeric_limits<float>::quiet_NaN()
             : i % 7 == 5 ? -std::numeric_limits<float>::infinity()
                          : static_cast<float>(i % 5) * 0.4f - 0.8f;
    });
  } else {
    b.source = TensorBox(DType::i32, {plan.tokens, plan.listed}, 3, plan.column_stride);
    const std::int64_t most = plan.words * 32 / (plan.kind == Source::indices ? 1 : plan.block_size) + 9;
    b.source.fill([&](auto i, auto j) -> std::int64_t {
      if (i % 9 == 4) return j;  // a full run: tiles without a gap
      switch (below(12)) {
        case 0:
          return -1 - below(3);
        case 1:
          return std::numeric_limits<std::int32_t>::max() - below(2);
        case 2:
          return std::numeric_limits<std::int32_t>::min();
        default:
          return below(most);
      }
    });
  }
  if (plan.bounds) {
    b.start = TensorBox(DType::i32, {plan.tokens});
    b.end = TensorBox(DType::i32, {plan.tokens});
    b.start.fill([&](auto i, auto) { return i % 11; });
    b.end.fill([&](auto i, auto) { return (i * 29) % (plan.width + 20) - 3; });
  }
  b.mask = TensorBox(DType::u32, {requests, plan.rows, plan.words}, 8);
  if (plan.summary) {
    b.any = TensorBox(DType::u32, {requests, strips, tile_words}, 1, 2);
    b.all = TensorBox(DType::i32, {requests, strips, tile_words}, 3);
  }
  b.extra.block_size = plan.block_size;
  return b;
}

void expect_build(const Plan& plan) {
  const MaskBuild build = make_build(plan);
  expect_parity([&] { return build; });
}

// PKM-33: a poisoned mask, its padding rows and words included. PKM-35, PKM-36, PKM-37, PKM-38: three
// sources, any key range.
TEST(PackedMask, MatchesReferenceOverKeyRanges) {
  for (const Source kind : kSources)
    for (const std::int64_t first : {0, 1, 8, 31, 32, 100, 255, 256, 1000, -1, -40})
      for (const std::int64_t count : {0, 1, 31, 32, 33, 129, 255, 256}) {
        SCOPED_TRACE(testing::Message() << int(kind) << " first " << first << " count " << count);
        expect_build({.kind = kind,
                      .q_start = {0, 9},
                      .first = {first},
                      .count = {count},
                      .rows = 128,
                      .words = 8,
                      .tokens = 9,
                      .bounds = first % 2 == 0 && kind != Source::indices});
      }
}

TEST(PackedMask, MatchesReferenceOverSources) {
  for (const Source kind : kSources)
    for (const std::int64_t column_stride : {1, 2})
      for (const std::int64_t block_size : {1, 3, 8, 16, 64})
        for (const DType dtype : {DType::f32, DType::bf16})
          for (const bool bounds : {false, true}) {
            if (kind == Source::indices && bounds) continue;
            expect_build({.kind = kind,
                          .q_start = {0, 3, 3, 20, 31},
                          .first = {0, 5, 64, 37},
                          .count = {300, 7, 129, 64},
                          .rows = 64,
                          .words = 12,
                          .tokens = 33,
                          .listed = 70,
                          .column_stride = column_stride,
                          .block_size = block_size,
                          .dtype = dtype,
                          .bounds = bounds,
                          .summary = block_size != 3,
                          .starts = block_size == 8 ? DType::i64 : DType::i32});
          }
}

// Rows that are not whole strips, more than 32 tiles, more than one strip.
TEST(PackedMask, MatchesReferenceOnManyTiles) {
  for (const Source kind : kSources)
    expect_build({.kind = kind,
                  .q_start = {0, 200, 330},
                  .first = {},
                  .count = {4500, 130},
                  .rows = 200,
                  .words = 144,
                  .tokens = 330,
                  .listed = 900,
                  .block_size = 8,
                  .width = 4500});
}

TEST(PackedMask, NothingToDoIsLegal) {
  expect_build({.q_start = {0}, .first = {}, .count = {}, .rows = 128, .words = 4, .tokens = 3});
  expect_build({.q_start = {0, 3}, .first = {}, .count = {5}, .rows = 0, .words = 4, .tokens = 3});
  expect_build({.q_start = {0, 3}, .first = {}, .count = {5}, .rows = 128, .words = 0, .tokens = 3});
  expect_build({.q_start = {0, 0}, .first = {}, .count = {5}, .rows = 128, .words = 4, .tokens = 0});
  expect_build(
      {.q_start = {0, 3}, .first = {}, .count = {5}, .rows = 128, .words = 4, .tokens = 3, .listed = 0});
}

// PKM-34: starts, counts and key ranges are data; rubbish gives padding and never an address outside a
// tensor.
TEST(PackedMask, RubbishInDeviceDataNeverFaults) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  for (const Source kind : kSources) {
    expect_build({.kind = kind,
                  .q_start = {kMost, kLeast, kMost, 5, -7, 9, 2},
                  .first = {0, 1, kHuge, -kHuge, kMost, 3},
                  .count = {kHuge, kMost, 9, 100, 100, -kHuge},
                  .tokens = 12});
    expect_build({.kind = kind,
                  .q_start = {-3, 4, 1000000, 2, 8},
                  .first = {kMost - 20, kLeast + 5, -5, 7},
                  .count = {100, 100, 100, 100},
                  .tokens = 6});
    // Requests that have tokens, and first keys that no key can be counted from.
    expect_build({.kind = kind,
                  .q_start = {0, 3, 6, 9, 12},
                  .first = {kShortest, kLongest, -kHuge, kHuge},
                  .count = {100, 100, 100, 100},
                  .tokens = 12});
    // PKM-05: starts of 64 bits, to which rows are added.
    expect_build({.kind = kind,
                  .q_start = {kLongest, kShortest, kLongest, std::int64_t{1} << 32, kShortest, 4, kLongest},
                  .first = {0, 0, 0, 0, 0, 0},
                  .count = {100, 100, 100, 100, 100, 100},
                  .tokens = 12,
                  .starts = DType::i64});
  }
}

// PKM-37: also where scores are as coarse as thresholds.
TEST(PackedMask, AScoreAtTheThresholdStays) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    MaskBuild build = make_build({.kind = Source::scores,
                                  .q_start = {0, 9},
                                  .first = {3},
                                  .count = {200},
                                  .tokens = 9,
                                  .dtype = dtype});
    build.source.fill([](auto i, auto j) { return (i + j) % 5; });
    build.thresholds.fill([](auto i, auto) { return i % 6; });
    expect_parity([&] { return build; });
  }
}

// PKM-38: one key of one row shows in its tile, and so does one that is missing.
TEST(PackedMask, SummarySeesEveryRow) {
  for (const std::int64_t row : {0, 1, 127, 128, 255})
    for (const bool listed : {false, true}) {
      MaskBuild build = make_build({.kind = Source::indices,
                                    .q_start = {0, 256},
                                    .first = {0},
                                    .count = {256},
                                    .rows = 256,
                                    .tokens = 256,
                                    .listed = 256});
      build.source.fill([&](auto i, auto j) { return (i == row && j == 130) == listed ? j : -1; });
      expect_parity([&] { return build; });
    }
}

// PKM-35, PKM-36: 2^31 - 1 is the last key; it has a bit like any other, and so has its block.
TEST(PackedMask, TheLastKeyIsAKey) {
  constexpr std::int64_t kLastKey = std::numeric_limits<std::int32_t>::max();
  for (const Source kind : {Source::indices, Source::candidates})
    for (const std::int64_t block_size : {std::int64_t{1}, std::int64_t{8}, kLastKey}) {
      SCOPED_TRACE(testing::Message() << int(kind) << " blocks of " << block_size);
      MaskBuild build = make_build({.kind = kind,
                                    .q_start = {0, 3, 5},
                                    .first = {kLastKey - 40, kLastKey},
                                    .count = {100, 1},
                                    .tokens = 5,
                                    .block_size = block_size});
      const std::int64_t last = kind == Source::indices ? kLastKey : kLastKey / block_size;
      build.source.fill([&](auto i, auto j) { return j == 7 ? last : j == 8 ? last - i : -1; });
      expect_parity([&] { return build; });
    }
}

struct MaskList {
  TensorBox q_start, key_first, key_count, mask, out, counts;
  std::int64_t request_stride = -1;

  MaskIndicesArgs args() {
    MaskIndicesArgs a;
    a.q_start = q_start.tensor();
    if (!key_first.bytes().empty()) a.key_first = key_first.tensor();
    a.key_count = key_count.tensor();
    a.mask = mask.tensor();
    if (request_stride >= 0) {
      a.mask.stride[0] = request_stride;
      a.mask.shape[0] = a.key_count.shape[0];
    }
    a.out = out.tensor();
    if (!counts.bytes().empty()) a.counts = counts.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&q_start, &key_first, &key_count, &mask, &out, &counts}; }
};

void fill_with_bits(TensorBox& mask, unsigned density) {
  std::mt19937 random(3);
  const Tensor t = mask.tensor();
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    for (std::int64_t r = 0; r < t.shape[1]; ++r)
      for (std::int64_t w = 0; w < t.shape[2]; ++w) {
        std::uint32_t word = random();
        for (unsigned d = 0; d < density; ++d) word &= random();
        mask.at<std::uint32_t>(i, r, w) = word;
      }
}

// PKM-39: lists shorter and longer than the rows' keys, any first key, bits past the count, rubbish starts.
TEST(MaskIndices, MatchesReference) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  for (const std::int64_t places : {0, 1, 40, 300})
    for (const std::vector<std::int64_t>& starts : {std::vector<std::int64_t>{0, 3, 3, 20, 31},
                                                    {-4, 6, 900, 2, 8},
                                                    {5, 31, 12, 40, 0},
                                                    {0, kLongest, kShortest, 9, kLongest}})
      for (const unsigned density : {0u, 3u}) {
        MaskList list;
        const bool wide = places == 40 || starts[1] == kLongest;
        list.q_start = TensorBox(wide ? DType::i64 : DType::i32, {5}, 0, 2);
        list.q_start.fill([&](auto i, auto) { return starts[static_cast<std::size_t>(i)]; });
        const std::int64_t firsts[] = {0, -45, places == 40 ? kHuge : 1000, 2147483600};
        list.key_first = TensorBox(DType::i64, {4});
        list.key_first.fill([&](auto i, auto) { return firsts[i]; });
        list.key_count = TensorBox(DType::i32, {4});
        list.key_count.fill([](auto i, auto) { return i == 3 ? 9999 : 61 + i * 40; });
        list.mask = TensorBox(DType::u32, {4, 16, 8}, 4);
        fill_with_bits(list.mask, density);
        list.out = TensorBox(DType::i32, {33, places}, 1, 2);
        if (places != 1) list.counts = TensorBox(DType::i32, {33}, 0, 2);
        expect_parity([&] { return list; });
      }
}

// PKM-34: a first key so far below zero that no bit stands for a key, and keys up to the greatest.
TEST(MaskIndices, FirstKeysFarFromZero) {
  for (const std::int64_t first : {kShortest, -2'000'000'001l, -200l, -128l, -127l, -33l, 2147483647l - 31,
                                   2147483647l - 32, 2147483647l, kLongest}) {
    SCOPED_TRACE(first);
    MaskList list;
    list.q_start = TensorBox::of<int>(DType::i32, {0, 2});
    list.key_first = TensorBox::of<std::int64_t>(DType::i64, {first});
    list.key_count = TensorBox::of<int>(DType::i32, {128});
    list.mask = TensorBox(DType::u32, {1, 2, 4});
    fill_with_bits(list.mask, 1);
    list.mask.at<std::uint32_t>(0, 0, 0) = 0x80000000u;
    list.out = TensorBox(DType::i32, {2, 64});
    list.counts = TensorBox(DType::i32, {2});
    expect_parity([&] { return list; });
  }
}

// The inverse of a mask built from lists is those lists, sorted, without repeats and without what has no bit.
TEST(MaskIndices, InvertsTheBuild) {
  MaskBuild build =
      make_build({.q_start = {0, 9, 30}, .first = {}, .count = {256, 256}, .tokens = 30, .listed = 90});
  ASSERT_TRUE(run_with(build.args(), "cpu").ok());
  MaskList list{build.q_start,
                {},
                build.key_count,
                build.mask,
                TensorBox(DType::i32, {30, 90}),
                TensorBox(DType::i32, {30})};
  ASSERT_TRUE(run_with(list.args(), "cpu").ok());
  for (std::int64_t token = 0; token < 30; ++token) {
    std::vector<std::int32_t> expected;
    for (std::int64_t j = 0; j < 90; ++j)
      if (const auto key = build.source.at<std::int32_t>(token, j); key >= 0 && key < 256)
        expected.push_back(key);
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    EXPECT_EQ(list.counts.at<std::int32_t>(token), static_cast<std::int32_t>(expected.size()));
    for (std::int64_t j = 0; j < 90; ++j)
      ASSERT_EQ(list.out.at<std::int32_t>(token, j),
                j < static_cast<std::int64_t>(expected.size()) ? expected[static_cast<std::size_t>(j)] : -1);
  }
}

TEST(PackedMaskCases, H18_words_of_a_row) {
  MaskBuild b;
  b.q_start = TensorBox::of<int>(DType::i32, {0, 129, 258});
  b.key_count = TensorBox::of<int>(DType::i32, {129, 129});
  b.source = TensorBox(DType::i32, {258, 6});
  constexpr std::int32_t kIndices[] = {0, 31, 32, 63, 64, 128};
  b.source.fill([&](auto, auto j) { return kIndices[j]; });
  b.mask = TensorBox(DType::u32, {2, 256, 8});
  ASSERT_TRUE(run_with(b.args(), "cpu").ok());
  constexpr std::uint32_t kWords[] = {0x80000001, 0x80000001, 1, 0, 1, 0, 0, 0};
  for (std::int64_t request = 0; request < 2; ++request)
    for (std::int64_t row = 0; row < 256; ++row)
      for (std::int64_t word = 0; word < 8; ++word)
        ASSERT_EQ(b.mask.at<std::uint32_t>(request, row, word), row < 129 ? kWords[word] : 0)
            << row << " " << word;
}

// The mask's side of it: a query without keys is a row of zeros, not a row of ones.
TEST(PackedMaskCases, H30_a_query_without_keys_keeps_nothing) {
  MaskBuild b;
  b.q_start = TensorBox::of<int>(DType::i32, {0, 3});
  b.key_count = TensorBox::of<int>(DType::i32, {3});
  b.source = TensorBox(DType::i32, {3, 2});
  constexpr std::int32_t kIndices[3][2] = {{0, -1}, {-1, -1}, {2, 1}};
  b.source.fill([&](auto i, auto j) { return kIndices[i][j]; });
  b.mask = TensorBox(DType::u32, {1, 128, 4});
  b.any = TensorBox(DType::u32, {1, 1, 1});
  b.all = TensorBox(DType::u32, {1, 1, 1});
  ASSERT_TRUE(run_with(b.args(), "cpu").ok());
  EXPECT_EQ(b.mask.at<std::uint32_t>(0, 0, 0), 1u);
  EXPECT_EQ(b.mask.at<std::uint32_t>(0, 1, 0), 0u);
  EXPECT_EQ(b.mask.at<std::uint32_t>(0, 2, 0), 6u);
  EXPECT_EQ(b.any.at<std::uint32_t>(0, 0, 0), 1u);
  EXPECT_EQ(b.all.at<std::uint32_t>(0, 0, 0), 0u);
}

// A second step with fewer tokens: starts, lists and ranges behind the live ones are left as the step before
// wrote them.
TEST(PackedMaskCases, H44_padding_keeps_stale_metadata) {
  MaskBuild b = make_build({.q_start = {0, 5, 5, 5, 8},
                            .first = {9000, 8000, 7000, 6000},
                            .count = {10, 10, 10, 10},
                            .rows = 64,
                            .words = 4,
                            .tokens = 5});
  b.source.fill([](auto, auto j) { return 6000 + j; });
  expect_parity([&] { return b; });
  ASSERT_TRUE(run_with(b.args(), "cpu").ok());
  // Request 3 claims tokens 5 .. 7 of a table of five: all its rows are padding.
  for (std::int64_t row = 0; row < 64; ++row) EXPECT_EQ(b.mask.at<std::uint32_t>(3, row, 0), 0u);
}

// One request's mask serves every request: stride 0, and nothing behind its end is read.
TEST(MaskIndicesCases, H64_mask_shared_by_all_requests) {
  MaskList list;
  list.q_start = TensorBox::of<int>(DType::i32, {0, 4, 8});
  list.key_count = TensorBox::of<int>(DType::i32, {128, 128});
  list.mask = TensorBox(DType::u32, {1, 4, 4});
  fill_with_bits(list.mask, 2);
  list.request_stride = 0;
  list.out = TensorBox(DType::i32, {8, 128});
  expect_parity([&] { return list; });
  ASSERT_TRUE(run_with(list.args(), "cpu").ok());
  for (std::int64_t row = 0; row < 4; ++row)
    for (std::int64_t j = 0; j < 128; ++j)
      ASSERT_EQ(list.out.at<std::int32_t>(row, j), list.out.at<std::int32_t>(row + 4, j));
}

// PKM-38 in words: `all` looks only at rows with a token and at keys below the count.
TEST(PackedMask, SummaryIgnoresPadding) {
  MaskBuild b;
  b.q_start = TensorBox::of<int>(DType::i32, {0, 2});
  b.key_count = TensorBox::of<int>(DType::i32, {130});
  b.source = TensorBox(DType::i32, {2, 130});
  b.source.fill([](auto i, auto j) { return i == 1 && j == 5 ? 4 : j; });
  b.mask = TensorBox(DType::u32, {1, 256, 12});
  b.any = TensorBox(DType::u32, {1, 2, 1});
  b.all = TensorBox(DType::u32, {1, 2, 1});
  ASSERT_TRUE(run_with(b.args(), "cpu").ok());
  EXPECT_EQ(b.any.at<std::uint32_t>(0, 0, 0), 0b011u);
  // Tile 0 misses key 5 of query 1; tile 1 has keys 128 and 129 of both; tile 2 has no key to miss.
  EXPECT_EQ(b.all.at<std::uint32_t>(0, 0, 0), 0b110u);
  EXPECT_EQ(b.any.at<std::uint32_t>(0, 1, 0), 0u);
  EXPECT_EQ(b.all.at<std::uint32_t>(0, 1, 0), 0b111u);
}

}  // namespace
}  // namespace keysieve::test

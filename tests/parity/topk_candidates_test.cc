// topk restricted to candidate blocks, dense and compact, against its definition and against mask + topk.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "keysieve/candidate_mask.hpp"
#include "support/topk_call.hpp"

namespace keysieve::test {
namespace {

// How a list comes: as candidate_blocks writes it, in any order, with repeats, holes and ids that do not
// exist.
enum class List { ascending, shuffled, hostile };

TensorBox make_list(std::int64_t rows, std::int64_t candidates, std::int64_t blocks, List kind,
                    std::int64_t stride, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  TensorBox box(DType::i32, {rows, candidates}, 3, stride);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(static_cast<std::size_t>(candidates), -1);
    if (kind == List::ascending) {
      std::sort(ids.begin(), ids.end(),
                [](auto a, auto b) { return static_cast<std::uint64_t>(a) < static_cast<std::uint64_t>(b); });
    } else if (kind == List::hostile) {
      for (std::int64_t& id : ids) {
        const std::uint64_t dice = random() % 8;
        if (dice == 0) id = -1;
        if (dice == 1) id = ids[random() % ids.size()];
        if (dice == 2) id = blocks + static_cast<std::int64_t>(random() % 5);
        if (dice == 3) id = random() % 2 == 0 ? 2147483647 : -2147483647 - 1;
      }
    }
    for (std::int64_t j = 0; j < candidates; ++j)
      box.set(static_cast<double>(ids[static_cast<std::size_t>(j)]), r, j);
  }
  return box;
}

TopkCall make_restricted(std::int64_t width, std::int64_t candidates, std::int64_t block, std::int64_t k,
                         List kind, Family family, DType dtype = DType::f32) {
  TopkCall c = make_topk({4, width, k, dtype, 3}, family, 17);
  c.has_start = true;
  c.start = TensorBox::of<std::int64_t>(DType::i32, {0, 5, width, -3});
  c.end = TensorBox::of<std::int64_t>(DType::i32,
                                      {width, width - 2, width + 5, std::max<std::int64_t>(width / 2, 1)});
  c.has_candidates = true;
  c.candidates = make_list(4, candidates, width / block + 1, kind, kind == List::hostile ? 2 : 1,
                           static_cast<std::uint64_t>(width + candidates));
  c.extra.block_size = block;
  return c;
}

// TOP-30.
TEST(TopkCandidates, MatchesReference) {
  for (const Family family :
       {Family::random, Family::ties, Family::nan, Family::infinities, Family::all_equal})
    for (const List kind : {List::ascending, List::shuffled, List::hostile})
      for (const std::int64_t block : {1, 3, 8, 16, 1000})
        for (const std::int64_t width : {1, 9, 700, 5003})
          for (const std::int64_t k : {1, 40, 600}) {
            SCOPED_TRACE(family_name(family) + " list " + std::to_string(static_cast<int>(kind)) + " block " +
                         std::to_string(block) + " width " + std::to_string(width) + " k " +
                         std::to_string(k));
            expect_parity([&] {
              TopkCall c =
                  make_restricted(width, 90, block, k, kind, family, k == 40 ? DType::bf16 : DType::f32);
              c.extra.skip_neg_inf = width != 700;
              c.extra.order = k == 600 ? TopkOrder::by_score : TopkOrder::ascending_column;
              c.has_values = k != 1;
              return c;
            });
          }
}

TEST(TopkCandidates, LongListsMatchReference) {
  for (const List kind : {List::ascending, List::shuffled, List::hostile})
    for (const Family family : {Family::learned_like, Family::crowded, Family::ties})
      expect_parity([&] {
        TopkCall c = make_restricted(140'000, 2048, 8, 512, kind, family);
        c.extra.space = TopkSpace::absolute;
        return c;
      });
}

// A width so much larger than the list that a bit for every block would not fit the list's scratch.
TEST(TopkCandidates, FewCandidatesOfManyBlocks) {
  for (const List kind : {List::ascending, List::shuffled, List::hostile})
    expect_parity([&] { return make_restricted(60'000, 7, 1, 3, kind, Family::random); });
}

// The result equals mask, then topk, on dense scores.
TEST(TopkCandidates, EqualsMaskThenTopk) {
  for (const List kind : {List::ascending, List::shuffled, List::hostile})
    for (const Family family : {Family::learned_like, Family::ties, Family::nan}) {
      const auto make = [&] { return make_restricted(3'001, 60, 8, 200, kind, family); };
      TopkCall masked = make();
      TopkArgs masked_args = masked.args();
      CandidateMaskArgs mask;
      mask.scores = masked_args.scores;
      mask.bounds = masked_args.bounds;
      mask.candidates = masked_args.candidates;
      mask.block_size = 8;
      mask.write_range = WriteRange::full;
      mask.edge = false;
      ASSERT_TRUE(run_with(mask, "reference").ok());
      masked_args.candidates = {};
      ASSERT_TRUE(run_with(masked_args, "reference").ok());
      TopkCall restricted = make();
      ASSERT_TRUE(run_with(restricted.args(), "cpu").ok());
      EXPECT_EQ(masked.out.bytes(), restricted.out.bytes());
      EXPECT_EQ(masked.values.bytes(), restricted.values.bytes());
      EXPECT_EQ(masked.counts.bytes(), restricted.counts.bytes());
    }
}

// Only candidates' scores are read: everything else may be anything.
TEST(TopkCandidates, OtherScoresDoNotMatter) {
  const auto make = [](bool poisoned) {
    TopkCall c = make_restricted(4'000, 50, 8, 100, List::shuffled, Family::random);
    for (std::int64_t r = 0; poisoned && r < 4; ++r) {
      const std::int64_t start =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(c.start.get(r)), 0, 4'000);
      std::vector<bool> listed(4'100, false);
      for (std::int64_t j = 0; j < 50; ++j)
        for (std::int64_t o = 0; o < 8; ++o)
          if (c.candidates.get(r, j) >= 0) {
            const auto column =
                static_cast<std::size_t>(start + static_cast<std::int64_t>(c.candidates.get(r, j)) * 8 + o);
            if (column < listed.size()) listed[column] = true;
          }
      for (std::int64_t j = 0; j < 4'000; ++j)
        if (!listed[static_cast<std::size_t>(j)]) c.scores.set(j % 2 == 0 ? std::nan("") : 1e30, r, j);
    }
    return c;
  };
  TopkCall clean = make(false), dirty = make(true);
  ASSERT_TRUE(run_with(clean.args(), "cpu").ok());
  ASSERT_TRUE(run_with(dirty.args(), "cpu").ok());
  EXPECT_EQ(clean.out.bytes(), dirty.out.bytes());
  EXPECT_EQ(clean.values.bytes(), dirty.values.bytes());
}

// compact scores: column j*B + o is position candidates[j]*B + o.
TopkCall make_compact(std::int64_t candidates, std::int64_t block, std::int64_t k, List kind, Family family,
                      std::int64_t positions) {
  TopkCall c = make_topk({3, candidates * block, k, DType::f32, 1}, family, 23);
  c.has_candidates = true;
  c.candidates = make_list(3, candidates, positions / block + 1, kind, 1, static_cast<std::uint64_t>(k));
  c.end = TensorBox::of<std::int64_t>(DType::i64, {positions, positions - 3, positions / 2});
  c.extra.block_size = block;
  c.extra.layout = ScoreLayout::compact;
  return c;
}

TEST(TopkCandidates, CompactMatchesReference) {
  for (const Family family : {Family::random, Family::ties, Family::nan, Family::infinities})
    for (const List kind : {List::ascending, List::shuffled, List::hostile})
      for (const std::int64_t block : {1, 3, 8, 16})
        for (const std::int64_t candidates : {1, 40, 300})
          for (const bool skip : {true, false})
            expect_parity([&] {
              TopkCall c = make_compact(candidates, block, 64, kind, family, candidates * block * 2);
              c.extra.skip_neg_inf = skip;
              c.extra.order = block == 3 ? TopkOrder::by_score : TopkOrder::ascending_column;
              c.extra.space = block == 8 ? TopkSpace::absolute : TopkSpace::local;
              return c;
            });
}

// The compact form equals mask and topk on the dense scores that it was cut from.
TEST(TopkCandidates, CompactEqualsMaskThenTopkOnDense) {
  constexpr std::int64_t kWidth = 2'500, kBlock = 8, kListed = 100;
  for (const List kind : {List::ascending, List::shuffled, List::hostile}) {
    TopkCall dense = make_topk({3, kWidth, 128}, Family::ties, 31);
    dense.has_candidates = true;
    dense.candidates = make_list(3, kListed, kWidth / kBlock + 1, kind, 1, 5);
    dense.end = TensorBox::of<std::int64_t>(DType::i32, {kWidth, 1'201, 9});
    TopkCall compact = make_topk({3, kListed * kBlock, 128}, Family::nan, 1);
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t j = 0; j < kListed; ++j)
        for (std::int64_t o = 0; o < kBlock; ++o) {
          const double column = dense.candidates.get(r, j) * kBlock + static_cast<double>(o);
          compact.scores.set(column >= 0 && column < dense.end.get(r)
                                 ? dense.scores.get(r, static_cast<std::int64_t>(column))
                                 : 1e30,
                             r, j * kBlock + o);
        }
    compact.has_candidates = true;
    compact.candidates = dense.candidates;
    compact.end = dense.end;
    compact.extra.layout = ScoreLayout::compact;
    ASSERT_TRUE(run_with(dense.args(), "cpu").ok());
    ASSERT_TRUE(run_with(compact.args(), "cpu").ok());
    EXPECT_EQ(dense.out.bytes(), compact.out.bytes());
    EXPECT_EQ(dense.values.bytes(), compact.values.bytes());
    EXPECT_EQ(dense.counts.bytes(), compact.counts.bytes());
  }
}

// Compact columns of a 2^31 - 1 position row: only the list says where they lie.
TEST(TopkCandidates, CompactFarPositions) {
  const auto make = [] {
    TopkCall c = make_topk({1, 4 * 16, 10}, Family::random, 2);
    c.has_candidates = true;
    c.candidates = TensorBox(DType::i32, {1, 4});
    const double ids[] = {134'217'727, 0, 134'217'726, 2'147'483'647};
    c.candidates.fill([&](auto, auto j) { return ids[j]; });
    c.end = TensorBox::of<std::int64_t>(DType::i64, {std::int64_t{1} << 40});
    c.extra.block_size = 16;
    c.extra.layout = ScoreLayout::compact;
    return c;
  };
  expect_parity(make);
  TopkCall c = make();
  ASSERT_TRUE(run_with(c.args(), "cpu").ok());
  EXPECT_EQ(c.counts.get(0), 10);
  EXPECT_LT(c.picks(0).back(), 2'147'483'647);
  EXPECT_GT(c.picks(0).back(), 2'147'480'000);
}

}  // namespace
}  // namespace keysieve::test

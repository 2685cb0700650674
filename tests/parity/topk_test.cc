// topk against its definition, over shapes, data families, spaces, orders, bounds and layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/topk_call.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace keysieve::test {
namespace {

// TOP-26 and TOP-29: NaN of both signs, signed zeros, ties, infinities.
TEST(Topk, MatchesReferenceOnEveryFamily) {
  for (const Family family : all_families())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t width : {1, 63, 64, 65, 1000, 4099})
        for (const std::int64_t k : {1, 3, 512, 2048})
          for (const TopkOrder order : {TopkOrder::ascending_column, TopkOrder::by_score}) {
            SCOPED_TRACE(family_name(family) + " width " + std::to_string(width) + " k " + std::to_string(k));
            expect_parity([&] {
              TopkCall c = make_topk({2, width, k, dtype, 5, 1}, family);
              c.extra.order = order;
              c.extra.skip_neg_inf = width % 2 == 0;
              return c;
            });
          }
}

TEST(Topk, MatchesReferenceOnLongRows) {
  for (const Family family : all_families())
    for (const std::int64_t k : {512, 3000, 4096}) {
      SCOPED_TRACE(family_name(family) + " k " + std::to_string(k));
      expect_parity([&] { return make_topk({1, 70'001, k, DType::f32}, family, 7); });
    }
}

// TOP-25: a list that overflows again and again, in every order of the scores.
TEST(Topk, OrderOfScoresNeverNeedsMoreRoom) {
  for (const bool descending : {false, true})
    for (const std::int64_t k : {1, 700}) {
      std::vector<float> scores(30'000);
      for (std::size_t i = 0; i < scores.size(); ++i) {
        scores[i] = static_cast<float>(descending ? scores.size() - i : i) + 1000.f;
        if (i % 3 == 0) scores[i] = 31'500.f;  // and ties above and among them
      }
      expect_parity([&] { return make_topk({1, 30'000, k}, scores); });
    }
}

// A row of equal scores fills the list; the one score that is the next float above them comes after the cut.
TEST(Topk, ALateScoreJustAboveATieEnters) {
  for (const float tie : {1.f, -1.f, 0.f, -0.f})
    for (const std::int64_t late : {19'000, 30'000}) {
      std::vector<float> scores(40'000, tie);
      scores[static_cast<std::size_t>(late)] = std::nextafter(tie, 2.f);
      expect_parity([&] { return make_topk({1, 40'000, 100}, scores); });
      TopkCall c = make_topk({1, 40'000, 100}, scores);
      ASSERT_TRUE(run_with(c.args(), "cpu").ok());
      EXPECT_EQ(c.picks(0).back(), late);
    }
}

// Forty great scores in five clusters among zeros, k 64: where the sample happens to see many of the forty,
// it takes them for more than they are, and the row must be read again. About one placement in fifty is such.
TEST(Topk, AGuessThatIsTooHighIsRepaired) {
  constexpr std::int64_t kWidth = 65'536, kK = 64;
  TopkCall c = make_topk({1, kWidth, kK}, std::vector<float>(kWidth, 0.f));
  std::mt19937_64 random(5);
  for (int placement = 0; placement < 3'000; ++placement) {
    std::vector<std::int64_t> great;
    for (std::int64_t cluster = 0; cluster < 5; ++cluster) {
      const auto first =
          static_cast<std::int64_t>(cluster * 13'000 + static_cast<std::int64_t>(random() % 12'000) + 100);
      for (std::int64_t i = 0; i < 8; ++i) great.push_back(first + i);
    }
    for (const std::int64_t column : great) c.scores.at<float>(0, column) = 1.f + static_cast<float>(column);
    ASSERT_TRUE(run_with(c.args(), "cpu").ok());
    for (const std::int64_t column : great) c.scores.at<float>(0, column) = 0.f;
    std::vector<std::int64_t> expected(24);
    std::iota(expected.begin(), expected.end(), 0);
    expected.insert(expected.end(), great.begin(), great.end());
    ASSERT_EQ(c.picks(0), expected) << placement;
  }
}

TopkCall with_spaces(TopkSpace space, DType slots, std::int64_t page, std::int64_t variant) {
  TopkCall c = make_topk({6, 300, 40, variant % 2 == 0 ? DType::f32 : DType::bf16, 3, 0, 1 + variant % 2},
                         Family::ties, static_cast<std::uint64_t>(variant));
  c.has_start = true;
  c.start = TensorBox::of<std::int64_t>(DType::i64, {0, 20, 299, 250, -7, 100});
  c.end = TensorBox::of<std::int64_t>(DType::i32, {300, 280, 300, 270, 12, 50});
  c.extra.space = space;
  c.extra.order = variant % 3 == 0 ? TopkOrder::by_score : TopkOrder::ascending_column;
  if (space == TopkSpace::offset) {
    c.has_offset = true;
    c.offset =
        TensorBox::of<std::int64_t>(variant % 2 == 0 ? DType::i32 : DType::i64, {0, 1000, 2, 5, 70'000, 9});
  }
  if (space == TopkSpace::paged) {
    c.out = TensorBox(slots, {6, 40}, 2, 1 + variant % 2);
    c.has_raw = variant % 2 == 0;
    c.has_pages = true;
    c.page_table = TensorBox(DType::i32, {3, 300 / page + 1}, 4, 1 + variant % 2);
    c.page_table.fill([&](auto i, auto j) { return (i * 31 + j * 7) % 13 - 1; });
    c.extra.pages.page_size = page;
    c.extra.pages.next_n = 2;
    if (variant % 4 < 2) c.extra.pages.pool_pages = 9;
    if (variant % 3 == 1) {
      c.has_requests = true;
      c.row_to_request = TensorBox::of<std::int64_t>(DType::i32, {2, -1, 0, 3, 1, 1 << 30});
    }
    if (variant % 3 == 2) {
      c.has_table_start = true;
      c.table_start =
          TensorBox::of<std::int64_t>(variant % 2 == 0 ? DType::i32 : DType::i64, {0, 5, 64, -1, 300, 7});
    }
  }
  return c;
}

// TOP-32 is owed by the caller, but an offset that breaks it is data: sums wrap around, the same everywhere.
TEST(Topk, OffsetsAtTheEdgeOfTheirType) {
  for (const std::int64_t variant : {0, 1, 2, 3}) {
    expect_parity([&] {
      TopkCall c = with_spaces(TopkSpace::offset, DType::i32, 1, variant);
      c.offset = TensorBox(DType::i64, {6});
      for (const std::int64_t row : {0, 1, 2, 3, 4, 5})
        c.offset.at<std::int64_t>(row) = row % 2 == 0 ? INT64_MAX : INT64_MIN + row;
      return c;
    });
  }
}

// TOP-28 and TOP-31: outputs start as poison; rejected pages leave all of them together.
TEST(Topk, MatchesReferenceInEverySpace) {
  for (std::int64_t variant = 0; variant < 12; ++variant) {
    SCOPED_TRACE(variant);
    for (const TopkSpace space : {TopkSpace::local, TopkSpace::absolute, TopkSpace::offset})
      expect_parity([&] { return with_spaces(space, DType::i32, 1, variant); });
    for (const DType slots : {DType::i32, DType::i64})
      for (const std::int64_t page : {1, 3, 16, 64, 100})
        expect_parity([&] { return with_spaces(TopkSpace::paged, slots, page, variant); });
  }
}

// PGM-12: large slots need 64 bits; those that an i32 output cannot hold are no slots.
TEST(Topk, LargeSlots) {
  for (const DType slots : {DType::i32, DType::i64}) {
    const auto make = [&] {
      TopkCall c = make_topk({1, 256, 256}, Family::random);
      c.out = TensorBox(slots, {1, 256});
      c.extra.space = TopkSpace::paged;
      c.has_pages = true;
      c.page_table = TensorBox(DType::i32, {1, 4});
      c.page_table.fill([](auto, auto j) {
        return std::vector<double>{33'554'431, 33'554'432, 2'147'483'647, 0}[static_cast<std::size_t>(j)];
      });
      return c;
    };
    expect_parity(make);
    TopkCall c = make();
    ASSERT_TRUE(run_with(c.args(), "cpu").ok());
    EXPECT_EQ(c.counts.get(0), slots == DType::i64 ? 256 : 128);
    if (slots == DType::i64) {
      EXPECT_EQ(c.out.at<std::int64_t>(0, 191), 2'147'483'647LL * 64 + 63);
    }
  }
}

TEST(Topk, MatchesReferenceForEveryFormOfBounds) {
  for (const DType ints : {DType::i32, DType::i64}) {
    const auto lengths = [&](std::vector<std::int64_t> values, std::int64_t next_n, std::int64_t ratio,
                             LengthUnit unit, bool per_row) {
      TopkCall c = make_topk({static_cast<std::int64_t>(
                                  per_row ? values.size() : values.size() * static_cast<std::size_t>(next_n)),
                              90, 7},
                             Family::random, 3);
      c.extra.bounds.form = BoundsForm::lengths;
      c.extra.bounds.next_n = next_n;
      c.extra.bounds.ratio = ratio;
      c.extra.bounds.unit = unit;
      if (per_row) {
        c.end = TensorBox(ints, {static_cast<std::int64_t>(values.size()) / next_n, next_n}, 3, 2);
        c.end.fill([&](auto i, auto j) {
          return static_cast<double>(values[static_cast<std::size_t>(i * next_n + j)]);
        });
      } else {
        c.end = TensorBox(ints, {static_cast<std::int64_t>(values.size())}, 0, 3);
        c.end.fill([&](auto i, auto) { return static_cast<double>(values[static_cast<std::size_t>(i)]); });
      }
      return c;
    };
    const std::vector<std::int64_t> values = {0,         1, -1, 2, 5, 17, 89, 90, 91, 400, -2147483647 - 1,
                                              2147483647};
    for (const std::int64_t next_n : {1, 2, 3, 4, 6})
      for (const std::int64_t ratio : {1, 2, 4}) {
        expect_parity([&] { return lengths(values, next_n, ratio, LengthUnit::tokens, false); });
        expect_parity([&] { return lengths(values, next_n, ratio, LengthUnit::tokens, true); });
        expect_parity([&] { return lengths(values, next_n, ratio, LengthUnit::compressed, true); });
      }
    for (const std::int64_t repeat : {1, 2, 5})
      expect_parity([&] {
        TopkCall c = make_topk({5, 90, 7}, Family::random, 3);
        const auto entries = static_cast<std::size_t>((5 + repeat - 1) / repeat);
        c.has_start = true;
        c.start =
            TensorBox::of<std::int64_t>(ints, std::vector<std::int64_t>{3, 95, -4, 80, 10}.size() == entries
                                                  ? std::vector<std::int64_t>{3, 95, -4, 80, 10}
                                                  : std::vector<std::int64_t>(entries, 7));
        c.end = TensorBox::of<std::int64_t>(ints, std::vector<std::int64_t>(entries, 60));
        c.extra.bounds.row_repeat = repeat;
        return c;
      });
  }
}

// TOP-27: nothing outside a row's range can change its result; inputs keep their bytes (expect_parity
// compares them).
TEST(Topk, UnreadColumnsDoNotMatter) {
  for (const bool skip : {true, false})
    for (const std::int64_t k : {1, 64, 512}) {
      const auto make = [&](bool poisoned) {
        TopkCall c = make_topk({3, 5000, k, DType::f32, 2, 3}, Family::learned_like, 5);
        c.has_start = true;
        c.start = TensorBox::of<std::int64_t>(DType::i32, {0, 1237, 4999});
        c.end = TensorBox::of<std::int64_t>(DType::i32, {4097, 4200, 5000});
        c.extra.skip_neg_inf = skip;
        const std::int64_t begins[] = {0, 1237, 4999}, ends[] = {4097, 4200, 5000};
        for (std::int64_t r = 0; poisoned && r < 3; ++r) poison_outside(c, r, begins[r], ends[r]);
        return c;
      };
      TopkCall clean = make(false);
      ASSERT_TRUE(run_with(clean.args(), "reference").ok());
      TopkCall shape = make(true);
      for_each_host_run(shape.args(),
                        [&](const std::string& kernel, const std::string& label, const Executor* executor) {
                          TopkCall dirty = make(true);
                          ASSERT_TRUE(run_with(dirty.args(), "cpu", kernel.c_str(), executor).ok());
                          EXPECT_EQ(clean.out.bytes(), dirty.out.bytes()) << label;
                          EXPECT_EQ(clean.values.bytes(), dirty.values.bytes()) << label;
                          EXPECT_EQ(clean.counts.bytes(), dirty.counts.bytes()) << label;
                        });
    }
}

// Without skip_neg_inf, a row that returns all its columns in column order is not even read: no memory
// needed.
TEST(Topk, RowsThatReturnEverythingAreNotRead) {
  TopkCall c = make_topk({2, 500, 600}, Family::nan);
  c.has_values = false;
  c.extra.skip_neg_inf = false;
  TopkArgs a = c.args();
  a.scores.data = reinterpret_cast<void*>(std::uintptr_t{64});
  ASSERT_TRUE(run_with(a, "cpu").ok());
  for (std::int64_t t = 0; t < 600; ++t) ASSERT_EQ(c.out.get(1, t), t < 500 ? t : -1);
}

TEST(Topk, EmptyShapes) {
  expect_parity([] { return make_topk({0, 100, 5}, Family::random); });
  expect_parity([] { return make_topk({3, 0, 5}, Family::random); });
  expect_parity([] { return make_topk({3, 100, 0}, Family::random); });
  expect_parity([] {
    TopkCall c = make_topk({3, 100, 4}, Family::random);
    c.has_candidates = true;
    c.candidates = TensorBox(DType::i32, {3, 0});
    return c;
  });
}

// A permutation of the scores permutes the picks, as long as no tie is cut.
TEST(Topk, PermutedScoresGivePermutedPicks) {
  std::vector<float> scores(9000);
  std::iota(scores.begin(), scores.end(), -4000.f);
  std::mt19937_64 random(11);
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::shuffle(scores.begin(), scores.end(), random);
    TopkCall c = make_topk({1, 9000, 1000}, scores);
    ASSERT_TRUE(run_with(c.args(), "cpu").ok());
    const std::vector<std::int64_t> picks = c.picks(0);
    ASSERT_EQ(picks.size(), 1000u);
    EXPECT_TRUE(std::is_sorted(picks.begin(), picks.end()));
    for (const std::int64_t column : picks) EXPECT_GE(scores[static_cast<std::size_t>(column)], 4000.f);
  }
}

#if defined(__x86_64__)
// Engines may flush subnormals on their threads; the comparison must not.
TEST(Topk, SubnormalsCountEvenWhereTheThreadFlushesThem) {
  expect_parity([] { return make_topk({1, 6000, 512}, Family::subnormal); });
  TopkCall expected = make_topk({1, 6000, 512}, Family::subnormal);
  ASSERT_TRUE(run_with(expected.args(), "reference").ok());
  TopkCall got = make_topk({1, 6000, 512}, Family::subnormal);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  const Status status = run_with(got.args(), "cpu");
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(after & 0x8040, 0x8040u) << "the thread's own mode comes back";
  EXPECT_EQ(expected.out.bytes(), got.out.bytes());
}
#endif

// TOP-34; H17 in topk_cases_test.cc changes the batch as well.
TEST(Topk, RepeatsGiveTheSameBytes) {
  TopkCall first = make_topk({7, 3000, 300}, Family::ties, 9);
  ASSERT_TRUE(run_with(first.args(), "cpu", "", &two_threads()).ok());
  for (int repeat = 0; repeat < 20; ++repeat) {
    TopkCall again = make_topk({7, 3000, 300}, Family::ties, 9);
    ASSERT_TRUE(run_with(again.args(), "cpu", "", &two_threads()).ok());
    ASSERT_EQ(first.out.bytes(), again.out.bytes());
    ASSERT_EQ(first.values.bytes(), again.values.bytes());
  }
}

}  // namespace
}  // namespace keysieve::test

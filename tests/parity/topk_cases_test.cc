// Failures that other engines had in the field, by the id under which docs/contracts lists them, with the
// answer that is right. Each runs on every kernel and instruction set, and against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/topk_call.hpp"

namespace keysieve::test {
namespace {

using Columns = std::vector<std::int64_t>;

Columns range(std::int64_t first, std::int64_t last) {
  Columns c(static_cast<std::size_t>(last - first));
  std::iota(c.begin(), c.end(), first);
  return c;
}

// Parity, then `check` on what each kernel and instruction set left.
template <class Make, class Check>
void expect_case(Make&& make, Check&& check) {
  expect_parity(make);
  TopkCall shape = make();
  for_each_host_run(shape.args(),
                    [&](const std::string& kernel, const std::string& label, const Executor* executor) {
                      SCOPED_TRACE(label);
                      TopkCall c = make();
                      ASSERT_TRUE(run_with(c.args(), "cpu", kernel.c_str(), executor).ok());
                      check(c);
                    });
}

TopkCall with_lengths(TopkCall c, const Columns& lengths, std::int64_t next_n, DType ints = DType::i32) {
  c.end = TensorBox::of<std::int64_t>(ints, lengths);
  c.extra.bounds.form = BoundsForm::lengths;
  c.extra.bounds.next_n = next_n;
  return c;
}

TEST(TopkCases, H01_negative_draft_lengths) {
  // 262,144 wide, as reserved; only lengths decide what is read.
  const std::vector<float> scores = make_scores(Family::random, 8 * 262'144, 1);
  const auto make = [&](Columns lengths) {
    return [&scores, lengths] { return with_lengths(make_topk({8, 262'144, 512}, scores), lengths, 2); };
  };
  expect_case(make({900, 70'000, 3, 0}), [](TopkCall& c) {
    const std::int64_t used[] = {512, 512, 512, 512, 2, 3, 0, 0};
    for (std::int64_t r = 0; r < 8; ++r) c.expect_prefix(r, used[r]);
    EXPECT_EQ(c.picks(4), range(0, 2));
    EXPECT_EQ(c.picks(5), range(0, 3));
  });
  expect_case(make({-4, -1, std::numeric_limits<std::int32_t>::min(), 1}), [](TopkCall& c) {
    for (std::int64_t r = 0; r < 7; ++r) c.expect_prefix(r, 0);
    c.expect_prefix(7, 1);
  });
}

TEST(TopkCases, H05_negative_lengths_touch_no_table) {
  const auto make = [] {
    TopkCall c = with_lengths(make_topk({48, 3'000, 2048}, Family::random),
                              {1, 900, 1, 2'000, 1, 2'500, 3'000, 2'048}, 6);
    c.out = TensorBox(DType::i32, {48, 2048});
    c.extra.space = TopkSpace::paged;
    c.has_pages = c.has_raw = true;
    c.page_table = TensorBox(DType::i32, {8, 4}, 0);
    // Entries of requests without a live key are rubbish that would fault if it were followed.
    c.page_table.fill([](auto b, auto j) {
      return b == 0 || b == 2 || b == 4 ? (j == 0 ? 10 + b : 2'147'483'647) : b * 4 + j;
    });
    c.extra.pages.next_n = 6;
    c.extra.pages.pool_pages = 64;
    return c;
  };
  expect_case(make, [](TopkCall& c) {
    for (const std::int64_t b : {0, 2, 4})
      for (std::int64_t j = 0; j < 6; ++j) {
        c.expect_prefix(b * 6 + j, j == 5 ? 1 : 0);
        if (j == 5) {
          EXPECT_EQ(c.out.get(b * 6 + j, 0), static_cast<double>((10 + b) * 64));
        }
      }
  });
}

std::vector<float> low_bits(std::int64_t rows) {
  std::vector<float> scores(static_cast<std::size_t>(rows * 4096));
  for (std::size_t i = 0; i < scores.size(); ++i)
    scores[i] = std::bit_cast<float>(0x3f900000u | static_cast<std::uint32_t>(i % 4096 % 1024));
  return scores;
}

TEST(TopkCases, H10_low_mantissa_bits) {
  for (const std::int64_t rows : {1, 64}) {
    expect_case(
        [&] {
          return make_topk({rows, 4096, 512}, low_bits(rows));
        },
        [&](TopkCall& c) {
          for (std::int64_t r = 0; r < rows; ++r) {
            c.expect_prefix(r, 512);
            for (const std::int64_t column : c.picks(r)) EXPECT_GE(column % 1024, 896);
          }
        });
    expect_case(
        [&] {
          return make_topk({rows, 4096, 514}, low_bits(rows));
        },
        [&](TopkCall& c) {
          Columns ties;
          for (const std::int64_t column : c.picks(0))
            if (column % 1024 == 895) ties.push_back(column);
          EXPECT_EQ(ties, (Columns{895, 1024 + 895}));
        });
  }
}

TEST(TopkCases, H13_no_phantom_lanes) {
  std::vector<float> scores;
  for (int r = 0; r < 149; ++r)
    for (int i = 0; i < 3000; ++i) scores.push_back(-70'000.f + 4'000.f * static_cast<float>(i) / 2'999.f);
  expect_case(
      [&] {
        return make_topk({149, 3000, 2048}, scores);
      },
      [](TopkCall& c) {
        for (std::int64_t r = 0; r < 149; ++r) ASSERT_EQ(c.picks(r), range(952, 3000));
      });
  expect_case(
      [&] {
        TopkCall c = make_topk({149, 3000, 2048}, scores);
        c.end = TensorBox::of<std::int64_t>(DType::i32, Columns(149, 1000));
        return c;
      },
      [](TopkCall& c) {
        for (std::int64_t r = 0; r < 149; ++r) {
          c.expect_prefix(r, 1000);
          ASSERT_EQ(c.picks(r), range(0, 1000));
        }
      });
}

TopkCall packed_requests() {
  TopkCall c = make_topk({3, 2200, 1}, std::vector<float>(3 * 2200, -1.f));
  c.has_start = true;
  c.start = TensorBox::of<std::int64_t>(DType::i32, {0, 1000, 1500});
  c.end = TensorBox::of<std::int64_t>(DType::i32, {1000, 1500, 2200});
  const std::int64_t best[] = {999, 1000, 1850};
  for (std::int64_t r = 0; r < 3; ++r) c.scores.set(5, r, best[r]);
  c.extra.space = TopkSpace::paged;
  c.has_pages = c.has_raw = true;
  c.page_table = TensorBox(DType::i32, {3, 18});
  c.page_table.fill([](auto b, auto j) { return b * 100 + 17 * j % 18; });
  return c;
}

TEST(TopkCases, H14_request_base_is_subtracted_once) {
  expect_case(packed_requests, [](TopkCall& c) {
    EXPECT_EQ(c.raw.get(0, 0), 999);
    EXPECT_EQ(c.raw.get(1, 0), 0);
    EXPECT_EQ(c.raw.get(2, 0), 350);
    EXPECT_EQ(c.out.get(0, 0), c.page_table.get(0, 15) * 64 + 39);
    EXPECT_EQ(c.out.get(1, 0), c.page_table.get(1, 0) * 64);
    EXPECT_EQ(c.out.get(2, 0), c.page_table.get(2, 5) * 64 + 30);
  });
}

TEST(TopkCases, H17_neighbours_do_not_matter) {
  std::vector<float> row(40'000);
  std::mt19937_64 random(3);
  for (float& s : row) s = std::floor(1000.f * std::normal_distribution<float>()(random)) / 1000.f;
  TopkCall alone = make_topk({1, 40'000, 2048}, row);
  ASSERT_TRUE(run_with(alone.args(), "cpu").ok());
  const Columns picks = alone.picks(0);
  ASSERT_EQ(picks.size(), 2048u);
  struct Placement {
    std::int64_t rows, at, width;
  };
  for (const Placement p :
       {Placement{64, 0, 40'000}, {64, 63, 40'000}, {65, 64, 40'000}, {2, 1, 1'048'576}, {1, 0, 65'536}}) {
    TopkCall c = make_topk({p.rows, p.width, 2048},
                           std::vector<float>(static_cast<std::size_t>(p.rows * p.width), 0.5f));
    for (std::int64_t j = 0; j < 40'000; ++j) c.scores.at<float>(p.at, j) = row[static_cast<std::size_t>(j)];
    Columns ends(static_cast<std::size_t>(p.rows), p.width);
    ends[static_cast<std::size_t>(p.at)] = 40'000;
    c.end = TensorBox::of<std::int64_t>(DType::i32, ends);
    for_each_host_run(c.args(),
                      [&](const std::string& kernel, const std::string& label, const Executor* executor) {
                        ASSERT_TRUE(run_with(c.args(), "cpu", kernel.c_str(), executor).ok());
                        ASSERT_EQ(c.picks(p.at), picks) << label << ", row " << p.at << " of " << p.rows;
                      });
  }
}

TEST(TopkCases, H19_quarter_binade) {
  std::vector<float> scores(8192, -1.f);
  std::vector<std::size_t> places(8192);
  std::iota(places.begin(), places.end(), 0u);
  std::shuffle(places.begin(), places.end(), std::mt19937_64(1));
  for (std::size_t i = 0; i < 1000; ++i) scores[places[i]] = 4.f + static_cast<float>(i) / 250.f;
  for (std::size_t i = 0; i < 4139; ++i) scores[places[1000 + i]] = 1.f + static_cast<float>(i) / 32'768.f;
  expect_case(
      [&] {
        return make_topk({1, 8192, 2048}, scores);
      },
      [&](TopkCall& c) {
        c.expect_prefix(0, 2048);
        for (const std::int64_t column : c.picks(0))
          EXPECT_GE(scores[static_cast<std::size_t>(column)], 1.f + (4139.f - 1048.f) / 32'768.f);
      });
}

TEST(TopkCases, H20_padding_rows_hold_no_index) {
  const auto make = [] {
    TopkCall c =
        with_lengths(make_topk({8, 1000, 64}, Family::random), {500, 600, 700, 800, 900, 0, 0, 0}, 1);
    c.out.fill([](auto, auto) { return 1'000'000; });
    c.extra.space = TopkSpace::paged;
    c.has_pages = c.has_raw = true;
    c.page_table = TensorBox(DType::i32, {8, 16});
    c.page_table.fill([](auto b, auto j) { return b >= 5 ? 2'147'483'647 : b * 16 + j; });
    c.extra.pages.pool_pages = 128;
    return c;
  };
  expect_case(make, [](TopkCall& c) {
    for (std::int64_t r = 0; r < 8; ++r) c.expect_prefix(r, r < 5 ? 64 : 0);
  });
}

TEST(TopkCases, H24_k_above_the_width) {
  const auto make = [] {
    TopkCall c = with_lengths(make_topk({3, 64, 2048}, Family::random), {64, 10, 0}, 1);
    c.out.fill([](auto, auto) { return 77; });
    return c;
  };
  expect_case(make, [](TopkCall& c) {
    const std::int64_t used[] = {64, 10, 0};
    for (std::int64_t r = 0; r < 3; ++r) {
      c.expect_prefix(r, used[r]);
      EXPECT_EQ(c.picks(r), range(0, used[r]));
    }
  });
}

TEST(TopkCases, H28_derived_ends_below_zero) {
  expect_case(
      [] {
        return with_lengths(make_topk({12, 16, 4}, Family::random), {2, 0, 3}, 4);
      },
      [](TopkCall& c) {
        const std::int64_t used[] = {0, 0, 1, 2, 0, 0, 0, 0, 0, 1, 2, 3};
        for (std::int64_t r = 0; r < 12; ++r) c.expect_prefix(r, used[r]);
      });
  expect_case(
      [] {
        return with_lengths(make_topk({8, 16, 4}, Family::random), {0}, 8, DType::i64);
      },
      [](TopkCall& c) {
        for (std::int64_t r = 0; r < 8; ++r) c.expect_prefix(r, 0);
      });
}

TEST(TopkCases, H32_ties_by_construction) {
  std::vector<float> row(8192);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i / 4 % 1000);
  // 2051 of groups of four: scores 999 down to 744 fill 2048 places twice over each period, then three of a
  // tie.
  TopkCall first = make_topk({1, 8192, 2051}, row);
  ASSERT_TRUE(run_with(first.args(), "reference").ok());
  const Columns expected = first.picks(0);
  for (int repeat = 0; repeat < 50; ++repeat) {
    TopkCall c = make_topk({1, 8192, 2051}, row);
    ASSERT_TRUE(run_with(c.args(), "cpu").ok());
    ASSERT_EQ(c.picks(0), expected);
  }
  std::vector<float> batch(38 * 8192, 3.f);
  std::copy(row.begin(), row.end(), batch.begin() + 37 * 8192);
  expect_case(
      [&] {
        return make_topk({38, 8192, 2051}, batch);
      },
      [&](TopkCall& c) { EXPECT_EQ(c.picks(37), expected); });
}

TEST(TopkCases, H35_the_last_byte_decides) {
  std::vector<float> scores(5000);
  std::vector<std::int64_t> rank_at(5000);
  for (std::uint32_t j = 0; j < 5000; ++j) {
    scores[2003 * j % 5000] = std::bit_cast<float>(0x41200000u + j);
    rank_at[2003 * j % 5000] = j;
  }
  for (const std::int64_t k : {1, 17, 2048, 4999})
    expect_case(
        [&] {
          return make_topk({1, 5000, k}, scores);
        },
        [&](TopkCall& c) {
          c.expect_prefix(0, k);
          for (const std::int64_t column : c.picks(0))
            ASSERT_GE(rank_at[static_cast<std::size_t>(column)], 5000 - k);
        });
}

TEST(TopkCases, H46_dispatch_borders) {
  for (const std::int64_t rows : {31, 32})
    for (const std::int64_t entries : {8191, 8192, 8193, 21'312})
      expect_parity([&] { return make_topk({rows, entries, 512}, Family::random); });
  expect_parity([] { return make_topk({1024, 1'024, 512}, Family::random); });
  // Our own borders: the shortest row with a guess, a word, a chunk, the run length's change.
  for (const std::int64_t width : {1023, 1024, 1025, 2047, 2048, 2049, 262'143, 262'144})
    for (const std::int64_t k : {1, 512, 1024})
      expect_parity([&] { return make_topk({1, width, k}, Family::learned_like); });
}

TEST(TopkCases, H49_bf16_repeats) {
  for (const std::int64_t width : {256, 257, 2048})
    for (const std::int64_t k : {8, 512}) {
      const auto make = [&] { return make_topk({256, width, k, DType::bf16}, Family::random, 9); };
      TopkCall first = make();
      ASSERT_TRUE(run_with(first.args(), "reference").ok());
      for (int repeat = 0; repeat < 10; ++repeat) {
        TopkCall c = make();
        ASSERT_TRUE(run_with(c.args(), "cpu", "", repeat % 2 == 0 ? nullptr : &two_threads()).ok());
        ASSERT_EQ(c.out.bytes(), first.out.bytes());
      }
    }
}

TEST(TopkCases, H57_signed_zeros_are_equal) {
  std::vector<float> scores(64);
  for (std::size_t i = 0; i < 64; ++i) scores[i] = i % 2 == 0 ? 0.f : -0.f;
  scores[63] = -1e-45f;
  expect_case(
      [&] {
        return make_topk({1, 64, 33}, scores);
      },
      [](TopkCall& c) { EXPECT_EQ(c.picks(0), range(0, 33)); });
  expect_case(
      [&] {
        TopkCall c = make_topk({1, 64, 64}, scores);
        c.extra.order = TopkOrder::by_score;
        return c;
      },
      [](TopkCall& c) { EXPECT_EQ(c.picks(0), range(0, 64)); });
}

TEST(TopkCases, H61_score_start_and_table_start_are_independent) {
  for (const std::int64_t table_start : {0, 128}) {
    const auto make = [&] {
      TopkCall c = make_topk({1, 2200, 700}, Family::random);
      c.has_start = true;
      c.start = TensorBox::of<std::int64_t>(DType::i32, {1500});
      c.end = TensorBox::of<std::int64_t>(DType::i32, {2200});
      c.extra.space = TopkSpace::paged;
      c.has_pages = c.has_raw = c.has_table_start = true;
      c.table_start = TensorBox::of<std::int64_t>(DType::i64, {table_start});
      c.page_table = TensorBox(DType::i32, {1, 13});
      c.page_table.fill([](auto, auto j) { return 40 - j; });
      return c;
    };
    expect_case(make, [&](TopkCall& c) {
      c.expect_prefix(0, 700);
      for (std::int64_t t = 0; t < 700; ++t) {
        const std::int64_t position = table_start + static_cast<std::int64_t>(c.raw.get(0, t));
        ASSERT_EQ(c.out.get(0, t), static_cast<double>((40 - position / 64) * 64 + position % 64));
      }
    });
  }
}

TEST(TopkCases, H68_boundary_inputs) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {nan, -nan, inf, -inf, 0.f};
  for (const bool skip : {true, false})
    expect_case(
        [&] {
          TopkCall c = make_topk({1, 5, 5}, scores);
          c.extra.order = TopkOrder::by_score;
          c.extra.skip_neg_inf = skip;
          return c;
        },
        [&](TopkCall& c) {
          EXPECT_EQ(c.picks(0), skip ? (Columns{0, 1, 2, 4}) : (Columns{0, 1, 2, 4, 3}));
        });
  expect_case(
      [&] {
        return make_topk({1, 5, 2}, scores);
      },
      [](TopkCall& c) { EXPECT_EQ(c.picks(0), range(0, 2)); });
  expect_case(
      [] {
        return make_topk({2, 5, 0}, Family::nan);
      },
      [](TopkCall& c) { EXPECT_EQ(c.counts.get(1), 0); });
  expect_case(
      [] {
        return make_topk({2, 1, 3}, Family::nan);
      },
      [](TopkCall& c) { EXPECT_EQ(c.picks(0), range(0, 1)); });
}

}  // namespace
}  // namespace keysieve::test

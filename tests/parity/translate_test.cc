// translate against its definition, and the field failures of page tables.
#include "keysieve/translate.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "support/parity.hpp"

namespace keysieve::test {
namespace {

struct TranslateCall {
  TensorBox indices, page_table, row_to_request, table_start, slots, counts, raw;
  TranslateArgs extra;
  bool has_requests = false, has_table_start = false, has_raw = true, has_counts = true;

  TranslateArgs args() {
    TranslateArgs a = extra;
    a.indices = indices.tensor();
    a.pages.page_table = page_table.tensor();
    if (has_requests) a.pages.row_to_request = row_to_request.tensor();
    if (has_table_start) a.pages.table_start = table_start.tensor();
    a.slots = slots.tensor();
    if (has_counts) a.counts = counts.tensor();
    if (has_raw) a.raw = raw.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&indices, &page_table, &row_to_request, &table_start, &slots, &counts, &raw};
  }
  std::vector<std::int64_t> row(std::int64_t r) {
    std::vector<std::int64_t> result;
    for (std::int64_t t = 0; t < slots.tensor().shape[1]; ++t)
      result.push_back(static_cast<std::int64_t>(slots.get(r, t)));
    return result;
  }
};

TranslateCall make_call(const std::vector<std::vector<std::int64_t>>& indices, DType slots = DType::i32,
                        std::int64_t stride = 1) {
  const auto rows = static_cast<std::int64_t>(indices.size());
  const auto k = static_cast<std::int64_t>(rows == 0 ? 0 : indices[0].size());
  TranslateCall c;
  c.indices = TensorBox(DType::i32, {rows, k}, 2, stride);
  c.indices.fill(
      [&](auto i, auto j) { return indices[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]; });
  c.slots = TensorBox(slots, {rows, k}, 1, stride);
  c.counts = TensorBox(DType::i32, {rows}, 0, stride);
  c.raw = TensorBox(DType::i32, {rows, k}, 3, stride);
  return c;
}

template <class Make, class Check>
void expect_case(Make&& make, Check&& check) {
  expect_parity(make);
  auto shape = make();
  for_each_host_run(shape.args(),
                    [&](const std::string& kernel, const std::string& label, const Executor* executor) {
                      SCOPED_TRACE(label);
                      auto c = make();
                      ASSERT_TRUE(run_with(c.args(), "cpu", kernel.c_str(), executor).ok());
                      check(c);
                    });
}

// PGM-10 and PGM-11: requests, columns, pages and indices that do not exist. TRN-10: order.
TEST(Translate, MatchesReference) {
  std::mt19937_64 random(4);
  for (const TranslateMode mode : {TranslateMode::keep, TranslateMode::compact})
    for (const DType slots : {DType::i32, DType::i64})
      for (const std::int64_t page : {1, 3, 64, 100, 2'147'483'647})
        for (const std::int64_t pool : {-1, 0, 7, 1000})
          for (const std::int64_t stride : {1, 2}) {
            std::vector<std::vector<std::int64_t>> indices(6, std::vector<std::int64_t>(33));
            for (auto& row : indices)
              for (auto& index : row) {
                index = static_cast<std::int64_t>(random() % 500);
                if (random() % 6 == 0) index = -1;
                if (random() % 12 == 0) index = random() % 2 == 0 ? 2'147'483'647 : -2'147'483'647 - 1;
              }
            for (int variant = 0; variant < 3; ++variant)
              expect_parity([&] {
                TranslateCall c = make_call(indices, slots, stride);
                c.page_table = TensorBox(DType::i32, {3, 9}, 2, stride);
                c.page_table.fill([](auto b, auto j) { return (b * 5 + j * 3) % 11 - 1; });
                c.extra.mode = mode;
                c.extra.pages.page_size = page;
                c.extra.pages.pool_pages = pool;
                c.extra.pages.next_n = 2;
                c.has_raw = variant != 1;
                c.has_counts = variant != 2;
                if (variant == 1) {
                  c.has_requests = true;
                  c.row_to_request = TensorBox::of<std::int64_t>(DType::i32, {0, 2, 3, -1, 1, 2'147'483'647});
                }
                if (variant == 2) {
                  c.has_table_start = true;
                  c.table_start =
                      TensorBox::of<std::int64_t>(DType::i64, {0, 64, -5, std::int64_t{1} << 40, 7, 1});
                }
                return c;
              });
          }
}

TEST(Translate, EmptyShapes) {
  for (const std::int64_t rows : {0, 2})
    expect_parity([&] {
      TranslateCall c = make_call(std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(rows)));
      c.page_table = TensorBox(DType::i32, {0, 0});
      return c;
    });
}

// TRN-09: slots, or raw, may be the indices themselves.
TEST(Translate, InPlace) {
  for (const TranslateMode mode : {TranslateMode::keep, TranslateMode::compact}) {
    TranslateCall c = make_call({{5, -1, 300, 63, 0}});
    c.page_table = TensorBox(DType::i32, {1, 4});
    c.page_table.fill([](auto, auto j) { return 9 - j; });
    c.extra.mode = mode;
    ASSERT_TRUE(run_with(c.args(), "cpu").ok());
    const std::vector<std::int64_t> expected = c.row(0);
    TranslateArgs a = c.args();
    a.slots = a.indices;
    ASSERT_TRUE(run_with(a, "cpu").ok());
    for (std::int64_t t = 0; t < 5; ++t)
      EXPECT_EQ(c.indices.get(0, t), static_cast<double>(expected[static_cast<std::size_t>(t)]));
  }
}

TEST(TranslateCases, H02_requests_and_columns_outside_the_table) {
  const auto make = [](TranslateMode mode, DType slots) {
    return [mode, slots] {
      const std::vector<std::int64_t> indices = {5, 300, -1, 63, 255, 256};
      TranslateCall c = make_call({indices, indices, indices, indices}, slots);
      c.page_table = TensorBox(DType::i32, {3, 4}, 2);
      for (std::int64_t i = 0; i < 3 * 6; ++i)
        c.page_table.at<std::int32_t>(0, i) = 0x7fffffff;  // gaps as well
      c.page_table.fill([](auto b, auto j) { return b * 4 + j; });
      c.has_requests = true;
      c.row_to_request = TensorBox::of<std::int64_t>(DType::i32, {0, 2, 3, -1});
      c.extra.mode = mode;
      return c;
    };
  };
  for (const DType slots : {DType::i32, DType::i64})
    expect_case(make(TranslateMode::compact, slots), [](TranslateCall& c) {
      EXPECT_EQ(c.row(0), (std::vector<std::int64_t>{5, 63, 255, -1, -1, -1}));
      EXPECT_EQ(c.row(1), (std::vector<std::int64_t>{8 * 64 + 5, 8 * 64 + 63, 8 * 64 + 255, -1, -1, -1}));
      EXPECT_EQ(c.row(2), std::vector<std::int64_t>(6, -1));
      EXPECT_EQ(c.row(3), std::vector<std::int64_t>(6, -1));
      const double counts[] = {3, 3, 0, 0};
      for (std::int64_t r = 0; r < 4; ++r) EXPECT_EQ(c.counts.get(r), counts[r]);
    });
  for (const DType slots : {DType::i32, DType::i64})
    expect_case(make(TranslateMode::keep, slots), [](TranslateCall& c) {
      EXPECT_EQ(c.row(0), (std::vector<std::int64_t>{5, -1, -1, 63, 255, -1}));
      EXPECT_EQ(c.counts.get(0), 3);
    });
}

// One flat list of pages is a table of one request; table_start says where each row's pages begin.
TEST(TranslateCases, H36_pages_packed_back_to_back) {
  const std::vector<std::int64_t> pages = {7, 3, 1, 9, 4, 8, 2, 6, 5, 0, 11, 10};
  const auto packed = [&] {
    TranslateCall c = make_call({{0, 64}, {0, 639}});
    c.page_table = TensorBox(DType::i32, {1, 12});
    c.page_table.fill([&](auto, auto j) { return pages[static_cast<std::size_t>(j)]; });
    c.has_requests = c.has_table_start = true;
    c.row_to_request = TensorBox::of<std::int64_t>(DType::i32, {0, 0});
    c.table_start = TensorBox::of<std::int64_t>(DType::i32, {0, 2 * 64});
    return c;
  };
  const auto pitched = [&] {
    TranslateCall c = make_call({{0, 64}, {0, 639}});
    c.page_table = TensorBox(DType::i32, {2, 10});
    c.page_table.fill([&](auto b, auto j) {
      return b == 0 ? (j < 2 ? pages[static_cast<std::size_t>(j)] : 0x7fffffff)
                    : pages[static_cast<std::size_t>(2 + j)];
    });
    return c;
  };
  const auto check = [](TranslateCall& c) {
    EXPECT_EQ(c.row(0), (std::vector<std::int64_t>{7 * 64, 3 * 64}));
    EXPECT_EQ(c.row(1), (std::vector<std::int64_t>{1 * 64, 10 * 64 + 63}));
  };
  expect_case(packed, check);
  expect_case(pitched, check);
}

// A table in units of five pages of 32: its page size is 160 entries, and 160 = 5 * 32 gives the same slots.
TEST(TranslateCases, H39_table_units_of_several_pages) {
  std::vector<std::int64_t> entries = {0, 159, 160, 13'119, 13'120, 40'159};
  for (std::int64_t e = 0; e < 65'536; ++e) entries.push_back(e);
  const auto make = [&] {
    TranslateCall c = make_call({entries});
    c.page_table = TensorBox(DType::i32, {1, 410});
    c.page_table.fill([](auto, auto j) { return (j * 37 + 5) % 410; });
    c.extra.pages.page_size = 160;
    c.extra.pages.pool_pages = 410;
    return c;
  };
  expect_case(make, [&](TranslateCall& c) {
    std::set<std::int64_t> distinct;
    for (std::size_t t = 0; t < entries.size(); ++t) {
      const std::int64_t e = entries[t];
      const std::int64_t page = (e / 160 * 37 + 5) % 410 * 5 + e % 160 / 32;
      ASSERT_EQ(c.slots.get(0, static_cast<std::int64_t>(t)), static_cast<double>(page * 32 + e % 32));
      if (t >= 6) distinct.insert(page * 32 + e % 32);
    }
    EXPECT_EQ(distinct.size(), 65'536u);
  });
}

TEST(TranslateCases, H44_stale_rows_of_a_padded_batch) {
  const auto make = [] {
    TranslateCall c = make_call(std::vector<std::vector<std::int64_t>>(8, {0, 100, 639, 640, 9'000}));
    c.page_table = TensorBox(DType::i32, {5, 10}, 3);
    c.page_table.fill([](auto b, auto j) { return b * 10 + j; });
    c.has_requests = true;
    c.row_to_request = TensorBox::of<std::int64_t>(DType::i32, {0, 1, 2, 3, 4, 7, 6, 5});
    return c;
  };
  expect_case(make, [](TranslateCall& c) {
    for (std::int64_t r = 0; r < 8; ++r) EXPECT_EQ(c.counts.get(r), r < 5 ? 3 : 0);
  });
}

TEST(TranslateCases, H54_start_plus_length_past_the_table) {
  std::vector<std::int64_t> indices(834);
  for (std::size_t t = 0; t < indices.size(); ++t) indices[t] = static_cast<std::int64_t>(t);
  const auto make = [&] {
    TranslateCall c = make_call({indices});
    c.page_table = TensorBox(DType::i32, {998, 1024});
    c.page_table.fill([](auto, auto j) { return j; });
    c.extra.pages.page_size = 16;
    c.has_requests = c.has_table_start = true;
    c.row_to_request = TensorBox::of<std::int64_t>(DType::i32, {997});
    c.table_start = TensorBox::of<std::int64_t>(DType::i32, {15'967});
    return c;
  };
  expect_case(make, [](TranslateCall& c) {
    EXPECT_EQ(c.counts.get(0), 417);
    EXPECT_EQ(c.slots.get(0, 416), 16'383);
    EXPECT_EQ(c.slots.get(0, 417), -1);
  });
}

}  // namespace
}  // namespace keysieve::test

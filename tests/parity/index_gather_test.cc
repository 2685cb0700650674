// index_gather against its definition, to the byte, and against index_store.
#include "keysieve/index_gather.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "keysieve/index_store.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

struct GatherCall {
  TensorBox cache, page_table, table_offsets, row_offsets, start, keys, scales;
  IndexGatherArgs extra;
  bool flat = false, has_start = false;

  IndexGatherArgs args() {
    IndexGatherArgs a = extra;
    a.cache = cache.tensor();
    a.page_table = page_table.tensor();
    if (flat) a.table_offsets = table_offsets.tensor();
    a.row_offsets = row_offsets.tensor();
    if (has_start) a.start = start.tensor();
    a.keys = keys.tensor();
    a.scales = scales.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&cache, &page_table, &table_offsets, &row_offsets, &start, &keys, &scales};
  }
};

// Six requests; the table has ids that do not exist.
GatherCall make_call(KeyFormat format, std::int64_t dim, std::int64_t page_tokens, bool flat, bool has_start,
                     const std::vector<std::int64_t>& row_offsets, std::int64_t rows) {
  const auto requests = static_cast<std::int64_t>(row_offsets.size()) - 1;
  const bool fp8 = format == KeyFormat::fp8;
  GatherCall c;
  c.extra.format = format;
  c.extra.page_tokens = page_tokens;
  c.flat = flat;
  c.has_start = has_start;
  c.cache = TensorBox(DType::u8, {9, page_tokens * index_token_bytes(format, dim) + 8}, 3);
  std::mt19937_64 random(static_cast<std::uint64_t>(dim + page_tokens));
  c.cache.fill([&](auto, auto) { return random() % 256; });
  const auto page = [](auto i, auto j) { return (i * 7 + j * 5) % 12 - 1; };
  if (flat) {
    c.page_table = TensorBox(DType::i32, {requests * 4 + 1}, 0, 2);
    c.page_table.fill(page);
    std::vector<std::int64_t> offsets = {0, 4, 4, 9, 12, requests * 4 + 1, 3, 900};
    offsets.resize(static_cast<std::size_t>(requests + 1), 2);
    c.table_offsets = TensorBox::of(DType::i32, offsets);
  } else {
    c.page_table = TensorBox(DType::i32, {requests, 5}, 2, 2);
    c.page_table.fill(page);
    c.table_offsets = TensorBox(DType::i32, {1});
  }
  c.row_offsets = TensorBox::of(DType::i64, row_offsets);
  std::vector<std::int64_t> start = {0, 5, -3, std::numeric_limits<std::int64_t>::max() - 2, 2, 70};
  start.resize(static_cast<std::size_t>(requests), 1);
  c.start = TensorBox::of(DType::i64, start);
  c.keys = TensorBox(DType::u8, {rows, fp8 ? dim : dim / 2}, 5);
  c.keys.fill([](auto i, auto j) { return (i * 3 + j) % 256; });
  c.scales = fp8 ? TensorBox(DType::f32, {rows}, 0, 2) : TensorBox(DType::u8, {rows, dim / 32}, 1);
  c.scales.fill([](auto i, auto) { return i % 100; });
  return c;
}

// IXG-17: rows of no request stay. IXG-18: of requests that claim one row the last has it. IXG-19: a row whose page
// does not exist becomes zeros.
TEST(IndexGather, MatchesReferenceForEveryFormat) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<std::int64_t>> offsets = {
      {0, 10, 10, 37, 60, 61, 90},           // as engines give them
      {4, 30, 20, 55, -9, 5, 12},            // backward, overlapping, below zero
      {-kFar, kFar, 3, kFar, -kFar - 1, 2},  // far outside
      {7}};
  for (const KeyFormat format : {KeyFormat::fp8, KeyFormat::mxfp4})
    for (const std::int64_t dim : {32, 64, 128})
      for (const std::int64_t page_tokens : {1, 7, 16, 128})
        for (const bool flat : {false, true})
          for (const bool has_start : {false, true})
            for (const auto& rows : offsets)
              expect_parity([&] { return make_call(format, dim, page_tokens, flat, has_start, rows, 80); });
}

// More rows than one task has.
TEST(IndexGather, ManyRows) {
  for (const KeyFormat format : {KeyFormat::fp8, KeyFormat::mxfp4})
    expect_parity([&] {
      return make_call(format, 32, 64, false, true, {0, 1000, 1100, 2500, 2600, 2600, 3000}, 3001);
    });
}

// What index_store wrote comes back, in the order of positions.
TEST(IndexGather, ReadsWhatIndexStoreWrote) {
  for (const KeyFormat format : {KeyFormat::fp8, KeyFormat::mxfp4}) {
    constexpr std::int64_t kTokens = 40, kPage = 16, kDim = 64;
    GatherCall gathered = make_call(format, kDim, kPage, false, false, {0, kTokens}, kTokens);
    const std::vector<std::int64_t> pages = {4, 0, 7, 1, 1};
    gathered.page_table = TensorBox(DType::i32, {1, 5});
    gathered.page_table.fill([&](auto, auto j) { return pages[static_cast<std::size_t>(j)]; });
    TensorBox keys(DType::f32, {kTokens, kDim});
    keys.fill([](auto i, auto j) { return static_cast<float>((i * 31 + j * 17) % 97) - 48.f; });
    std::vector<std::int64_t> slots, flat_slots;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      slots.push_back(pages[static_cast<std::size_t>(t / kPage)] * kPage + t % kPage);
      flat_slots.push_back(t);
    }
    const auto store = [&](TensorBox& cache, const std::vector<std::int64_t>& to, std::int64_t page_tokens) {
      TensorBox where = TensorBox::of(DType::i64, to);
      IndexStoreArgs a;
      a.keys = keys.tensor();
      a.slots = where.tensor();
      a.cache = cache.tensor();
      a.page_tokens = page_tokens;
      a.format = format;
      ASSERT_TRUE(run_with(a, "cpu").ok());
    };
    store(gathered.cache, slots, kPage);
    ASSERT_TRUE(run_with(gathered.args(), "cpu").ok());
    // One page that holds all tokens is laid out as the outputs are.
    TensorBox page(DType::u8, {1, kTokens * index_token_bytes(format, kDim)});
    store(page, flat_slots, kTokens);
    const std::int64_t code_bytes = format == KeyFormat::fp8 ? kDim : kDim / 2;
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t i = 0; i < code_bytes; ++i)
        ASSERT_EQ(gathered.keys.get(t, i), page.get(0, t * code_bytes + i)) << t << ", " << i;
  }
}

// The table is 1,024 columns wide; row 997 starts at 15,967 and asks for 834 tokens, of which 417 have a column.
TEST(IndexGatherCases, H54_starts_near_the_end_of_the_table) {
  const auto make = [] {
    GatherCall c = make_call(KeyFormat::fp8, 32, 16, false, true, {0, 0, 834}, 834);
    c.page_table = TensorBox(DType::i32, {2, 1024});
    c.page_table.fill([](auto, auto j) { return j % 9; });
    c.start = TensorBox::of(DType::i64, std::vector<std::int64_t>{0, 15967});
    return c;
  };
  expect_parity(make);
  GatherCall c = make();
  ASSERT_TRUE(run_with(c.args(), "cpu").ok());
  for (std::int64_t row = 417; row < 834; ++row)
    for (std::int64_t i = 0; i < 32; ++i) ASSERT_EQ(c.keys.get(row, i), 0) << row;
}

}  // namespace
}  // namespace keysieve::test

// packed_mask and mask_indices on the device, against the definition written out here bit by bit.
#include <gtest/gtest.h>

#include <cmath>

#include "support/families.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

enum class Source { indices, candidates, scores };

struct MaskCall {
  TensorBox q_start, key_first, key_count, list, scores, thresholds, end, start, mask, any, all;
  Source source = Source::indices;
  bool has_first = true, has_bounds = false, has_summary = true;
  std::int64_t block_size = 8;

  PackedMaskArgs args() {
    PackedMaskArgs a;
    a.q_start = q_start.tensor();
    a.key_count = key_count.tensor();
    if (has_first) a.key_first = key_first.tensor();
    if (source == Source::indices) a.indices = list.tensor();
    if (source == Source::candidates) a.candidates = list.tensor();
    if (source == Source::scores) {
      a.scores = scores.tensor();
      a.thresholds = thresholds.tensor();
    }
    if (has_bounds) {
      a.bounds.start = start.tensor();
      a.bounds.end = end.tensor();
    }
    a.block_size = block_size;
    a.mask = mask.tensor();
    if (has_summary) {
      a.any = any.tensor();
      a.all = all.tensor();
    }
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&q_start, &key_first, &key_count, &list, &scores, &thresholds, &end, &start, &mask, &any, &all};
  }
};

constexpr std::int64_t kRequests = 3, kRows = 256, kTokens = 150;

MaskCall make(Source source, std::int64_t words, std::int64_t first, bool bounds, DType dtype, int variant) {
  MaskCall c;
  c.source = source;
  c.has_bounds = bounds && source != Source::indices;
  c.has_first = variant % 2 == 0;
  c.block_size = variant % 3 == 0 ? 8 : 45;
  const std::int64_t keys = words * 32, width = keys + 37;
  c.q_start = TensorBox::of<int>(
      DType::i32, variant == 3 ? std::vector<int>{0, 0, 0, 0} : std::vector<int>{0, 129, 129, 150});
  c.key_first = TensorBox::of<std::int64_t>(variant == 2 ? DType::i64 : DType::i32, {first, 0, 5});
  c.key_count = TensorBox::of<std::int64_t>(variant == 2 ? DType::i64 : DType::i32,
                                            {keys - 3, keys + 99, variant == 4 ? -4 : 70});
  c.list = TensorBox(DType::i32, {kTokens, 77}, variant, 1 + variant % 2);
  c.list.fill([&](auto i, auto j) {
    if (j % 9 == 4) return std::int64_t{-1};
    const std::int64_t limit = source == Source::candidates ? width / c.block_size + 2 : width;
    return (i * 131 + j * (variant % 2 == 0 ? 1 : 59)) % limit;
  });
  const std::vector<float> values = make_scores(Family::nan, kTokens * width, 5);
  c.scores = TensorBox(dtype, {kTokens, source == Source::scores ? width : 1}, 1, 1 + variant % 2);
  c.scores.fill([&](auto i, auto j) { return values[static_cast<std::size_t>(i * width + j)]; });
  c.thresholds = TensorBox(DType::f32, {kTokens});
  c.thresholds.fill(
      [](auto i, auto) { return i % 7 == 0 ? std::nan("") : 0.1 * static_cast<double>(i % 5); });
  c.start = TensorBox(DType::i32, {kTokens});
  c.start.fill([](auto i, auto) { return i % 11; });
  c.end = TensorBox(DType::i32, {kTokens});
  c.end.fill([&](auto i, auto) { return (i * 37) % (width + 9); });
  // Off 16 bytes as well: rows of a request start on 16 bytes of it, wherever it lies.
  c.mask = TensorBox(DType::u32, {kRequests, kRows, words}, variant == 1 ? 4 : 0, 1, variant == 4 ? 1 : 0);
  c.any = TensorBox(DType::u32, {kRequests, kRows / 128, (words + 127) / 128});
  c.all = c.any;
  return c;
}

struct Row {
  std::int64_t token, first, count;  // token -1: padding
};
Row row_of(MaskCall& c, std::int64_t request, std::int64_t row, std::int64_t words) {
  const auto token = static_cast<std::int64_t>(c.q_start.get(request)) + row;
  const std::int64_t count = static_cast<std::int64_t>(c.key_count.get(request));
  return {token < c.q_start.get(request + 1) && token < kTokens ? token : -1,
          c.has_first ? static_cast<std::int64_t>(c.key_first.get(request)) : 0,
          std::max<std::int64_t>(0, std::min(count, words * 32))};
}

// Whether local key `key` of a token is in the mask, from its source alone.
bool keeps(MaskCall& c, std::int64_t token, std::int64_t key) {
  const std::int64_t width = c.source == Source::scores ? c.scores.tensor().shape[1] : 0x7fffffff;
  std::int64_t start = 0, end = width;
  if (c.has_bounds) {
    end = std::min<std::int64_t>(static_cast<std::int64_t>(c.end.get(token)), width);
    start = std::min<std::int64_t>(static_cast<std::int64_t>(c.start.get(token)), end);
  }
  if (key < 0 || (c.source != Source::indices && key >= end - start)) return false;
  if (c.source == Source::scores) {
    const double score = c.scores.get(token, start + key);
    return score >= c.thresholds.get(token) || std::isnan(score);
  }
  const std::int64_t wanted = c.source == Source::indices ? key : key / c.block_size;
  for (std::int64_t j = 0; j < 77; ++j)
    if (static_cast<std::int64_t>(c.list.get(token, j)) == wanted) return true;
  return false;
}

void expect_mask(MaskCall call, std::int64_t words) {
  MaskCall want = call;
  const std::int64_t strips = kRows / 128, summary_words = (words + 127) / 128;
  for (std::int64_t r = 0; r < kRequests; ++r)
    for (std::int64_t s = 0; s < strips; ++s)
      for (std::int64_t w = 0; w < summary_words; ++w) {
        want.any.at<std::uint32_t>(r, s, w) = 0;
        std::uint32_t tiles = 0;
        for (std::int64_t t = 0; t < 32; ++t) tiles |= (w * 32 + t) * 4 < words ? 1u << t : 0u;
        want.all.at<std::uint32_t>(r, s, w) = tiles;
      }
  for (std::int64_t r = 0; r < kRequests; ++r)
    for (std::int64_t q = 0; q < kRows; ++q) {
      const Row row = row_of(call, r, q, words);
      for (std::int64_t w = 0; w < words; ++w) {
        std::uint32_t bits = 0;
        for (std::int64_t i = 0; i < 32; ++i) {
          const std::int64_t j = w * 32 + i, tile = j / 128;
          const bool on = row.token >= 0 && j < row.count && keeps(call, row.token, row.first + j);
          bits |= on ? 1u << i : 0u;
          if (on) want.any.at<std::uint32_t>(r, q / 128, tile / 32) |= 1u << (tile % 32);
          if (!on && row.token >= 0 && j < row.count)
            want.all.at<std::uint32_t>(r, q / 128, tile / 32) &= ~(1u << (tile % 32));
        }
        want.mask.at<std::uint32_t>(r, q, w) = bits;
      }
    }
  std::vector<MaskCall> bundles{call, call}, expected{want, want};
  expect_device_replays(*device_harness, bundles, expected, SameBytes{});
}

TEST(PackedMaskDevice, MatchesTheDefinition) {
  for (const Source source : {Source::indices, Source::candidates, Source::scores})
    for (const std::int64_t words : {8, 12, 132})
      for (const std::int64_t first : {0, 64, 37, -9})
        for (int variant = 0; variant < 5; ++variant) {
          SCOPED_TRACE("source " + std::to_string(static_cast<int>(source)) + " words " +
                       std::to_string(words) + " first " + std::to_string(first) + " variant " +
                       std::to_string(variant));
          if (words == 132 && (first == 64 || variant == 1)) continue;
          expect_mask(
              make(source, words, first, variant % 2 == 0, variant == 2 ? DType::bf16 : DType::f32, variant),
              words);
        }
}

TEST(PackedMaskDevice, RowsOfSeveralSegments) {
  // 5000 words: more than one thread block holds.
  MaskCall c = make(Source::indices, 8, 0, false, DType::f32, 0);
  c.mask = TensorBox(DType::u32, {kRequests, kRows, 5000});
  c.any = TensorBox(DType::u32, {kRequests, kRows / 128, 40});
  c.all = c.any;
  c.key_count = TensorBox::of<std::int64_t>(DType::i32, {160000, 5, 140000});
  c.list.fill([](auto i, auto j) { return (i * 7919 + j * 2081) % 160003; });
  MaskCall want = c;
  for (TensorBox* box : {&want.mask, &want.any, &want.all})
    for (std::int64_t r = 0; r < kRequests; ++r)
      for (std::int64_t q = 0; q < box->tensor().shape[1]; ++q)
        for (std::int64_t w = 0; w < box->tensor().shape[2]; ++w) box->at<std::uint32_t>(r, q, w) = 0;
  for (std::int64_t r = 0; r < kRequests; ++r) {
    for (std::int64_t s = 0; s < 2; ++s) {
      const std::int64_t rows = static_cast<std::int64_t>(c.q_start.get(r + 1) - c.q_start.get(r)) - s * 128;
      // A tile is full only if none of its bits means anything: 77 indices cannot fill 128 x 128.
      for (std::int64_t t = 0; t < 1250; ++t)
        if (rows <= 0 || t * 128 >= c.key_count.get(r))
          want.all.at<std::uint32_t>(r, s, t / 32) |= 1u << (t % 32);
    }
    for (std::int64_t q = 0; q < kRows; ++q) {
      const Row row = row_of(c, r, q, 5000);
      if (row.token < 0) continue;
      for (std::int64_t j = 0; j < 77; ++j) {
        const auto bit = static_cast<std::int64_t>(c.list.get(row.token, j)) - row.first;
        if (bit < 0 || bit >= row.count) continue;
        want.mask.at<std::uint32_t>(r, q, bit / 32) |= 1u << (bit % 32);
        want.any.at<std::uint32_t>(r, q / 128, bit / 4096) |= 1u << (bit / 128 % 32);
      }
    }
  }
  std::vector<MaskCall> bundles{c}, expected{want};
  expect_device_replays(*device_harness, bundles, expected, SameBytes{});
}

struct ListCall {
  TensorBox q_start, key_first, key_count, mask, out, counts;
  MaskIndicesArgs args() {
    MaskIndicesArgs a;
    a.q_start = q_start.tensor();
    a.key_first = key_first.tensor();
    a.key_count = key_count.tensor();
    a.mask = mask.tensor();
    a.out = out.tensor();
    a.counts = counts.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&q_start, &key_first, &key_count, &mask, &out, &counts}; }
};

TEST(MaskIndicesDevice, ListsTheBitsInOrder) {
  for (const std::int64_t words : {4, 300})
    for (const std::int64_t places : {0, 3, 1000}) {
      ListCall c{TensorBox::of<int>(DType::i32, {1, 5, 5, 9}),
                 TensorBox::of<int>(DType::i64, {0, 3, 100}),
                 TensorBox::of<int>(DType::i32, {static_cast<int>(words * 32 - 7), 10, 64}),
                 TensorBox(DType::u32, {3, 6, words}, 4),
                 TensorBox(DType::i32, {11, places}, 2, 2),
                 TensorBox(DType::i32, {11})};
      for (std::int64_t r = 0; r < 3; ++r)
        for (std::int64_t q = 0; q < 6; ++q)
          for (std::int64_t w = 0; w < words; ++w)
            c.mask.at<std::uint32_t>(r, q, w) =
                static_cast<std::uint32_t>((r * 77 + q * 13 + w) * 2654435761u) &
                (w % 3 == 0 ? ~0u : 0x80000001u);
      ListCall want = c;
      for (std::int64_t token = 0; token < 11; ++token) {
        std::vector<std::int64_t> keys;
        for (std::int64_t r = 0; r < 3; ++r)
          if (token >= c.q_start.get(r) && token < c.q_start.get(r + 1))
            for (std::int64_t j = 0; j < c.key_count.get(r); ++j)
              if ((c.mask.at<std::uint32_t>(r, token - static_cast<std::int64_t>(c.q_start.get(r)), j / 32) >>
                   (j % 32)) &
                  1u)
                keys.push_back(static_cast<std::int64_t>(c.key_first.get(r)) + j);
        want.counts.set(static_cast<double>(keys.size()), token);
        for (std::int64_t i = 0; i < places; ++i)
          want.out.set(i < static_cast<std::int64_t>(keys.size())
                           ? static_cast<double>(keys[static_cast<std::size_t>(i)])
                           : -1,
                       token, i);
      }
      std::vector<ListCall> bundles{c}, expected{want};
      expect_device_replays(*device_harness, bundles, expected, SameBytes{});
    }
}

}  // namespace
}  // namespace keysieve::test

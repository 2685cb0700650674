// Every end with every start, for all widths, strides, repeats, block sizes and types of bounds: masks of each
// write range and block selection, replayed with the ends the other way round. Columns past an end are sentinels
// that no call may touch. What the host's kernels leave, which their own tests hold against the reference, is
// what must come back.
#include <gtest/gtest.h>

#include "calls.hpp"

namespace keysieve::test {
namespace {

struct Seed {
  std::int64_t width, column_stride, row_repeat, block_size;
  DType bounds;

  [[nodiscard]] std::string text() const {
    return "width " + std::to_string(width) + ", stride " + std::to_string(column_stride) + ", repeat " +
           std::to_string(row_repeat) + ", blocks of " + std::to_string(block_size);
  }
};

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (const std::int64_t width : {8192, 262144})
    for (const std::int64_t column_stride : {1, 2})
      for (const std::int64_t row_repeat : {1, 3})
        for (const std::int64_t block_size : {8, 16})
          for (const DType bounds : {DType::i32, DType::i64})
            all.push_back({width, column_stride, row_repeat, block_size, bounds});
  return all;
}

template <class Bundle>
Bundle make_seed(const Seed& s, bool reversed) {
  const std::int64_t w = s.width, starts[] = {0, 3, 7, 1024};
  const std::int64_t ends[] = {0, 1, 1023, 1024, 1025, w / 2, w - 1, w};
  const std::int64_t entries = std::ssize(starts) * std::ssize(ends), rows = entries * s.row_repeat;
  constexpr std::int64_t kPlaces = 512;
  Bundle call;
  // Half the memory where every second column is a gap.
  call.scores = TensorBox(s.column_stride == 1 ? DType::f32 : DType::bf16, {rows, w}, 3, s.column_stride);
  call.start = TensorBox(s.bounds, {entries});
  call.end = TensorBox(s.bounds, {entries});
  call.candidates = TensorBox(DType::i32, {rows, kPlaces}, 1);
  call.start.fill([&](auto i, auto) { return starts[i / std::ssize(ends)]; });
  call.end.fill([&](auto i, auto) {
    const std::int64_t at = i % std::ssize(ends);
    return ends[reversed ? std::ssize(ends) - 1 - at : at];
  });
  call.candidates.fill([&](auto i, auto j) {
    if (j % 11 == 3) return std::int64_t{-1};
    if (j % 13 == 5) return w / s.block_size + j;  // past the width
    return (i * 31 + j * 67) % (w / s.block_size + 2);
  });
  constexpr std::int64_t kValues = 4099;
  const std::vector<float> values = make_scores(Family::nan, kValues, 1);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0, at = r * 31 % kValues; c < w; ++c, at = at + 1 == kValues ? 0 : at + 1) {
      const float value = values[static_cast<std::size_t>(at)];
      if (s.column_stride == 1)
        call.scores.template at<float>(r, c) = value;
      else
        call.scores.template at<std::uint16_t>(r, c) = to_bf16(value);
    }
  call.mask.block_size = call.blocks.block_size = s.block_size;
  call.mask.bounds.row_repeat = call.blocks.bounds.row_repeat = s.row_repeat;
  return call;
}

template <class Bundle>
void expect_seed(const std::vector<Bundle>& given) {
  std::vector<Bundle> bundles = given, expected = given;
  for (Bundle& bundle : expected) ASSERT_TRUE(run_with(bundle.args(), "cpu").ok());
  expect_device_replays(*device_harness, bundles, expected, SameBytes{});
}

TEST(SeedMatrix, CandidateMask) {
  for (const Seed& s : seeds()) {
    SCOPED_TRACE(s.text());
    std::vector<MaskCall> calls{make_seed<MaskCall>(s, false), make_seed<MaskCall>(s, true)};
    for (const WriteRange range : {WriteRange::live, WriteRange::full, WriteRange::window}) {
      // The wide rows take turns: every write range meets every stride, and three of the other four choices each.
      if (s.width > 8192 && static_cast<int>(range) != (s.block_size / 8 + s.row_repeat / 2) % 3) continue;
      for (MaskCall& call : calls) {
        call.mask.write_range = range;
        call.mask.edge = s.bounds == DType::i64;
      }
      expect_seed(calls);
    }
  }
}

TEST(SeedMatrix, CandidateBlocks) {
  for (const Seed& s : seeds()) {
    SCOPED_TRACE(s.text());
    expect_seed(std::vector<BlocksCall>{make_seed<BlocksCall>(s, false), make_seed<BlocksCall>(s, true)});
  }
}

}  // namespace
}  // namespace keysieve::test

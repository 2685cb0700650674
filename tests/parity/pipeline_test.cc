// Operations together: three ways to one selection, and scratch that never shrinks when a size grows.
#include <gtest/gtest.h>

#include <random>

#include "keysieve/candidate_blocks.hpp"
#include "keysieve/candidate_mask.hpp"
#include "keysieve/mqa_logits.hpp"
#include "keysieve/topk.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

constexpr std::int64_t kRows = 200, kWidth = 4096, kBlock = 8, kK = 512, kCandidates = 512;

struct Rows {
  TensorBox scores{DType::f32, {kRows, kWidth}};
  TensorBox compact{DType::f32, {kRows, kCandidates* kBlock}};
  TensorBox candidates{DType::i32, {kRows, kCandidates}};
  TensorBox start, end;

  explicit Rows(std::int64_t row_repeat) {
    std::mt19937_64 random(33);
    const std::int64_t entries = (kRows + row_repeat - 1) / row_repeat;
    start = TensorBox(DType::i32, {entries});
    end = TensorBox(DType::i32, {entries});
    constexpr std::int64_t kSizes[] = {0, 1, 7, 8, 9, 511, 4000};
    for (std::int64_t entry = 0; entry < entries; ++entry) {
      const auto first = static_cast<std::int64_t>(random() % 16);
      start.set(static_cast<double>(first), entry);
      end.set(static_cast<double>(first + kSizes[random() % 7]), entry);
    }
    scores.fill([&](auto, auto) { return static_cast<int>(random() % 40) - 20; });
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto listed = static_cast<std::int64_t>(random() % (kCandidates + 1));
      for (std::int64_t j = 0; j < kCandidates; ++j) {
        const bool unused = j >= listed || random() % 11 == 0;
        const std::int64_t block = unused ? -1 : static_cast<std::int64_t>(random() % (kWidth / kBlock + 4));
        candidates.set(static_cast<double>(block), row, j);
        for (std::int64_t o = 0; o < kBlock; ++o) {
          const std::int64_t column = start.at<std::int32_t>(row / row_repeat) + block * kBlock + o;
          const bool stored = block >= 0 && column < kWidth;
          compact.set(stored ? scores.get(row, column) : -std::numeric_limits<double>::infinity(), row,
                      j * kBlock + o);
        }
      }
    }
  }
};

TopkArgs select(Rows& rows, Tensor scores, TensorBox& out, std::int64_t row_repeat) {
  TopkArgs a;
  a.scores = scores;
  a.bounds.start = rows.start.tensor();
  a.bounds.end = rows.end.tensor();
  a.bounds.row_repeat = row_repeat;
  a.k = kK;
  a.out = out.tensor();
  return a;
}

TEST(Pipeline, H33_restricted_compact_and_masked_selections_agree) {
  for (const std::int64_t row_repeat : {1, 3}) {
    for (const char* backend : {"reference", "cpu"}) {
      SCOPED_TRACE(backend);
      Rows rows(row_repeat);
      TensorBox restricted(DType::i32, {kRows, kK}), compact(DType::i32, {kRows, kK}),
          masked(DType::i32, {kRows, kK});

      TopkArgs a = select(rows, rows.scores.tensor(), restricted, row_repeat);
      a.candidates = rows.candidates.tensor();
      ASSERT_TRUE(run_with(a, backend).ok());

      TopkArgs b = select(rows, rows.compact.tensor(), compact, row_repeat);
      b.candidates = rows.candidates.tensor();
      b.layout = ScoreLayout::compact;
      ASSERT_TRUE(run_with(b, backend).ok());

      CandidateMaskArgs m;
      m.scores = rows.scores.tensor();
      m.bounds = a.bounds;
      m.candidates = rows.candidates.tensor();
      ASSERT_TRUE(run_with(m, backend).ok());
      ASSERT_TRUE(run_with(select(rows, rows.scores.tensor(), masked, row_repeat), backend).ok());

      EXPECT_EQ(restricted.bytes(), masked.bytes());
      EXPECT_EQ(restricted.bytes(), compact.bytes());
    }
  }
}

template <class Args>
std::size_t scratch_of(const Args& args) {
  Plan<Args> planned;
  const Status status = plan(args, PlanOptions{.backend = "cpu"}, planned);
  EXPECT_TRUE(status.ok()) << status.message();
  return planned.workspace_bytes;
}

TopkArgs topk_shape(std::int64_t rows, std::int64_t width, std::int64_t k) {
  TopkArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {rows, width});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {rows});
  a.k = k;
  a.out = Tensor::dense(nullptr, DType::i32, {rows, k});
  return a;
}

CandidateMaskArgs mask_shape(std::int64_t rows, std::int64_t width, std::int64_t candidates) {
  CandidateMaskArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {rows, width});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {rows});
  a.candidates = Tensor::dense(nullptr, DType::i32, {rows, candidates});
  return a;
}

CandidateBlocksArgs blocks_shape(std::int64_t rows, std::int64_t width, std::int64_t candidates) {
  CandidateBlocksArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {rows, width});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {rows});
  a.candidates = Tensor::dense(nullptr, DType::i32, {rows, candidates});
  return a;
}

// A workspace that is sized for the greatest shapes serves every smaller one.
TEST(Pipeline, H55_scratch_never_shrinks_when_a_size_grows) {
  constexpr std::int64_t kSizes[] = {1, 64, 1000, 8192, 262'144};
  const auto grows = [&](auto shape) {
    for (int axis = 0; axis < 3; ++axis) {
      std::size_t before = 0;
      for (const std::int64_t size : kSizes) {
        std::int64_t sizes[3] = {64, 65'536, 512};
        sizes[axis] = size;
        const std::size_t bytes = scratch_of(shape(sizes[0], sizes[1], sizes[2]));
        EXPECT_GE(bytes, before) << "axis " << axis << " size " << size;
        before = bytes;
      }
    }
  };
  grows(topk_shape);
  grows(mask_shape);
  grows(blocks_shape);
}

}  // namespace
}  // namespace keysieve::test

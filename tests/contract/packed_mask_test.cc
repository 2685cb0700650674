// PKM-01 .. PKM-32 and the shape, PKM-40; the kept rules PKM-33 .. PKM-39 stand in
// tests/parity/packed_mask_test.cc.
#include "contract/packed_mask.hpp"

#include <gtest/gtest.h>

#include "keysieve/plan.hpp"
#include "support/breaks.hpp"

namespace keysieve {
namespace {

constexpr Tensor dense(DType dtype, std::initializer_list<std::int64_t> shape) {
  return Tensor::dense(nullptr, dtype, shape);
}

constexpr PackedMaskArgs good_args() {
  PackedMaskArgs a;
  a.q_start = dense(DType::i32, {3});
  a.key_first = dense(DType::i64, {2});
  a.key_count = dense(DType::i32, {2});
  a.indices = dense(DType::i32, {150, 20});
  a.mask = dense(DType::u32, {2, 128, 8});
  a.any = dense(DType::u32, {2, 1, 1});
  a.all = dense(DType::i32, {2, 1, 1});
  return a;
}

constexpr PackedMaskArgs from_scores() {
  PackedMaskArgs a = good_args();
  a.indices = {};
  a.scores = dense(DType::bf16, {150, 200});
  a.thresholds = dense(DType::f32, {150});
  a.bounds.end = dense(DType::i64, {150});
  return a;
}

constexpr PackedMaskArgs from_candidates() {
  PackedMaskArgs a = good_args();
  a.indices = {};
  a.candidates = dense(DType::i32, {150, 3});
  return a;
}

constexpr MaskIndicesArgs good_inverse() {
  MaskIndicesArgs a;
  a.q_start = dense(DType::i64, {3});
  a.key_count = dense(DType::i64, {2});
  a.mask = dense(DType::i32, {2, 128, 8});
  a.out = dense(DType::i32, {150, 20});
  a.counts = dense(DType::i32, {150});
  return a;
}

using test::breaks;
static_assert(judge(good_args()).ok());
static_assert(judge(from_scores()).ok());
static_assert(judge(from_candidates()).ok());
static_assert(judge(good_inverse()).ok());
static_assert(breaks(good_args(), "PKM-01", [](auto& a) { a.mask = dense(DType::u32, {128, 8}); }));
static_assert(breaks(good_args(), "PKM-02", [](auto& a) { a.mask.dtype = DType::f32; }));
static_assert(breaks(good_args(), "PKM-03", [](auto& a) { a.mask.stride[2] = 2; }));
static_assert(breaks(good_args(), "PKM-04", [](auto& a) { a.q_start.shape[0] = 2; }));
static_assert(breaks(good_args(), "PKM-05", [](auto& a) { a.q_start.dtype = DType::f32; }));
static_assert(breaks(good_args(), "PKM-06", [](auto& a) { a.key_count = {}; }));
static_assert(breaks(good_args(), "PKM-07", [](auto& a) { a.key_count.dtype = DType::u32; }));
static_assert(breaks(good_args(), "PKM-08", [](auto& a) { a.key_first.shape[0] = 3; }));
static_assert(breaks(good_args(), "PKM-09", [](auto& a) { a.key_first.dtype = DType::u8; }));
static_assert(breaks(good_args(), "PKM-10", [](auto& a) { a.candidates = dense(DType::i32, {150, 3}); }));
static_assert(breaks(good_args(), "PKM-10", [](auto& a) { a.indices = {}; }));
static_assert(breaks(good_args(), "PKM-11", [](auto& a) { a.indices.rank = 1; }));
static_assert(breaks(good_args(), "PKM-12", [](auto& a) { a.indices.dtype = DType::i64; }));
static_assert(breaks(from_candidates(), "PKM-13", [](auto& a) { a.candidates.rank = 3; }));
static_assert(breaks(from_candidates(), "PKM-14", [](auto& a) { a.candidates.dtype = DType::i64; }));
static_assert(breaks(from_candidates(), "PKM-15", [](auto& a) { a.block_size = 0; }));
static_assert(breaks(from_scores(), "PKM-16", [](auto& a) { a.scores.rank = 1; }));
static_assert(breaks(from_scores(), "PKM-17", [](auto& a) { a.scores.dtype = DType::i32; }));
static_assert(breaks(from_scores(), "PKM-18", [](auto& a) { a.thresholds = {}; }));
static_assert(breaks(good_args(), "PKM-18", [](auto& a) { a.thresholds = dense(DType::f32, {150}); }));
static_assert(breaks(from_scores(), "PKM-19", [](auto& a) { a.thresholds.shape[0] = 149; }));
static_assert(breaks(from_scores(), "PKM-20", [](auto& a) { a.thresholds.dtype = DType::bf16; }));
static_assert(breaks(good_args(), "PKM-21", [](auto& a) { a.any.shape[1] = 2; }));
static_assert(breaks(good_args(), "PKM-22", [](auto& a) { a.any.dtype = DType::i64; }));
static_assert(breaks(good_args(), "PKM-23", [](auto& a) { a.all.shape[2] = 8; }));
static_assert(breaks(good_args(), "PKM-24", [](auto& a) { a.all.dtype = DType::f32; }));
static_assert(breaks(good_args(), "PKM-25", [](auto& a) { a.bounds.end = dense(DType::i32, {150}); }));
static_assert(breaks(from_scores(), "BND-07", [](auto& a) { a.bounds.end.shape[0] = 149; }));
static_assert(breaks(good_inverse(), "PKM-26", [](auto& a) { a.out.rank = 1; }));
static_assert(breaks(good_inverse(), "PKM-27", [](auto& a) { a.out.dtype = DType::i64; }));
static_assert(breaks(good_inverse(), "PKM-28", [](auto& a) { a.counts.shape[0] = 1; }));
static_assert(breaks(good_inverse(), "PKM-29", [](auto& a) { a.counts.dtype = DType::i64; }));
static_assert(breaks(good_args(), "PKM-30", [](auto& a) { a.mask.shape[2] = 5; }));
static_assert(breaks(good_inverse(), "PKM-30", [](auto& a) { a.mask.shape[2] = 7; }));
static_assert(breaks(good_args(), "PKM-31", [](auto& a) { a.mask.stride[1] = 9; }));
static_assert(breaks(good_args(), "PKM-31", [](auto& a) { a.mask.stride[0] = 1025; }));
static_assert(breaks(good_args(), "PKM-32", [](auto& a) {
  a.mask = dense(DType::u32, {2, 128, std::int64_t{1} << 26});
}));
// Overlapping rows are an output's fault, but a reader may share one request's rows among all.
static_assert(breaks(good_args(), "GEN-03", [](auto& a) { a.mask.stride[0] = 0; }));
static_assert(judge_tensors(
                  [] {
                    auto a = good_inverse();
                    a.mask.stride[0] = 0;
                    return a;
                  }(),
                  "mask_indices")
                  .ok());

void expect_shape(const PackedMaskShape& shape, std::int64_t requests, std::int64_t rows,
                  std::int64_t words) {
  EXPECT_EQ(shape.requests, requests);
  EXPECT_EQ(shape.rows, rows);
  EXPECT_EQ(shape.words, words);
}

// PKM-40
TEST(PackedMaskShape, RowsAndWordsAreRounded) {
  expect_shape(packed_mask_shape(1, 1, 1), 1, 128, 4);
  expect_shape(packed_mask_shape(3, 128, 128), 3, 128, 4);
  expect_shape(packed_mask_shape(3, 129, 129), 3, 256, 8);
  expect_shape(packed_mask_shape(3, 257, 256), 3, 512, 8);
  expect_shape(packed_mask_shape(2, 65, 100, {.row_multiple = 64, .reserve_word = false}), 2, 128, 4);
  expect_shape(packed_mask_shape(2, 64, 128, {.row_multiple = 64, .reserve_word = true}), 2, 64, 8);
  expect_shape(packed_mask_shape(2, 300, 96, {.row_multiple = 128, .reserve_word = true}), 2, 384, 4);
  expect_shape(packed_mask_shape(0, 0, 0), 0, 0, 0);
  expect_shape(packed_mask_shape(-1, -5, -5), 0, 0, 0);
}

TEST(PackedMaskCases, H18_shape_with_and_without_a_reserved_word) {
  expect_shape(packed_mask_shape(2, 129, 129), 2, 256, 8);
  expect_shape(packed_mask_shape(2, 129, 129, {.row_multiple = 0, .reserve_word = true}), 2, 256, 8);
  // A view cut to the words that have keys no longer starts its rows on 16 bytes of its own words.
  PackedMaskArgs a = good_args();
  a.mask.shape[2] = 5;
  EXPECT_EQ(
      judge(a).message(),
      "packed_mask: mask: expected words is a multiple of 4, so that rows start on 16 bytes (PKM-30), got 5");
}

TEST(PackedMaskCases, H25_sizes_are_exact_in_64_bits) {
  const auto bytes = [](const PackedMaskShape& s) { return s.requests * s.rows * s.words * 4; };
  EXPECT_EQ(bytes(packed_mask_shape(1, 32768, 32768)), 134217728);
  EXPECT_EQ(bytes(packed_mask_shape(8, 32000, 32000)), 1024000000);
  EXPECT_EQ(bytes(packed_mask_shape(1024, 65536, 1 << 20)), std::int64_t{1} << 43);
}

}  // namespace
}  // namespace keysieve

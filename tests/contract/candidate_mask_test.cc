// MSK-01 .. MSK-05; the kept rules MSK-06 .. MSK-12 stand in tests/parity/candidate_mask_test.cc.
#include "contract/candidate_mask.hpp"

#include <gtest/gtest.h>

#include "support/breaks.hpp"

namespace keysieve {
namespace {

constexpr CandidateMaskArgs good_args() {
  CandidateMaskArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {6, 64});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {6});
  a.candidates = Tensor::dense(nullptr, DType::i32, {6, 4});
  return a;
}

using test::breaks;
static_assert(judge(good_args()).ok());
static_assert(breaks(good_args(), "MSK-01",
                     [](auto& a) { a.scores = Tensor::dense(nullptr, DType::f32, {64}); }));
static_assert(breaks(good_args(), "MSK-01", [](auto& a) { a.scores = {}; }));
static_assert(breaks(good_args(), "MSK-02", [](auto& a) { a.scores.dtype = DType::i32; }));
static_assert(breaks(good_args(), "MSK-03", [](auto& a) { a.candidates.shape[0] = 5; }));
static_assert(breaks(good_args(), "MSK-03", [](auto& a) { a.candidates = {}; }));
static_assert(breaks(good_args(), "MSK-04", [](auto& a) { a.candidates.dtype = DType::i64; }));
static_assert(breaks(good_args(), "MSK-05", [](auto& a) { a.block_size = 0; }));
static_assert(breaks(good_args(), "BND-07", [](auto& a) { a.bounds.end.shape[0] = 5; }));
// Nothing to do is legal.
static_assert(judge([] {
                auto a = good_args();
                a.scores.shape[1] = 0;
                a.candidates.shape[1] = 0;
                return a;
              }())
                  .ok());

TEST(CandidateMaskContract, EveryRefusalNamesWhatItSaw) {
  CandidateMaskArgs a = good_args();
  a.scores.dtype = DType::i32;
  EXPECT_EQ(judge(a).message(), "candidate_mask: scores: expected scores is f32 or bf16 (MSK-02), got i32");
  a = good_args();
  a.block_size = -8;
  EXPECT_EQ(judge(a).message(), "candidate_mask: block_size: expected block_size >= 1 (MSK-05), got -8");
}

}  // namespace
}  // namespace keysieve

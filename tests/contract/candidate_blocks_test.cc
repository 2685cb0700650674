// BLK-01 .. BLK-06; the kept rules BLK-07 .. BLK-13 stand in tests/parity/candidate_blocks_test.cc.
#include "contract/candidate_blocks.hpp"

#include <gtest/gtest.h>

#include "keysieve/plan.hpp"
#include "support/breaks.hpp"

namespace keysieve {
namespace {

constexpr CandidateBlocksArgs good_args() {
  CandidateBlocksArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {6, 64});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {6});
  a.candidates = Tensor::dense(nullptr, DType::i32, {6, 4});
  return a;
}

using test::breaks;
static_assert(judge(good_args()).ok());
static_assert(breaks(good_args(), "BLK-01",
                     [](auto& a) { a.scores = Tensor::dense(nullptr, DType::f32, {64}); }));
static_assert(breaks(good_args(), "BLK-02", [](auto& a) { a.scores.dtype = DType::u8; }));
static_assert(breaks(good_args(), "BLK-03", [](auto& a) { a.candidates.rank = 1; }));
static_assert(breaks(good_args(), "BLK-04", [](auto& a) { a.candidates.dtype = DType::i64; }));
static_assert(breaks(good_args(), "BLK-05", [](auto& a) { a.block_size = 0; }));
constexpr auto widest = [](auto& a) {
  a.block_size = 1;
  a.scores.shape[1] = std::int64_t{1} << 31;
};
static_assert(breaks(good_args(), "BLK-06", widest));
static_assert(judge([] {
                auto a = good_args();
                widest(a);
                a.block_size = 2;
                return a;
              }())
                  .ok());
static_assert(breaks(good_args(), "BND-01", [](auto& a) { a.bounds.end = {}; }));
static_assert(breaks(good_args(), "GEN-03", [](auto& a) { a.candidates.stride[0] = 0; }));

// The publisher's buffer was sized for fewer rows than the call has.
TEST(CandidateBlocksCases, H38_buffer_smaller_than_the_batch) {
  CandidateBlocksArgs a = good_args();
  a.scores = Tensor::dense(nullptr, DType::f32, {520, 64});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {520});
  a.candidates = Tensor::dense(nullptr, DType::i32, {512, 4});
  CandidateBlocksPlan p;
  EXPECT_EQ(
      plan(a, {}, p).message(),
      "candidate_blocks: candidates: expected candidates is [rows, candidates] (BLK-03), got [512, 4] where "
      "[520, -1] would fit (-1: any)");
}

}  // namespace
}  // namespace keysieve

// Rules of prepare_queries' arguments: PRQ-01 .. PRQ-19 and PRQ-21 are judged here; PRQ-20 is kept by the kernels and
// tested in parity/prepare_queries_test.cc.
#include "contract/prepare_queries.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string_view>

namespace keysieve {
namespace {

constexpr PrepareQueriesArgs good_args(KeyFormat format = KeyFormat::fp8) {
  PrepareQueriesArgs a;
  const bool fp8 = format == KeyFormat::fp8;
  a.format = format;
  a.q = Tensor::dense(nullptr, DType::bf16, {5, 4, 128});
  a.weights = Tensor::dense(nullptr, DType::bf16, {5, 4});
  a.cos_sin = Tensor::dense(nullptr, DType::f32, {100, 64});
  a.positions = Tensor::dense(nullptr, DType::i64, {5});
  a.codes = Tensor::dense(nullptr, DType::u8, {5, 4, fp8 ? 128 : 64});
  if (!fp8) a.scales = Tensor::dense(nullptr, DType::u8, {5, 4, 4});
  a.folded = Tensor::dense(nullptr, DType::f32, {5, 4});
  return a;
}

template <class Change>
constexpr bool breaks(std::string_view rule, Change&& change, KeyFormat format = KeyFormat::fp8) {
  PrepareQueriesArgs a = good_args(format);
  change(a);
  const Status status = judge(a);
  return status.code == Code::invalid_argument && std::string_view(status.rule).substr(0, 6) == rule;
}

static_assert(judge(good_args()).ok() && judge(good_args(KeyFormat::mxfp4)).ok());
static_assert(breaks("PRQ-01", [](auto& a) { a.q.rank = 2; }));
static_assert(breaks("PRQ-02", [](auto& a) { a.q.dtype = DType::u8; }));
static_assert(breaks("PRQ-02", [](auto& a) { a.weights.dtype = DType::i32; }));
static_assert(breaks("PRQ-03", [](auto& a) { a.q.shape[1] = 129; }));
static_assert(breaks("PRQ-04", [](auto& a) { a.q.shape[2] = 256; }));
static_assert(breaks("PRQ-05", [](auto& a) { a.q.stride[2] = 2; }));
static_assert(breaks("PRQ-05", [](auto& a) { a.cos_sin.stride[1] = 2; }));
static_assert(breaks("PRQ-05", [](auto& a) { a.codes.stride[2] = 2; }));
static_assert(breaks(
    "PRQ-05", [](auto& a) { a.scales.stride[2] = 2; }, KeyFormat::mxfp4));
static_assert(breaks("PRQ-06", [](auto& a) { a.weights.shape[1] = 3; }));
static_assert(breaks("PRQ-06", [](auto& a) { a.folded.shape[0] = 4; }));
static_assert(breaks("PRQ-07", [](auto& a) { a.cos_sin.shape[1] = 32; }));
static_assert(breaks("PRQ-08", [](auto& a) { a.cos_sin.dtype = DType::bf16; }));
static_assert(breaks("PRQ-08", [](auto& a) { a.folded.dtype = DType::bf16; }));
static_assert(breaks("PRQ-09", [](auto& a) { a.q.shape[2] = 32; }));
static_assert(breaks("PRQ-10", [](auto& a) { a.positions = {}; }));
static_assert(breaks("PRQ-10", [](auto& a) { a.cos_sin = {}; }));
static_assert(breaks("PRQ-11", [](auto& a) { a.positions.shape[0] = 6; }));
static_assert(breaks("PRQ-12", [](auto& a) { a.positions.dtype = DType::u32; }));
static_assert(breaks("PRQ-13", [](auto& a) {
  a.q.shape[2] = 64;
  a.hadamard = true;
}));
static_assert(breaks("PRQ-14", [](auto& a) { a.codes.shape[2] = 64; }));
static_assert(breaks("PRQ-15", [](auto& a) { a.codes.dtype = DType::i32; }));
static_assert(breaks(
    "PRQ-15", [](auto& a) { a.scales.dtype = DType::f32; }, KeyFormat::mxfp4));
static_assert(breaks("PRQ-16", [](auto& a) { a.scales = a.folded; }));
static_assert(breaks(
    "PRQ-16", [](auto& a) { a.scales = {}; }, KeyFormat::mxfp4));
static_assert(breaks(
    "PRQ-17", [](auto& a) { a.scales.shape[2] = 3; }, KeyFormat::mxfp4));
static_assert(breaks(
    "PRQ-18", [](auto& a) { a.reciprocal = true; }, KeyFormat::mxfp4));
static_assert(breaks(
    "PRQ-18", [](auto& a) { a.scale = KeyScale::ue8m0; }, KeyFormat::mxfp4));
static_assert(breaks(
    "PRQ-18", [](auto& a) { a.tiny_floor = true; }, KeyFormat::mxfp4));
static_assert(breaks("PRQ-19", [](auto& a) { a.ties_down = true; }));
static_assert(breaks("PRQ-21", [](auto& a) { a.softmax_scale = std::numeric_limits<float>::quiet_NaN(); }));
static_assert(breaks("PRQ-21", [](auto& a) { a.head_scale = std::numeric_limits<float>::quiet_NaN(); }));

TEST(PrepareQueriesContract, MessageTellsWhatCame) {
  PrepareQueriesArgs a = good_args();
  a.q.shape[2] = 96;
  EXPECT_EQ(judge(a).message(), "prepare_queries: q: expected dim is 32, 64 or 128 (PRQ-04), got 96");
}

}  // namespace
}  // namespace keysieve

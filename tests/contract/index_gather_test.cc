// Rules of index_gather's arguments: IXG-01 .. IXG-16 are judged here; IXG-17 to IXG-19 are kept by the kernels and
// tested in parity/index_gather_test.cc.
#include "contract/index_gather.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace keysieve {
namespace {

constexpr IndexGatherArgs good_args(KeyFormat format = KeyFormat::fp8) {
  IndexGatherArgs a;
  const bool fp8 = format == KeyFormat::fp8;
  a.format = format;
  a.cache = Tensor::dense(nullptr, DType::u8, {3, 64 * 132});
  a.page_table = Tensor::dense(nullptr, DType::i32, {2, 9});
  a.row_offsets = Tensor::dense(nullptr, DType::i32, {3});
  a.start = Tensor::dense(nullptr, DType::i64, {2});
  a.keys = Tensor::dense(nullptr, DType::u8, {50, fp8 ? 128 : 64});
  a.scales = fp8 ? Tensor::dense(nullptr, DType::f32, {50}) : Tensor::dense(nullptr, DType::u8, {50, 4});
  return a;
}

template <class Change>
constexpr bool breaks(std::string_view rule, Change&& change, KeyFormat format = KeyFormat::fp8) {
  IndexGatherArgs a = good_args(format);
  change(a);
  const Status status = judge(a);
  return status.code == Code::invalid_argument && std::string_view(status.rule).substr(0, 6) == rule;
}

static_assert(judge(good_args()).ok() && judge(good_args(KeyFormat::mxfp4)).ok());
static_assert(breaks("IXG-01", [](auto& a) { a.cache.rank = 3; }));
static_assert(breaks("IXG-02", [](auto& a) { a.cache.dtype = DType::i32; }));
static_assert(breaks("IXG-02", [](auto& a) { a.keys.dtype = DType::bf16; }));
static_assert(breaks("IXG-03", [](auto& a) { a.cache.stride[1] = 2; }));
static_assert(breaks("IXG-03", [](auto& a) { a.keys.stride[1] = 2; }));
static_assert(breaks(
    "IXG-03", [](auto& a) { a.scales.stride[1] = 2; }, KeyFormat::mxfp4));
static_assert(breaks("IXG-04", [](auto& a) { a.page_tokens = 0; }));
static_assert(breaks("IXG-05", [](auto& a) { a.row_offsets = {}; }));
static_assert(breaks("IXG-05", [](auto& a) { a.row_offsets.shape[0] = 0; }));
static_assert(breaks("IXG-06", [](auto& a) { a.row_offsets.dtype = DType::u32; }));
static_assert(breaks("IXG-06", [](auto& a) { a.start.dtype = DType::f32; }));
static_assert(breaks("IXG-07", [](auto& a) { a.table_offsets = a.row_offsets; }));
static_assert(breaks("IXG-08", [](auto& a) { a.page_table.shape[0] = 3; }));
static_assert(breaks("IXG-09", [](auto& a) { a.page_table.dtype = DType::i64; }));
static_assert(breaks("IXG-10", [](auto& a) {
  a.page_table = Tensor::dense(nullptr, DType::i32, {18});
  a.table_offsets = Tensor::dense(nullptr, DType::i32, {2});
}));
static_assert(breaks("IXG-11", [](auto& a) { a.start.shape[0] = 3; }));
static_assert(breaks("IXG-12", [](auto& a) { a.keys.rank = 1; }));
static_assert(breaks("IXG-13", [](auto& a) { a.keys.shape[1] = 100; }));
static_assert(breaks("IXG-14", [](auto& a) { a.scales.shape[0] = 49; }));
static_assert(breaks(
    "IXG-14", [](auto& a) { a.scales.shape[1] = 3; }, KeyFormat::mxfp4));
static_assert(breaks("IXG-15", [](auto& a) { a.scales.dtype = DType::i32; }));
static_assert(breaks("IXG-16", [](auto& a) { a.cache.shape[1] = 64 * 132 - 1; }));

TEST(IndexGatherContract, MessageTellsWhatCame) {
  IndexGatherArgs a = good_args();
  a.keys.shape[1] = 100;
  EXPECT_EQ(judge(a).message(), "index_gather: keys: expected dim is 32, 64 or 128 (IXG-13), got 100");
}

}  // namespace
}  // namespace keysieve

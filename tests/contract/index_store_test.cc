// Rules of index_store's arguments: IXS-01 .. IXS-14 are judged here; IXS-15 to IXS-18 are kept by the kernels and
// tested in parity/index_store_test.cc.
#include "contract/index_store.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace keysieve {
namespace {

constexpr IndexStoreArgs good_args() {
  IndexStoreArgs a;
  a.keys = Tensor::dense(nullptr, DType::bf16, {5, 128});
  a.slots = Tensor::dense(nullptr, DType::i64, {5});
  a.cache = Tensor::dense(nullptr, DType::u8, {3, 64 * 132});
  return a;
}

template <class Change>
constexpr bool breaks(std::string_view rule, Change&& change) {
  IndexStoreArgs a = good_args();
  change(a);
  const Status status = judge(a);
  return status.code == Code::invalid_argument && std::string_view(status.rule).substr(0, 6) == rule;
}

static_assert(judge(good_args()).ok());
static_assert(breaks("IXS-01", [](auto& a) { a.keys.rank = 3; }));
static_assert(breaks("IXS-02", [](auto& a) { a.keys.dtype = DType::u8; }));
static_assert(breaks("IXS-03", [](auto& a) { a.keys.shape[1] = 96; }));
static_assert(breaks("IXS-04", [](auto& a) { a.keys.stride[1] = 2; }));
static_assert(breaks("IXS-04", [](auto& a) { a.cache.stride[1] = 2; }));
static_assert(breaks("IXS-05", [](auto& a) { a.slots.shape[0] = 6; }));
static_assert(breaks("IXS-06", [](auto& a) { a.slots.dtype = DType::u32; }));
static_assert(breaks("IXS-07", [](auto& a) { a.page_tokens = 0; }));
static_assert(breaks("IXS-07", [](auto& a) { a.page_tokens = 129; }));
static_assert(breaks("IXS-08", [](auto& a) { a.cache.rank = 1; }));
static_assert(breaks("IXS-09", [](auto& a) { a.cache.dtype = DType::i32; }));
static_assert(breaks("IXS-10", [](auto& a) { a.cache.shape[1] = 64 * 132 - 1; }));
static_assert(breaks("IXS-11", [](auto& a) {
  a.format = KeyFormat::mxfp4;
  a.scale = KeyScale::ue8m0;
}));
static_assert(breaks("IXS-12", [](auto& a) { a.ties_down = true; }));
static_assert(breaks("IXS-13", [](auto& a) {
  a.format = KeyFormat::mxfp4;
  a.reciprocal = true;
}));
static_assert(breaks("IXS-14", [](auto& a) { a.cache.stride[0] = 64 * 132 - 1; }));

constexpr bool fits(std::int64_t page_bytes, KeyFormat format, std::int64_t dim) {
  IndexStoreArgs a = good_args();
  a.keys = Tensor::dense(nullptr, DType::f32, {5, dim});
  a.cache = Tensor::dense(nullptr, DType::u8, {3, page_bytes});
  a.format = format;
  return judge(a).ok();
}
static_assert(fits(64 * 68, KeyFormat::mxfp4, 128) && !fits(64 * 68 - 1, KeyFormat::mxfp4, 128));
static_assert(fits(64 * 17, KeyFormat::mxfp4, 32) && !fits(64 * 17 - 1, KeyFormat::mxfp4, 32));
static_assert(fits(64 * 36, KeyFormat::fp8, 32));

TEST(IndexStoreContract, MessageTellsWhatCame) {
  IndexStoreArgs a = good_args();
  a.page_tokens = 256;
  EXPECT_EQ(judge(a).message(),
            "index_store: page_tokens: expected page_tokens is 1 to 128 (IXS-07), got 256");
}

}  // namespace
}  // namespace keysieve

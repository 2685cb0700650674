// Rules of sparse_mla's arguments: MLA-01 .. MLA-18 are judged here; MLA-19 .. MLA-22 are kept by the kernels
// and tested in parity/sparse_mla_test.cc.
#include "contract/sparse_mla.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace keysieve {
namespace {

constexpr SparseMlaArgs good_args() {
  SparseMlaArgs a;
  a.q = Tensor::dense(nullptr, DType::bf16, {3, 8, 576});
  a.cache = Tensor::dense(nullptr, DType::bf16, {4, 64, 576});
  a.indices = Tensor::dense(nullptr, DType::i32, {3, 100});
  a.lengths = Tensor::dense(nullptr, DType::i32, {3});
  a.extra_cache = Tensor::dense(nullptr, DType::bf16, {2, 16, 576});
  a.extra_indices = Tensor::dense(nullptr, DType::i64, {3, 7});
  a.extra_lengths = Tensor::dense(nullptr, DType::i64, {3});
  a.sink = Tensor::dense(nullptr, DType::f32, {8});
  a.softmax_scale = 0.1f;
  a.out = Tensor::dense(nullptr, DType::bf16, {3, 8, 512});
  a.lse = Tensor::dense(nullptr, DType::f32, {3, 8});
  return a;
}

template <class Change>
constexpr bool breaks(std::string_view rule, Change&& change) {
  SparseMlaArgs a = good_args();
  change(a);
  const Status status = judge(a);
  return status.code == Code::invalid_argument && std::string_view(status.rule).substr(0, 6) == rule;
}

static_assert(judge(good_args()).ok());
static_assert(breaks("MLA-01", [](auto& a) { a.q.rank = 2; }));
static_assert(breaks("MLA-02", [](auto& a) { a.cache.shape[2] = 512; }));
static_assert(breaks("MLA-02", [](auto& a) { a.extra_cache.shape[2] = 512; }));
static_assert(breaks("MLA-03", [](auto& a) { a.indices.shape[0] = 2; }));
static_assert(breaks("MLA-03", [](auto& a) { a.indices = {}; }));
static_assert(breaks("MLA-03", [](auto& a) { a.extra_indices.shape[0] = 2; }));
static_assert(breaks("MLA-04", [](auto& a) { a.out.shape[2] = 576; }));
static_assert(breaks("MLA-05", [](auto& a) { a.lse.shape[1] = 7; }));
static_assert(breaks("MLA-06", [](auto& a) { a.softmax_scale = SparseMlaArgs().softmax_scale; }));
static_assert(breaks("MLA-07",
                     [](auto& a) { a.q.shape[2] = a.cache.shape[2] = a.extra_cache.shape[2] = 640; }));
static_assert(breaks("MLA-08", [](auto& a) {
  a.q.shape[1] = a.out.shape[1] = a.lse.shape[1] = a.sink.shape[0] = 129;
}));
static_assert(breaks("MLA-08",
                     [](auto& a) { a.q.shape[1] = a.out.shape[1] = a.lse.shape[1] = a.sink.shape[0] = 0; }));
static_assert(breaks("MLA-09", [](auto& a) { a.q.dtype = DType::f32; }));
static_assert(breaks("MLA-09", [](auto& a) { a.cache.dtype = DType::u8; }));
static_assert(breaks("MLA-10", [](auto& a) { a.indices.dtype = DType::u32; }));
static_assert(breaks("MLA-10", [](auto& a) { a.lengths.dtype = DType::f32; }));
static_assert(breaks("MLA-11", [](auto& a) { a.lengths.shape[0] = 4; }));
static_assert(breaks("MLA-12", [](auto& a) { a.extra_cache = {}; }));
static_assert(breaks("MLA-13", [](auto& a) { a.extra_cache = a.extra_indices = {}; }));
static_assert(breaks("MLA-14", [](auto& a) { a.sink.shape[0] = 1; }));
static_assert(breaks("MLA-14", [](auto& a) { a.sink.dtype = DType::bf16; }));
static_assert(breaks("MLA-15", [](auto& a) { a.out.dtype = DType::u8; }));
static_assert(breaks("MLA-15", [](auto& a) { a.lse.dtype = DType::bf16; }));
static_assert(breaks("MLA-16", [](auto& a) { a.q.stride[2] = 2; }));
static_assert(breaks("MLA-16", [](auto& a) { a.cache.stride[2] = 2; }));
static_assert(breaks("MLA-16", [](auto& a) { a.out.stride[2] = 2; }));
static_assert(breaks("MLA-17", [](auto& a) { a.softmax_scale = std::numeric_limits<float>::infinity(); }));
static_assert(breaks("MLA-18", [](auto& a) {
  a.lse_form.with_sink = true;
  a.sink = {};
}));

// Outer strides are free, also 0 for what is read and what DLPack leaves behind for axes of size 1.
static_assert(judge([] {
                SparseMlaArgs a = good_args();
                a.q.stride[0] = 0;
                a.cache.stride[0] = 1'000'000'007;
                a.indices.stride[1] = 3;
                a.lse.stride[1] = 100;
                return a;
              }())
                  .ok());

TEST(SparseMlaContract, MessageTellsWhatCame) {
  SparseMlaArgs a = good_args();
  a.softmax_scale = SparseMlaArgs().softmax_scale;
  EXPECT_EQ(judge(a).message(),
            "sparse_mla: softmax_scale: expected softmax_scale is given (MLA-06), got nan");
}

}  // namespace
}  // namespace keysieve

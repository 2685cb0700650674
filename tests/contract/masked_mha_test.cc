// Rules of masked_mha's arguments: MHA-01 .. MHA-21 are judged here; MHA-22 .. MHA-27 are kept by the kernels
// and tested in parity/masked_mha_test.cc.
#include "contract/masked_mha.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace keysieve {
namespace {

constexpr MaskedMhaArgs good_args() {
  MaskedMhaArgs a;
  a.q = Tensor::dense(nullptr, DType::bf16, {40, 4, 192});
  a.k = Tensor::dense(nullptr, DType::bf16, {90, 4, 192});
  a.v = Tensor::dense(nullptr, DType::bf16, {90, 4, 128});
  a.q_start = a.k_start = Tensor::dense(nullptr, DType::i32, {3});
  a.mask = Tensor::dense(nullptr, DType::u32, {2, 128, 4});
  a.key_offset = a.q_offset = Tensor::dense(nullptr, DType::i64, {2});
  a.q_total = a.k_total = Tensor::dense(nullptr, DType::i32, {2});
  a.causal = true;
  a.sink = Tensor::dense(nullptr, DType::f32, {4});
  a.softmax_scale = 0.1f;
  a.out = Tensor::dense(nullptr, DType::bf16, {40, 4, 128});
  a.lse = Tensor::dense(nullptr, DType::f32, {40, 4});
  return a;
}

template <class Change>
constexpr bool breaks(std::string_view rule, Change&& change) {
  MaskedMhaArgs a = good_args();
  change(a);
  const Status status = judge(a);
  return status.code == Code::invalid_argument && std::string_view(status.rule).substr(0, 6) == rule;
}
template <class Change>
constexpr bool holds(Change&& change) {
  MaskedMhaArgs a = good_args();
  change(a);
  return judge(a).ok();
}

static_assert(judge(good_args()).ok());
static_assert(breaks("MHA-01", [](auto& a) { a.q.rank = 4; }));
static_assert(breaks("MHA-02", [](auto& a) { a.k.shape[1] = 1; }));
static_assert(breaks("MHA-03", [](auto& a) { a.v.shape[0] = 91; }));
static_assert(breaks("MHA-04", [](auto& a) { a.out.shape[2] = 192; }));
static_assert(breaks("MHA-05", [](auto& a) { a.lse.shape[0] = 41; }));
static_assert(breaks("MHA-06", [](auto& a) { a.q_start = {}; }));
static_assert(breaks("MHA-06", [](auto& a) { a.q_start.shape[0] = a.k_start.shape[0] = 0; }));
static_assert(breaks("MHA-07", [](auto& a) { a.k_start.shape[0] = 2; }));
static_assert(breaks("MHA-08", [](auto& a) { a.softmax_scale = MaskedMhaArgs().softmax_scale; }));
static_assert(breaks("MHA-09", [](auto& a) { a.v.shape[2] = a.out.shape[2] = 192; }));
static_assert(breaks("MHA-10", [](auto& a) { a.v.dtype = DType::f32; }));
static_assert(breaks("MHA-11", [](auto& a) { a.q_start.dtype = DType::f32; }));
static_assert(breaks("MHA-11", [](auto& a) { a.key_offset.dtype = DType::u32; }));
static_assert(breaks("MHA-12", [](auto& a) { a.q_offset.shape[0] = 3; }));
static_assert(breaks("MHA-12", [](auto& a) { a.k_total.shape[0] = 1; }));
static_assert(breaks("MHA-13", [](auto& a) { a.mask.shape[0] = 3; }));
static_assert(breaks("MHA-13", [](auto& a) { a.mask.rank = 2; }));
static_assert(breaks("MHA-14", [](auto& a) { a.mask.dtype = DType::u8; }));
static_assert(breaks("MHA-15", [](auto& a) { a.mask.stride[2] = 2; }));
static_assert(breaks("MHA-16", [](auto& a) { a.q_offset = {}; }));
static_assert(breaks("MHA-17", [](auto& a) { a.out.dtype = DType::i32; }));
static_assert(breaks("MHA-17", [](auto& a) { a.lse.dtype = DType::bf16; }));
static_assert(breaks("MHA-18", [](auto& a) { a.k.stride[2] = 2; }));
static_assert(breaks("MHA-19", [](auto& a) { a.softmax_scale = -std::numeric_limits<float>::infinity(); }));
static_assert(breaks("MHA-20", [](auto& a) { a.sink.shape[0] = 3; }));
static_assert(breaks("MHA-21", [](auto& a) {
  a.lse_form.with_sink = true;
  a.sink = {};
}));

static_assert(holds([](auto& a) { a.mask.shape[0] = 1; }));
static_assert(holds([](auto& a) { a.mask.stride[0] = 0; }));
static_assert(holds([](auto& a) { a.mask.stride[1] = 5; }));
static_assert(holds([](auto& a) { a.mask.dtype = DType::i32; }));
static_assert(holds([](auto& a) { a.q.stride[0] = 100'000; }));
static_assert(holds([](auto& a) {
  a.causal = false;
  a.mask = a.q_offset = a.key_offset = a.q_total = a.k_total = a.sink = a.lse = {};
}));

TEST(MaskedMhaContract, MessageTellsWhatCame) {
  MaskedMhaArgs a = good_args();
  a.q_offset = {};
  EXPECT_EQ(judge(a).message(),
            "masked_mha: q_offset: expected causal needs q_offset, if only zeros (MHA-16), got nothing");
}

}  // namespace
}  // namespace keysieve

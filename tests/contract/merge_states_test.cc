// Rules of merge_states' arguments: MRG-01 .. MRG-10 are judged here; MRG-11 and MRG-12 are kept by the
// kernels and tested in parity/merge_states_test.cc.
#include "contract/merge_states.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace keysieve {
namespace {

constexpr MergeStatesArgs good_args() {
  MergeStatesArgs a;
  a.outs = Tensor::dense(nullptr, DType::bf16, {3, 5, 4, 100});
  a.lses = Tensor::dense(nullptr, DType::f32, {3, 5, 4});
  a.sink = Tensor::dense(nullptr, DType::f32, {4});
  a.out = Tensor::dense(nullptr, DType::f32, {5, 4, 100});
  a.lse = Tensor::dense(nullptr, DType::f32, {5, 4});
  return a;
}

template <class Change>
constexpr bool breaks(std::string_view rule, Change&& change) {
  MergeStatesArgs a = good_args();
  change(a);
  const Status status = judge(a);
  return status.code == Code::invalid_argument && std::string_view(status.rule).substr(0, 6) == rule;
}

static_assert(judge(good_args()).ok());
static_assert(breaks("MRG-01", [](auto& a) { a.outs.rank = 3; }));
static_assert(breaks("MRG-02", [](auto& a) { a.lses.shape[0] = 2; }));
static_assert(breaks("MRG-03", [](auto& a) { a.out.shape[2] = 99; }));
static_assert(breaks("MRG-04", [](auto& a) { a.lse.shape[0] = 4; }));
static_assert(breaks("MRG-05", [](auto& a) { a.sink.shape[0] = 5; }));
static_assert(breaks("MRG-06", [](auto& a) { a.outs.dtype = DType::i32; }));
static_assert(breaks("MRG-06", [](auto& a) { a.out.dtype = DType::u8; }));
static_assert(breaks("MRG-07", [](auto& a) { a.lses.dtype = DType::bf16; }));
static_assert(breaks("MRG-07", [](auto& a) { a.sink.dtype = DType::bf16; }));
static_assert(breaks("MRG-08", [](auto& a) { a.outs.stride[3] = 2; }));
static_assert(breaks("MRG-09", [](auto& a) { a.lses_form.with_sink = true; }));
static_assert(breaks("MRG-10", [](auto& a) {
  a.lse_form.with_sink = true;
  a.sink = {};
}));

TEST(MergeStatesContract, MessageTellsWhatCame) {
  MergeStatesArgs a = good_args();
  a.lses.dtype = DType::bf16;
  EXPECT_EQ(judge(a).message(), "merge_states: lses: expected lses, lse and sink are f32 (MRG-07), got bf16");
}

}  // namespace
}  // namespace keysieve

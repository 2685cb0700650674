#include "keysieve/merge_states.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "support/attention.hpp"

namespace keysieve::test {
namespace {

struct Shape {
  std::int64_t parts = 3, rows = 5, heads = 4, dv = 128;
  DType outs = DType::f32, out = DType::f32;
  bool sink = false, lse = true;
  double lift = 0;  // added to every LSE
  std::int64_t padding = 0;
  LseForm in{}, form{};
};

struct MergeCall {
  TensorBox outs, lses, sink, out, lse;
  Shape shape;

  MergeStatesArgs args() {
    MergeStatesArgs a;
    a.outs = outs.tensor();
    a.lses = lses.tensor();
    a.lses_form = shape.in;
    if (shape.sink) a.sink = sink.tensor();
    a.out = out.tensor();
    if (shape.lse) a.lse = lse.tensor();
    a.lse_form = shape.form;
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&outs, &lses, &sink, &out, &lse}; }
};

// Row 1 is empty in all parts, row 2 in all but one; empty parts hold NaN.
MergeCall make_call(const Shape& s) {
  Numbers numbers(static_cast<std::uint64_t>(s.parts * 100 + s.dv));
  MergeCall call{TensorBox(s.outs, {s.parts, s.rows, s.heads, s.dv}, s.padding),
                 TensorBox(DType::f32, {s.parts, s.rows, s.heads}, s.padding),
                 TensorBox(DType::f32, {s.heads}),
                 TensorBox(s.out, {s.rows, s.heads, s.dv}, s.padding),
                 TensorBox(DType::f32, {s.rows, s.heads}, s.padding),
                 s};
  const double empty = s.in.empty == LseEmpty::plus_infinity ? kInfinity : -kInfinity;
  for (std::int64_t i = 0; i < s.parts; ++i) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const bool none = r == 1 || (r == 2 && i != 1) || numbers.below(6) == 0;
        call.lses.set(none ? empty : s.lift + 2 * numbers.normal(), i, r, h);
        for (std::int64_t c = 0; c < s.dv; ++c) call.outs.set(none ? kNaN : numbers.normal(), i, r, h, c);
      }
    }
  }
  call.sink.fill([&](auto i, auto) { return i == 0 ? -kInfinity : s.lift + numbers.normal(); });
  return call;
}

void expect_near(const Shape& s) {
  expect_parity([&] { return make_call(s); }, NearAttention{});
}

TEST(MergeStates, MatchesReferenceForEveryShape) {
  for (const std::int64_t parts : {0, 1, 2, 3, 9})
    for (const std::int64_t dv : {1, 3, 64, 100, 128, 512, 515}) expect_near({.parts = parts, .dv = dv});
  expect_near({.rows = 0});
  expect_near({.heads = 0});
  expect_near({.dv = 0});
}

TEST(MergeStates, MatchesReferenceForEveryOption) {
  for (const DType outs : {DType::f32, DType::bf16})
    for (const DType out : {DType::f32, DType::bf16})
      for (const bool sink : {false, true})
        expect_near({.dv = 77, .outs = outs, .out = out, .sink = sink, .lse = sink, .padding = 3});
  for (const LseBase base : {LseBase::natural, LseBase::two})
    for (const LseEmpty empty : {LseEmpty::minus_infinity, LseEmpty::plus_infinity})
      expect_near({.sink = true, .in = {base, empty, false}, .form = {base, empty, true}});
}

TEST(MergeStates, LargeLsesDoNotOverflow) {
  for (const double lift : {-3000.0, 800.0, 3000.0}) expect_near({.sink = true, .lift = lift});
}

// A weight too small for a float is not nothing: what such a part holds shows where it is not finite.
TEST(MergeStates, TinyWeightsStillShowWhatIsNotFinite) {
  for (const double odd : {kNaN, kInfinity, -kInfinity, 1.0}) {
    MergeCall call = make_call({.parts = 2, .rows = 1, .heads = 1, .dv = 19});
    call.lses.set(100.0, 0, 0, 0);
    call.lses.set(-50.0, 1, 0, 0);
    for (std::int64_t c = 0; c < 19; ++c) {
      call.outs.set(1.0, 0, 0, 0, c);
      call.outs.set(c % 3 == 0 ? odd : 2.0, 1, 0, 0, c);
    }
    expect_parity([&] { return call; }, NearAttention{});
  }
}

// MRG-11.
TEST(MergeStates, EmptyPartsWeighNothing) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MergeCall one = make_call({.parts = 1, .rows = 1, .heads = 2});
    one.lses.set(0.5, 0, 0, 0);
    one.lses.set(-700.0, 0, 0, 1);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t c = 0; c < 128; ++c) one.outs.set(static_cast<double>(c) / 7, 0, 0, h, c);
    MergeCall three = make_call({.parts = 3, .rows = 1, .heads = 2});
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t h = 0; h < 2; ++h) {
        three.lses.set(i == 1 ? one.lses.get(0, 0, h) : -kInfinity, i, 0, h);
        for (std::int64_t c = 0; c < 128; ++c)
          three.outs.set(i == 1 ? one.outs.get(0, 0, h, c) : kNaN, i, 0, h, c);
      }
    }
    ASSERT_TRUE(run_with(one.args(), "cpu", "", executor).ok());
    ASSERT_TRUE(run_with(three.args(), "cpu", "", executor).ok());
    EXPECT_EQ(one.out.bytes(), three.out.bytes()) << label;
    EXPECT_EQ(one.lse.bytes(), three.lse.bytes()) << label;
  });
}

TEST(MergeStates, NaNStaysInItsRow) {
  expect_parity(
      [] {
        MergeCall call = make_call({.sink = true});
        call.lses.set(kNaN, 1, 3, 2);
        return call;
      },
      NearAttention{});
}

// MRG-12.
TEST(MergeStates, BytesDependOnTheRowAlone) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MergeCall whole = make_call({.parts = 4, .rows = 6, .dv = 130}),
              again = make_call({.parts = 4, .rows = 6, .dv = 130});
    ASSERT_TRUE(run_with(whole.args(), "cpu").ok());
    ASSERT_TRUE(run_with(again.args(), "cpu", "", executor).ok());
    EXPECT_EQ(whole.out.bytes(), again.out.bytes()) << label;
    MergeStatesArgs last = again.args();
    for (Tensor* t : {&last.outs, &last.lses}) {
      t->data = static_cast<char*>(t->data) + 5 * t->stride[1] * 4;
      t->shape[1] = 1;
    }
    for (Tensor* t : {&last.out, &last.lse}) t->shape[0] = 1;  // written over row 0
    ASSERT_TRUE(run_with(last, "cpu", "", executor).ok());
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t c = 0; c < 130; ++c)
        ASSERT_EQ(again.out.get(0, h, c), whole.out.get(5, h, c)) << label;
  });
}

TEST(MergeStatesCases, H08_natural_and_base_two) {
  on_every_set([](const std::string& label, const Executor* executor) {
    for (const LseBase base : {LseBase::natural, LseBase::two}) {
      MergeCall call = make_call({.parts = 2, .rows = 1, .heads = 1});
      call.shape.in.base = call.shape.form.base = base;
      const double unit = base == LseBase::two ? std::log(2.0) : 1.0;
      for (std::int64_t i = 0; i < 2; ++i) {
        call.lses.set(std::log(i == 0 ? 2.0 : 6.0) / unit, i, 0, 0);
        for (std::int64_t c = 0; c < 128; ++c) call.outs.set(static_cast<double>(i), i, 0, 0, c);
      }
      ASSERT_TRUE(run_with(call.args(), "cpu", "", executor).ok());
      EXPECT_NEAR(call.out.get(0, 0, 5), 0.75, 1e-6) << label;
      EXPECT_NEAR(call.lse.get(0, 0), std::log(8.0) / unit, 1e-5) << label;
    }
  });
}

}  // namespace
}  // namespace keysieve::test

// What masked_mha's arguments must satisfy; docs/contracts/masked_mha.md explains each rule.
#pragma once

#include <limits>
#include <utility>

#include "contract/check.hpp"
#include "keysieve/masked_mha.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const MaskedMhaArgs& a, F&& f) {
  f("q", a.q, Access::read);
  f("k", a.k, Access::read);
  f("v", a.v, Access::read);
  f("q_start", a.q_start, Access::read);
  f("k_start", a.k_start, Access::read);
  f("mask", a.mask, Access::read);
  f("key_offset", a.key_offset, Access::read);
  f("q_offset", a.q_offset, Access::read);
  f("q_total", a.q_total, Access::read);
  f("k_total", a.k_total, Access::read);
  f("sink", a.sink, Access::read);
  f("out", a.out, Access::write);
  f("lse", a.lse, Access::write);
}

constexpr Status judge(const MaskedMhaArgs& a) {
  Dim tokens, keys, heads, dqk, dv, entries;
  Check check("masked_mha");
  check.shape("q", a.q, {&tokens, &heads, &dqk}, "MHA-01 q is [tokens, H, dqk]")
      .shape("k", a.k, {&keys, &heads, &dqk}, "MHA-02 k is [keys, H, dqk]")
      .shape("v", a.v, {&keys, &heads, &dv}, "MHA-03 v is [keys, H, dv]")
      .shape("out", a.out, {&tokens, &heads, &dv}, "MHA-04 out is [tokens, H, dv]")
      .optional_shape("lse", a.lse, {&tokens, &heads}, "MHA-05 lse is [tokens, H]")
      .shape("q_start", a.q_start, {&entries}, "MHA-06 q_start is [requests + 1]")
      .shape("k_start", a.k_start, {&entries}, "MHA-07 k_start is [requests + 1]")
      .that(entries.value >= 1, "q_start", "MHA-06 q_start is [requests + 1]", entries.value)
      .that(a.softmax_scale == a.softmax_scale, "softmax_scale", "MHA-08 softmax_scale is given", "nan");
  if (!check.holds()) return check.status();
  const std::int64_t requests = entries.value - 1;
  const bool pair = (dqk.value == 192 && dv.value == 128) || (dqk.value == 128 && dv.value == 128) ||
                    (dqk.value == 256 && dv.value == 256);
  check.that(pair, "q", "MHA-09 (dqk, dv) is (192, 128), (128, 128) or (256, 256)", dqk.value)
      .dtype("q", a.q, {DType::bf16}, "MHA-10 q, k and v are bf16")
      .dtype("k", a.k, {DType::bf16}, "MHA-10 q, k and v are bf16")
      .dtype("v", a.v, {DType::bf16}, "MHA-10 q, k and v are bf16");
  for (const auto& [name, start] : {std::pair{"q_start", &a.q_start}, std::pair{"k_start", &a.k_start}})
    check.dtype(name, *start, {DType::i32, DType::i64}, "MHA-11 starts, offsets and totals are i32 or i64");
  for (const auto& [name, t] : {std::pair{"key_offset", &a.key_offset}, std::pair{"q_offset", &a.q_offset},
                                std::pair{"q_total", &a.q_total}, std::pair{"k_total", &a.k_total}}) {
    check.dtype(name, *t, {DType::i32, DType::i64}, "MHA-11 starts, offsets and totals are i32 or i64")
        .optional_shape(name, *t, {requests}, "MHA-12 offsets and totals are [requests]");
  }
  check
      .optional_shape("mask", a.mask,
                      {a.mask.rank == 3 && a.mask.shape[0] == 1 ? 1 : requests, kAnyExtent, kAnyExtent},
                      "MHA-13 mask is [requests or 1, rows, words]")
      .dtype("mask", a.mask, {DType::u32, DType::i32}, "MHA-14 mask is u32 or i32")
      .contiguous("mask", a.mask, 2, "MHA-15 the words of a mask row are contiguous")
      .that(!a.causal || a.q_offset.given(), "q_offset", "MHA-16 causal needs q_offset, if only zeros",
            "nothing")
      .dtype("out", a.out, {DType::f32, DType::bf16}, "MHA-17 out is f32 or bf16, lse is f32")
      .dtype("lse", a.lse, {DType::f32}, "MHA-17 out is f32 or bf16, lse is f32")
      .contiguous("q", a.q, 2, "MHA-18 the last axis of q, k, v and out is contiguous")
      .contiguous("k", a.k, 2, "MHA-18 the last axis of q, k, v and out is contiguous")
      .contiguous("v", a.v, 2, "MHA-18 the last axis of q, k, v and out is contiguous")
      .contiguous("out", a.out, 2, "MHA-18 the last axis of q, k, v and out is contiguous")
      .that(a.softmax_scale <= std::numeric_limits<float>::max() &&
                a.softmax_scale >= -std::numeric_limits<float>::max(),
            "softmax_scale", "MHA-19 softmax_scale is finite", "inf")
      .optional_shape("sink", a.sink, {&heads}, "MHA-20 sink is f32 [H]")
      .dtype("sink", a.sink, {DType::f32}, "MHA-20 sink is f32 [H]")
      .that(!a.lse_form.with_sink || a.sink.given(), "lse_form", "MHA-21 an lse with sink needs the sink",
            "no sink");
  return check.status();
}

}  // namespace keysieve

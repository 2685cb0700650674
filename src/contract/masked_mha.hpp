// What masked_mha's arguments must satisfy; docs/contracts/masked_mha.md explains each rule.
#pragma once

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
  return check.status();
}

}  // namespace keysieve

// What sparse_mla's arguments must satisfy; docs/contracts/sparse_mla.md explains each rule.
#pragma once

#include "contract/check.hpp"
#include "keysieve/sparse_mla.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const SparseMlaArgs& a, F&& f) {
  f("q", a.q, Access::read);
  f("cache", a.cache, Access::read);
  f("indices", a.indices, Access::read);
  f("lengths", a.lengths, Access::read);
  f("extra_cache", a.extra_cache, Access::read);
  f("extra_indices", a.extra_indices, Access::read);
  f("extra_lengths", a.extra_lengths, Access::read);
  f("sink", a.sink, Access::read);
  f("out", a.out, Access::write);
  f("lse", a.lse, Access::write);
}

constexpr Status judge(const SparseMlaArgs& a) {
  Dim rows, heads, dim;
  Check check("sparse_mla");
  check.shape("q", a.q, {&rows, &heads, &dim}, "MLA-01 q is [rows, H, d]")
      .shape("cache", a.cache, {kAnyExtent, kAnyExtent, &dim}, "MLA-02 cache is [pages, page_tokens, d]")
      .shape("indices", a.indices, {&rows, kAnyExtent}, "MLA-03 indices is [rows, k]")
      .shape("out", a.out, {&rows, &heads, 512}, "MLA-04 out is [rows, H, 512]")
      .optional_shape("lse", a.lse, {&rows, &heads}, "MLA-05 lse is [rows, H]")
      .that(a.softmax_scale == a.softmax_scale, "softmax_scale", "MLA-06 softmax_scale is given", "nan");
  return check.status();
}

}  // namespace keysieve

// What sparse_mla's arguments must satisfy; docs/contracts/sparse_mla.md explains each rule.
#pragma once

#include <limits>

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
      .that(a.softmax_scale == a.softmax_scale, "softmax_scale", "MLA-06 softmax_scale is given", "nan")
      .that(dim.value == 576 || dim.value == 512, "q", "MLA-07 d is 576 or 512", dim.value)
      .that(heads.value >= 1 && heads.value <= 128, "q", "MLA-08 H is 1 to 128", heads.value)
      .dtype("q", a.q, {DType::bf16}, "MLA-09 q and cache are bf16")
      .dtype("cache", a.cache, {DType::bf16}, "MLA-09 q and cache are bf16")
      .dtype("indices", a.indices, {DType::i32, DType::i64}, "MLA-10 indices and lengths are i32 or i64")
      .optional_shape("lengths", a.lengths, {&rows}, "MLA-11 lengths is [rows]")
      .dtype("lengths", a.lengths, {DType::i32, DType::i64}, "MLA-10 indices and lengths are i32 or i64")
      .that(a.extra_cache.given() == a.extra_indices.given(), "extra_cache",
            "MLA-12 extra_cache and extra_indices come together", "one of them")
      .that(a.extra_indices.given() || !a.extra_lengths.given(), "extra_lengths",
            "MLA-13 extra_lengths comes with extra_indices", "extra_lengths alone")
      .optional_shape("extra_cache", a.extra_cache, {kAnyExtent, kAnyExtent, &dim},
                      "MLA-02 cache is [pages, page_tokens, d]")
      .dtype("extra_cache", a.extra_cache, {DType::bf16}, "MLA-09 q and cache are bf16")
      .optional_shape("extra_indices", a.extra_indices, {&rows, kAnyExtent}, "MLA-03 indices is [rows, k]")
      .dtype("extra_indices", a.extra_indices, {DType::i32, DType::i64},
             "MLA-10 indices and lengths are i32 or i64")
      .optional_shape("extra_lengths", a.extra_lengths, {&rows}, "MLA-11 lengths is [rows]")
      .dtype("extra_lengths", a.extra_lengths, {DType::i32, DType::i64},
             "MLA-10 indices and lengths are i32 or i64")
      .optional_shape("sink", a.sink, {&heads}, "MLA-14 sink is f32 [H]")
      .dtype("sink", a.sink, {DType::f32}, "MLA-14 sink is f32 [H]")
      .dtype("out", a.out, {DType::f32, DType::bf16}, "MLA-15 out is f32 or bf16, lse is f32")
      .dtype("lse", a.lse, {DType::f32}, "MLA-15 out is f32 or bf16, lse is f32")
      .contiguous("q", a.q, 2, "MLA-16 the last axis of q, cache and out is contiguous")
      .contiguous("cache", a.cache, 2, "MLA-16 the last axis of q, cache and out is contiguous")
      .contiguous("extra_cache", a.extra_cache, 2, "MLA-16 the last axis of q, cache and out is contiguous")
      .contiguous("out", a.out, 2, "MLA-16 the last axis of q, cache and out is contiguous")
      .that(a.softmax_scale <= std::numeric_limits<float>::max() &&
                a.softmax_scale >= -std::numeric_limits<float>::max(),
            "softmax_scale", "MLA-17 softmax_scale is finite", "inf")
      .that(!a.lse_form.with_sink || a.sink.given(), "lse_form", "MLA-18 an lse with sink needs the sink",
            "no sink");
  return check.status();
}

}  // namespace keysieve

// What index_store's arguments must satisfy; docs/contracts/index_store.md explains each rule.
#pragma once

#include "contract/check.hpp"
#include "keysieve/index_store.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const IndexStoreArgs& a, F&& f) {
  f("keys", a.keys, Access::read);
  f("slots", a.slots, Access::read);
  f("cache", a.cache, Access::update);
}

constexpr Status judge(const IndexStoreArgs& a) {
  Dim tokens, dim;
  Check check("index_store");
  check.shape("keys", a.keys, {&tokens, &dim}, "IXS-01 keys is [tokens, dim]")
      .dtype("keys", a.keys, {DType::f32, DType::bf16}, "IXS-02 keys is f32 or bf16")
      .that(dim.value == 32 || dim.value == 64 || dim.value == 128, "keys", "IXS-03 dim is 32, 64 or 128",
            dim.value)
      .contiguous("keys", a.keys, 1, "IXS-04 the last axis of keys and cache is contiguous")
      .shape("slots", a.slots, {&tokens}, "IXS-05 slots is [tokens]")
      .dtype("slots", a.slots, {DType::i32, DType::i64}, "IXS-06 slots is i32 or i64")
      .that(a.page_tokens >= 1 && a.page_tokens <= 128, "page_tokens", "IXS-07 page_tokens is 1 to 128",
            a.page_tokens)
      .shape("cache", a.cache, {kAnyExtent, kAnyExtent}, "IXS-08 cache is [pages, bytes]")
      .dtype("cache", a.cache, {DType::u8}, "IXS-09 cache is u8")
      .contiguous("cache", a.cache, 1, "IXS-04 the last axis of keys and cache is contiguous");
  if (!check.holds()) return check.status();
  return check
      .that(a.cache.shape[1] >= a.page_tokens * index_token_bytes(a.format, dim.value), "cache",
            "IXS-10 a page has the bytes of page_tokens tokens", a.cache.shape[1])
      .that(a.cache.shape[0] <= 1 || a.cache.stride[0] >= a.cache.shape[1], "cache",
            "IXS-14 pages follow each other and do not overlap", a.cache.stride[0])
      .that(a.format == KeyFormat::fp8 || a.scale == KeyScale::exact, "scale",
            "IXS-11 scales of mxfp4 are UE8M0 as they are", "ue8m0")
      .that(a.format == KeyFormat::mxfp4 || !a.ties_down, "ties_down", "IXS-12 ties_down is for mxfp4", "fp8")
      .that(a.format == KeyFormat::fp8 || !a.reciprocal, "reciprocal", "IXS-13 reciprocal is for fp8",
            "mxfp4")
      .status();
}

}  // namespace keysieve

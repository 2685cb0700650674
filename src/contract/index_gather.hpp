// What index_gather's arguments must satisfy; docs/contracts/index_gather.md explains each rule.
#pragma once

#include "contract/check.hpp"
#include "keysieve/index_gather.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const IndexGatherArgs& a, F&& f) {
  f("cache", a.cache, Access::read);
  f("page_table", a.page_table, Access::read);
  f("table_offsets", a.table_offsets, Access::read);
  f("row_offsets", a.row_offsets, Access::read);
  f("start", a.start, Access::read);
  f("keys", a.keys, Access::update);
  f("scales", a.scales, Access::update);
}

constexpr Status judge(const IndexGatherArgs& a) {
  const bool fp8 = a.format == KeyFormat::fp8, flat = a.table_offsets.given();
  Dim requests, rows, codes;
  Check check("index_gather");
  check.shape("cache", a.cache, {kAnyExtent, kAnyExtent}, "IXG-01 cache is [pages, bytes]")
      .dtype("cache", a.cache, {DType::u8}, "IXG-02 cache and keys are u8")
      .contiguous("cache", a.cache, 1, "IXG-03 the last axis of cache, keys and scales is contiguous")
      .that(a.page_tokens >= 1 && a.page_tokens <= 128, "page_tokens", "IXG-04 page_tokens is 1 to 128",
            a.page_tokens)
      .given("row_offsets", a.row_offsets, "IXG-05 row_offsets is [requests + 1]");
  if (!check.holds()) return check.status();
  requests.value = a.row_offsets.shape[0] - 1;
  const std::int64_t entries = requests.value + 1;
  check
      .that(a.row_offsets.rank == 1 && requests.value >= 0, "row_offsets",
            "IXG-05 row_offsets is [requests + 1]",
            a.row_offsets.rank == 1 ? a.row_offsets.shape[0] : a.row_offsets.rank)
      .dtype("row_offsets", a.row_offsets, {DType::i32, DType::i64},
             "IXG-06 offsets and start are i32 or i64");
  if (flat)
    check.shape("page_table", a.page_table, {kAnyExtent}, "IXG-07 a table with offsets is [entries]");
  else
    check.shape("page_table", a.page_table, {&requests, kAnyExtent},
                "IXG-08 page_table is [requests, columns]");
  check.dtype("page_table", a.page_table, {DType::i32}, "IXG-09 page_table is i32")
      .optional_shape("table_offsets", a.table_offsets, {entries}, "IXG-10 table_offsets is [requests + 1]")
      .dtype("table_offsets", a.table_offsets, {DType::i32, DType::i64},
             "IXG-06 offsets and start are i32 or i64")
      .optional_shape("start", a.start, {&requests}, "IXG-11 start is [requests]")
      .dtype("start", a.start, {DType::i32, DType::i64}, "IXG-06 offsets and start are i32 or i64")
      .shape("keys", a.keys, {&rows, &codes}, "IXG-12 keys is [rows, dim], or [rows, dim / 2] for mxfp4")
      .dtype("keys", a.keys, {DType::u8}, "IXG-02 cache and keys are u8")
      .contiguous("keys", a.keys, 1, "IXG-03 the last axis of cache, keys and scales is contiguous");
  const std::int64_t dim = fp8 ? codes.value : 2 * codes.value;
  check.that(dim == 32 || dim == 64 || dim == 128, "keys", "IXG-13 dim is 32, 64 or 128", dim);
  if (fp8)
    check.shape("scales", a.scales, {&rows}, "IXG-14 scales is [rows], or [rows, dim / 32] for mxfp4")
        .dtype("scales", a.scales, {DType::f32}, "IXG-15 scales is f32, or u8 for mxfp4");
  else
    check
        .shape("scales", a.scales, {&rows, dim / 32},
               "IXG-14 scales is [rows], or [rows, dim / 32] for mxfp4")
        .dtype("scales", a.scales, {DType::u8}, "IXG-15 scales is f32, or u8 for mxfp4")
        .contiguous("scales", a.scales, 1, "IXG-03 the last axis of cache, keys and scales is contiguous");
  if (!check.holds()) return check.status();
  return check
      .that(a.cache.shape[1] >= a.page_tokens * index_token_bytes(a.format, dim), "cache",
            "IXG-16 a page has the bytes of page_tokens tokens", a.cache.shape[1])
      .status();
}

}  // namespace keysieve

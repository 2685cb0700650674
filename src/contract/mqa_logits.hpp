// What mqa_logits' arguments must satisfy; docs/contracts/mqa_logits.md explains each rule.
#pragma once

#include "contract/bounds.hpp"
#include "keysieve/mqa_logits.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const MqaLogitsArgs& a, F&& f) {
  f("q", a.q, Access::read);
  f("weights", a.weights, Access::read);
  f("keys", a.keys, Access::read);
  f("key_scales", a.key_scales, Access::read);
  f("cache", a.cache, Access::read);
  f("page_table", a.page_table, Access::read);
  visit_bounds(a.bounds, f);
  f("scores", a.scores, Access::write);
}

// MQA-40 is the caller's duty: scales of q and constant factors are folded into weights.
constexpr Status judge(const MqaLogitsArgs& a) {
  Dim rows, heads, dim, width;
  Check check("mqa_logits");
  check.shape("q", a.q, {&rows, &heads, &dim}, "MQA-01 q is [rows, heads, dim]")
      .dtype("q", a.q, {DType::bf16, DType::u8}, "MQA-02 q is bf16, or u8 for e4m3fn")
      .shape("weights", a.weights, {&rows, &heads}, "MQA-03 weights is [rows, heads]")
      .dtype("weights", a.weights, {DType::f32, DType::bf16}, "MQA-04 weights is f32 or bf16")
      .shape("scores", a.scores, {&rows, &width}, "MQA-05 scores is [rows, width]")
      .dtype("scores", a.scores, {DType::f32, DType::bf16}, "MQA-06 scores is f32 or bf16")
      .contiguous("scores", a.scores, 1, "MQA-07 columns of scores are contiguous")
      .that(heads.value >= 1 && heads.value <= 128, "q", "MQA-08 heads is 1 to 128", heads.value)
      .that(dim.value == 32 || dim.value == 64 || dim.value == 128, "q", "MQA-09 dim is 32, 64 or 128",
            dim.value)
      .contiguous("q", a.q, 2, "MQA-10 the elements of a head are contiguous")
      .that(a.keys.given() != a.cache.given(), "keys",
            "MQA-11 either keys (ragged) or cache (paged) is given", a.keys.given() ? "both" : "neither");
  if (!check.holds()) return check.status();
  if (a.keys.given()) {
    Dim keys;
    check.shape("keys", a.keys, {&keys, &dim}, "MQA-12 keys is [keys, dim]")
        .dtype("keys", a.keys, {a.q.dtype}, "MQA-13 keys have the dtype of q");
    if (!check.holds()) return check.status();
    check.contiguous("keys", a.keys, 1, "MQA-14 the elements of a key are contiguous")
        .that(keys.value >= width.value, "keys", "MQA-15 there is a key for each column", keys.value)
        .that(a.key_scales.given() == (a.q.dtype == DType::u8), "key_scales",
              "MQA-16 key_scales go with u8 keys", a.key_scales.given() ? "a tensor" : "nothing")
        .optional_shape("key_scales", a.key_scales, {&keys}, "MQA-17 key_scales is [keys]")
        .dtype("key_scales", a.key_scales, {DType::f32}, "MQA-18 key_scales is f32")
        .that(!a.page_table.given(), "page_table", "MQA-19 a page table goes with a cache", "a tensor");
  } else {
    Dim requests;
    check.positive("page_tokens", a.page_tokens, "MQA-20 page_tokens is 1 to 2^31 - 1")
        .dtype("cache", a.cache, {a.q.dtype}, "MQA-21 the cache has the dtype of q")
        .that(!a.key_scales.given(), "key_scales", "MQA-22 a cache holds its own scales", "a tensor")
        .shape("page_table", a.page_table, {&requests, kAnyExtent},
               "MQA-23 page_table is [requests, columns]")
        .dtype("page_table", a.page_table, {DType::i32}, "MQA-24 page_table is i32");
    if (!check.holds()) return check.status();
    if (a.q.dtype == DType::bf16)
      check.shape("cache", a.cache, {kAnyExtent, a.page_tokens, &dim},
                  "MQA-25 a bf16 cache is [pages, page_tokens, dim]");
    else
      check.shape("cache", a.cache, {kAnyExtent, kAnyExtent}, "MQA-26 an fp8 cache is [pages, bytes]");
    if (!check.holds()) return check.status();
    check.contiguous("cache", a.cache, a.cache.rank - 1, "MQA-27 the last axis of a cache is contiguous")
        .that(a.q.dtype == DType::bf16 || a.cache.shape[1] / (dim.value + 4) >= a.page_tokens, "cache",
              "MQA-28 a page holds page_tokens * (dim + 4) bytes", a.cache.shape[1])
        .that(requests.value == 0 ? rows.value == 0 : rows.value % requests.value == 0, "page_table",
              "MQA-29 every request has the same number of rows", requests.value);
    if (!check.holds()) return check.status();
    judge_bounds(check, a.bounds, rows);
    // Engines pad queries and lengths apart from page tables: whose row would be whose? By division, since the
    // product may not fit 64 bits; the bounds' rules left no remainder.
    return check
        .that(a.bounds.form == BoundsForm::ends || !check.holds() ||
                  rows.value / a.bounds.next_n == requests.value,
              "page_table", "MQA-30 rows is requests * next_n", requests.value)
        .status();
  }
  if (!check.holds()) return check.status();
  return judge_bounds(check, a.bounds, rows).status();
}

}  // namespace keysieve

// What translate's arguments must satisfy; docs/contracts/translate.md explains each rule.
#pragma once

#include "contract/page_map.hpp"
#include "keysieve/translate.hpp"

namespace keysieve {

template <class F>
constexpr void visit_tensors(const TranslateArgs& a, F&& f) {
  f("indices", a.indices, Access::read);
  visit_page_map(a.pages, f);
  f("slots", a.slots, Access::write);
  f("counts", a.counts, Access::write);
  f("raw", a.raw, Access::write);
}

constexpr Status judge(const TranslateArgs& a) {
  Dim rows, k;
  Check check("translate");
  check.shape("indices", a.indices, {&rows, &k}, "TRN-01 indices is [rows, k]")
      .dtype("indices", a.indices, {DType::i32}, "TRN-02 indices is i32")
      .shape("slots", a.slots, {&rows, &k}, "TRN-03 slots is [rows, k]")
      .dtype("slots", a.slots, {DType::i32, DType::i64}, "TRN-04 slots is i32 or i64")
      .optional_shape("counts", a.counts, {&rows}, "TRN-05 counts is [rows]")
      .dtype("counts", a.counts, {DType::i32}, "TRN-06 counts is i32")
      .optional_shape("raw", a.raw, {&rows, &k}, "TRN-07 raw is [rows, k]")
      .dtype("raw", a.raw, {DType::i32}, "TRN-08 raw is i32");
  if (!check.holds()) return check.status();
  return judge_page_map(check, a.pages, rows).status();
}

}  // namespace keysieve

// The rules of Bounds, the same for every operation that takes row ranges.
#pragma once

#include "contract/check.hpp"
#include "keysieve/bounds.hpp"

namespace keysieve {

// Call after `rows` is bound by a shape.
constexpr Check& judge_bounds(Check& check, const Bounds& b, const Dim& rows) {
  check.given("end", b.end, "BND-01 row ends or lengths are given")
      .dtype("end", b.end, {DType::i32, DType::i64}, "BND-02 end is i32 or i64")
      .dtype("start", b.start, {DType::i32, DType::i64}, "BND-03 start is i32 or i64")
      .positive("row_repeat", b.row_repeat, "BND-04 row_repeat is 1 to 2^31 - 1")
      .positive("next_n", b.next_n, "BND-05 next_n is 1 to 2^31 - 1")
      .positive("ratio", b.ratio, "BND-06 ratio is 1 to 2^31 - 1");
  if (!check.holds()) return check;
  if (b.form == BoundsForm::ends) {
    const std::int64_t entries = (rows.value + b.row_repeat - 1) / b.row_repeat;
    return check.shape("end", b.end, {entries}, "BND-07 end is [ceil(rows / row_repeat)]")
        .optional_shape("start", b.start, {entries}, "BND-08 start is [ceil(rows / row_repeat)]")
        .that(b.ratio == 1, "ratio", "BND-09 row ends are columns already: ratio is 1", b.ratio)
        .that(b.next_n == 1, "next_n", "BND-10 row ends take no next_n: it is 1", b.next_n);
  }
  check.that(!b.start.given(), "start", "BND-11 lengths take no start", "a tensor")
      .that(b.row_repeat == 1, "row_repeat", "BND-12 lengths take no row_repeat: it is 1", b.row_repeat)
      .that(rows.value % b.next_n == 0, "next_n", "BND-13 rows is a multiple of next_n", b.next_n);
  const std::int64_t requests = rows.value / b.next_n;
  if (b.end.rank == 2)
    return check.shape("end", b.end, {requests, b.next_n}, "BND-14 lengths are [B] or [B, next_n]");
  return check.shape("end", b.end, {requests}, "BND-14 lengths are [B] or [B, next_n]")
      .that(b.unit == LengthUnit::tokens || b.ratio == 1 || b.next_n == 1, "unit",
            "BND-15 compressed lengths with ratio > 1 and next_n > 1 come per row: [B, next_n]", "[B]");
}

template <class F>
constexpr void visit_bounds(const Bounds& b, F&& f) {
  f("start", b.start, Access::read);
  f("end", b.end, Access::read);
}

}  // namespace keysieve

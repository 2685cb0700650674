// reader: turns the C structs of keysieve.h into C++ arguments and keeps the first rule that breaks; what it
// lets through is judged again by the operation's own contract. Zero, or NULL, is every field's default.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "contract/check.hpp"
#include "keysieve/bounds.hpp"
#include "keysieve/keysieve.h"
#include "keysieve/lse.hpp"
#include "keysieve/page_map.hpp"

namespace keysieve::capi {

class Reader {
 public:
  explicit Reader(const char* operation) : check_(operation) {}
  [[nodiscard]] bool holds() const { return check_.holds(); }
  [[nodiscard]] Status status() const { return check_.status(); }

  // A struct of any age as one of this library's: an older and smaller one is filled up with zeros, of a
  // newer and greater one the unknown part must be zero. NULL gives all zeros; whether that may be is for the
  // operation to judge.
  template <class Struct>
  Struct structure(const char* name, const Struct* given) {
    Struct full{};
    if (given == nullptr || !holds()) return full;
    const std::size_t size = given->struct_size;
    // No struct will outgrow the upper limit: it catches a size that was never set before memory behind the
    // struct is read. A size between fields would give half a pointer.
    check_.that(size >= sizeof(std::size_t) && size <= 4096 && size % 8 == 0, name,
                "ABI-01 struct_size is sizeof the struct", static_cast<std::int64_t>(size));
    if (!holds()) return full;
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (std::size_t i = sizeof(Struct); i < size && holds(); ++i)
      check_.that(bytes[i] == 0, name, "ABI-02 fields that this library does not know are zero",
                  "a value past the struct's end");
    if (holds()) std::memcpy(&full, given, std::min(size, sizeof(Struct)));
    return full;
  }

  Tensor tensor(const char* name, const DLTensor* given);

  // C's numbering starts with the default; `values` lists the C++ values in C's order.
  template <class Enum>
  Enum choice(const char* name, std::int32_t number, std::initializer_list<Enum> values) {
    const bool known = number >= 0 && number < static_cast<std::int32_t>(values.size());
    check_.that(known, name, "ABI-03 a value of the enum", number);
    return values.begin()[known ? number : 0];
  }

  bool flag(const char* name, std::int32_t number) { return choice(name, number, {false, true}); }

  Bounds bounds(const keysieve_bounds* given) {
    const keysieve_bounds c = structure("bounds", given);
    return {.form = choice("form", c.form, {BoundsForm::ends, BoundsForm::lengths}),
            .start = tensor("start", c.start),
            .end = tensor("end", c.end),
            .row_repeat = or_default(c.row_repeat, 1),
            .next_n = or_default(c.next_n, 1),
            .ratio = or_default(c.ratio, 1),
            .unit = choice("unit", c.unit, {LengthUnit::tokens, LengthUnit::compressed})};
  }

  PageMap page_map(const keysieve_page_map* given) {
    const keysieve_page_map c = structure("pages", given);
    return {.page_table = tensor("page_table", c.page_table),
            .row_to_request = tensor("row_to_request", c.row_to_request),
            .table_start = tensor("table_start", c.table_start),
            .page_size = or_default(c.page_size, 64),
            .pool_pages = or_default(c.pool_pages, -1),
            .next_n = or_default(c.next_n, 1)};
  }

  LseForm lse_form(const keysieve_lse_form& c) {
    return {.base = choice("base", c.base, {LseBase::natural, LseBase::two}),
            .empty = choice("empty", c.empty, {LseEmpty::minus_infinity, LseEmpty::plus_infinity}),
            .with_sink = flag("with_sink", c.with_sink)};
  }

  static std::int64_t or_default(std::int64_t value, std::int64_t fallback) {
    return value == 0 ? fallback : value;
  }

  // A scale that was forgotten must not pass for one of 0, which would weigh all keys alike.
  static float required(float value) { return value == 0 ? std::numeric_limits<float>::quiet_NaN() : value; }

  Check& check() { return check_; }

 private:
  Check check_;
};

}  // namespace keysieve::capi

// lse: how an attention row's logarithm of the sum of exponentials is written. Inside keysieve it is natural,
// -inf for a row without keys, and knows no sink; the other forms are conversions for engines that expect
// them, done once, where the value leaves or enters.
#pragma once

#include <cstdint>

namespace keysieve {

enum class LseBase : std::uint8_t { natural, two };
enum class LseEmpty : std::uint8_t { minus_infinity, plus_infinity };

struct LseForm {
  LseBase base = LseBase::natural;
  LseEmpty empty = LseEmpty::minus_infinity;
  bool with_sink = false;  // log(exp(lse) + exp(sink)); only where the operation has a sink
};

}  // namespace keysieve

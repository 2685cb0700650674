// lse: writes an LSE in the form that the caller asked for.
#pragma once

#include <cmath>
#include <limits>

#include "keysieve/lse.hpp"

namespace keysieve::cpu {

inline float written_lse(float natural, const LseForm& form, float sink) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  double lse = natural;
  if (form.with_sink) {
    const double high = lse > sink ? lse : sink, low = lse > sink ? sink : lse;
    lse = low == -kInfinity ? high : high + std::log1p(std::exp(low - high));
  }
  if (lse == -kInfinity) return form.empty == LseEmpty::plus_infinity ? kInfinity : -kInfinity;
  return static_cast<float>(form.base == LseBase::two ? lse * 1.4426950408889634 : lse);
}

}  // namespace keysieve::cpu

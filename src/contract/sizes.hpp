// sizes: products of sizes that a caller chose. A product that does not fit stays at the greatest number, where
// GEN-15 catches it; wrapped around to a small one it would let a kernel write past its workspace.
#pragma once

#include <cstddef>
#include <limits>

namespace keysieve {

constexpr std::size_t size_product(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::size_t>::max() : product;
}

}  // namespace keysieve

// divide: division by a value that the host knows, as one multiplication on the device.
#pragma once

#include <cstdint>

#include "gpu/vendor.hpp"

namespace keysieve::gpu {

// Exact for dividends below 2^31: with shift = ceil(log2 d) and multiplier = ceil(2^(31 + shift) / d) the
// error stays under 2^-31 of the quotient (Granlund and Montgomery).
struct Divisor {
  std::uint32_t value;
  std::uint32_t multiplier;
  std::uint32_t shift;

  Divisor() = default;
  explicit Divisor(std::uint32_t d) : value(d), shift(0) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + shift)) + d - 1) / d);
  }

#if defined(__CUDACC__) || defined(__HIPCC__)
  __device__ std::uint32_t divide(std::uint32_t dividend) const {
    return static_cast<std::uint32_t>((std::uint64_t{dividend} * multiplier) >> (31 + shift));
  }
  // Columns of a matrix are below 2^31 too; the wider type only spares casts.
  __device__ std::int64_t divide64(std::int64_t dividend) const {
    return divide(static_cast<std::uint32_t>(dividend));
  }
#endif
};

}  // namespace keysieve::gpu

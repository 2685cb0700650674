// settled: arguments whose strides kernels may add to any address. DLPack lets the stride of an axis with one
// element be anything, and an empty tensor may come without memory, where even one step is undefined.
#pragma once

#include "contract/check.hpp"

namespace keysieve {

// Strides along which nobody steps become 0. The last axis gets 1, which is what kernels with a faster path for
// neighbouring elements look for.
constexpr void settle_strides(Tensor& t) {
  const bool empty = t.elements() == 0;
  for (int axis = 0; axis < t.rank; ++axis)
    if (empty || t.shape[axis] <= 1) t.stride[axis] = axis + 1 == t.rank ? 1 : 0;
}

// For arguments that judge_tensors() accepted.
template <class Args>
constexpr Args settled(Args args) {
  // The copy is ours and not const.
  visit_tensors(args, [](const char*, const Tensor& t, Access) {
    if (t.given()) settle_strides(const_cast<Tensor&>(t));
  });
  return args;
}

}  // namespace keysieve

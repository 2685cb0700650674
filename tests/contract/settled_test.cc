// Strides along which nobody steps, and empty tensors without memory: kernels may add strides all the same.
#include "contract/settled.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "contract/topk.hpp"

namespace keysieve {
namespace {

constexpr std::int64_t kAbsurd = std::numeric_limits<std::int64_t>::max();

constexpr bool strides_become(std::initializer_list<std::int64_t> shape,
                              std::initializer_list<std::int64_t> given,
                              std::initializer_list<std::int64_t> wanted) {
  Tensor t = Tensor::dense(nullptr, DType::f32, shape);
  for (int axis = 0; axis < t.rank; ++axis) t.stride[axis] = given.begin()[axis];
  settle_strides(t);
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.stride[axis] != wanted.begin()[axis]) return false;
  return true;
}

static_assert(strides_become({3, 4}, {70, 2}, {70, 2}));
static_assert(strides_become({1, 4}, {kAbsurd, 1}, {0, 1}));
static_assert(strides_become({3, 1}, {70, -kAbsurd}, {70, 1}));
static_assert(strides_become({1}, {0}, {1}));
static_assert(strides_become({3, 0}, {70, 2}, {0, 1}));
static_assert(strides_become({0, 4, 5}, {70, kAbsurd, 3}, {0, 0, 1}));

// Every tensor of the arguments, and the caller's own stay as they are.
static_assert([] {
  TopkArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {1, 9});
  a.out = Tensor::dense(nullptr, DType::i32, {1, 2});
  a.scores.stride[0] = a.out.stride[0] = kAbsurd;
  const TopkArgs b = settled(a);
  return a.scores.stride[0] == kAbsurd && b.scores.stride[0] == 0 && b.out.stride[0] == 0 &&
         b.out.shape[1] == 2 && !b.values.given();
}());

}  // namespace
}  // namespace keysieve

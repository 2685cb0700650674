// Sizes that do not fit: counted without overflow, since shapes come from outside.
#include "keysieve/tensor.hpp"

#include <gtest/gtest.h>

namespace keysieve {
namespace {

constexpr Tensor of(std::int64_t a, std::int64_t b, std::int64_t c) {
  Tensor t;
  t.dtype = DType::u8;
  t.rank = 3;
  t.shape[0] = a;
  t.shape[1] = b;
  t.shape[2] = c;
  return t;
}

constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
static_assert(of(2, 3, 4).elements() == 24);
static_assert(of(kGreatest, 3, 4).elements() == kGreatest);
static_assert(of(kGreatest, 3, 0).elements() == 0);
static_assert(of(std::int64_t{1} << 32, std::int64_t{1} << 32, 1).elements() == kGreatest);
static_assert(Tensor{}.elements() == 0);
static_assert(Tensor::dense(nullptr, DType::u8, {1, 2, 3, 4, 5}).rank == 5);
static_assert(Tensor::dense(nullptr, DType::u8, {2, kGreatest, kGreatest}).stride[0] == kGreatest);

TEST(Tensor, ElementsAreCountedWithoutOverflow) {
  EXPECT_EQ(of(kGreatest, kGreatest, kGreatest).elements(), kGreatest);
}

}  // namespace
}  // namespace keysieve

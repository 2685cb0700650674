// attention: how near an attention result must come to the float64 reference, and tensors to attend with.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/parity.hpp"
#include "support/tensor_box.hpp"

namespace keysieve::test {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// bf16 outputs: |difference| <= 1e-3 or relative <= 2/128. fp32 outputs are held to the arithmetic, which is
// fp32.
inline bool near_output(double expected, double got, bool bf16) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (std::isinf(expected)) return expected == got;
  const double difference = std::abs(expected - got);
  return bf16 ? difference <= 1e-3 || difference <= 2.0 / 128 * std::abs(expected)
              : difference <= 1e-4 || difference <= 1e-4 * std::abs(expected);
}
inline bool near_lse(double expected, double got) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (std::isinf(expected) || std::isinf(got)) return expected == got;
  const double difference = std::abs(expected - got);
  return difference <= 1e-5 || difference <= 1.2e-4 * std::abs(expected);
}

// Calls f(index...) for every element of a tensor of rank 2 or 3.
template <class F>
void for_each_element(const Tensor& t, F&& f) {
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    for (std::int64_t j = 0; j < (t.rank > 1 ? t.shape[1] : 1); ++j)
      for (std::int64_t c = 0; c < (t.rank > 2 ? t.shape[2] : 1); ++c) f(i, j, c);
}

inline double element(TensorBox& box, std::int64_t i, std::int64_t j, std::int64_t c) {
  const int rank = box.tensor().rank;
  return rank == 3 ? box.get(i, j, c) : rank == 2 ? box.get(i, j) : box.get(i);
}
inline void set_element(TensorBox& box, double value, std::int64_t i, std::int64_t j, std::int64_t c) {
  const int rank = box.tensor().rank;
  if (rank == 3)
    box.set(value, i, j, c);
  else if (rank == 2)
    box.set(value, i, j);
  else
    box.set(value, i);
}
template <class F>
void fill_box(TensorBox& box, F&& f) {
  for_each_element(box.tensor(), [&](auto i, auto j, auto c) { set_element(box, f(i, j, c), i, j, c); });
}

// The boxes' last two are out and lse: near; gaps, guards and all other tensors: the same bytes.
struct NearAttention {
  void operator()(const std::string& what, std::vector<TensorBox*> expected,
                  std::vector<TensorBox*> got) const {
    ASSERT_EQ(expected.size(), got.size());
    const std::size_t out = expected.size() - 2;
    double dot = 0, expected2 = 0, got2 = 0;
    bool finite = true;
    int failures = 0;
    for (std::size_t b = out; b < expected.size(); ++b) {
      if (!expected[b]->tensor().given()) continue;
      const bool bf16 = expected[b]->tensor().dtype == DType::bf16;
      for_each_element(expected[b]->tensor(), [&](auto i, auto j, auto c) {
        const double e = element(*expected[b], i, j, c), g = element(*got[b], i, j, c);
        if (!(b == out ? near_output(e, g, bf16) : near_lse(e, g)) && ++failures <= 3)
          ADD_FAILURE() << what << (b == out ? ": out[" : ": lse[") << i << ", " << j << ", " << c << "] is "
                        << g << ", expected " << e;
        if (b == out) {
          finite = finite && std::isfinite(e);
          dot += e * g, expected2 += e * e, got2 += g * g;
        }
        set_element(*got[b], e, i, j, c);
      });
    }
    if (finite && expected2 > 0) {
      EXPECT_LE(1 - dot / std::sqrt(expected2 * got2), 5e-6) << what << ": cosine distance";
    }
    for (std::size_t b = 0; b < expected.size(); ++b)
      EXPECT_EQ(expected[b]->bytes(), got[b]->bytes()) << what << ": bytes around or in tensor " << b;
  }
};

// Standard normal numbers that depend on the seed and their place only.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : random_(seed) {}
  double normal() { return normal_(random_); }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

// Address space without memory behind it until it is touched; reads of untouched parts give 0.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0)) {}
  ~SparseMemory() {
    if (there()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  [[nodiscard]] bool there() const { return data_ != MAP_FAILED; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace keysieve::test

// topk where element offsets pass 2^31 and 2^32, in address space that is reserved but mostly never touched.
#include <gtest/gtest.h>

#include "support/topk_call.hpp"

#if defined(__linux__) && defined(__LP64__)
#include <sys/mman.h>

namespace keysieve::test {
namespace {

// Zeros until they are written; pages that nobody touches cost nothing.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0)) {}
  ~Reserved() {
    if (ok()) ::munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  [[nodiscard]] bool ok() const { return data_ != MAP_FAILED; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

constexpr std::int64_t kWidest = (std::int64_t{1} << 31) - 1;

void write_score(void* scores, DType dtype, std::int64_t at, float value) {
  if (dtype == DType::bf16)
    static_cast<std::uint16_t*>(scores)[at] = to_bf16(value);
  else
    static_cast<float*>(scores)[at] = value;
}

// Rows of 2^31 - 1 columns, 2^32 + 6 elements apart, live only in a window at their very end; outputs as far
// apart.
TEST(TopkWide, RowsBeyond32Bits) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 32) + 6, kLive = 5'000, kK = 700;
  const std::vector<float> values = make_scores(Family::learned_like, 2 * kLive, 3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool restricted : {false, true}) {
      const Reserved scores(static_cast<std::size_t>((kStride + kWidest) * dtype_bytes(dtype)));
      const Reserved out(static_cast<std::size_t>((kStride + kK) * 4)),
          expected(static_cast<std::size_t>((kStride + kK) * 4));
      if (!scores.ok() || !out.ok() || !expected.ok()) GTEST_SKIP() << "no address space for 40 GB";
      for (std::int64_t r = 0; r < 2; ++r)
        for (std::int64_t j = 0; j < kLive; ++j)
          write_score(scores.as<void>(), dtype, r * kStride + kWidest - kLive + j,
                      values[static_cast<std::size_t>(r * kLive + j)]);
      std::int64_t start[] = {kWidest - kLive, kWidest - 1'000}, end[] = {kWidest, std::int64_t{1} << 40};
      std::vector<std::int32_t> candidates;
      for (std::int32_t j = 0; j < 2 * 400; ++j) candidates.push_back(j * 331 % 625);
      TopkArgs a;
      a.scores = Tensor::dense(scores.as<void>(), dtype, {2, kWidest});
      a.scores.stride[0] = kStride;
      a.bounds.start = Tensor::dense(start, DType::i64, {2});
      a.bounds.end = Tensor::dense(end, DType::i64, {2});
      a.k = kK;
      a.space = TopkSpace::absolute;
      if (restricted) a.candidates = Tensor::dense(candidates.data(), DType::i32, {2, 400});
      a.out = Tensor::dense(expected.as<void>(), DType::i32, {2, kK});
      a.out.stride[0] = kStride;
      ASSERT_TRUE(run_with(a, "reference").ok());
      a.out.data = out.as<void>();
      for_each_host_run(a, [&](const std::string& kernel, const std::string& label,
                               const Executor* executor) {
        ASSERT_TRUE(run_with(a, "cpu", kernel.c_str(), executor).ok());
        for (const std::int64_t row : {std::int64_t{0}, kStride}) {
          EXPECT_EQ(0, std::memcmp(out.as<std::int32_t>() + row, expected.as<std::int32_t>() + row, kK * 4))
              << label;
          EXPECT_GT(out.as<std::int32_t>()[row], kWidest - kLive - 1) << label;
        }
      });
    }
}

// rows * width beyond 2^32 with dense rows: the last rows of many.
TEST(TopkWide, ManyRows) {
  constexpr std::int64_t kRows = 4'100, kWidth = 1'048'576;
  const Reserved scores(static_cast<std::size_t>(kRows * kWidth * 4));
  if (!scores.ok()) GTEST_SKIP() << "no address space for 17 GB";
  std::vector<std::int32_t> end(kRows, 0), out(kRows * 4), expected(kRows * 4);
  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{2'050}, kRows - 1}) {
    end[static_cast<std::size_t>(r)] = 3'000;
    for (std::int64_t j = 0; j < 3'000; ++j)
      scores.as<float>()[r * kWidth + j] = static_cast<float>((j * 7 + r) % 3'000);
  }
  TopkArgs a;
  a.scores = Tensor::dense(scores.as<void>(), DType::f32, {kRows, kWidth});
  a.bounds.end = Tensor::dense(end.data(), DType::i32, {kRows});
  a.k = 4;
  a.out = Tensor::dense(expected.data(), DType::i32, {kRows, 4});
  ASSERT_TRUE(run_with(a, "reference").ok());
  EXPECT_GE(expected[4 * (kRows - 1)], 0);
  a.out.data = out.data();
  for_each_host_run(a, [&](const std::string& kernel, const std::string& label, const Executor* executor) {
    std::fill(out.begin(), out.end(), 7);
    ASSERT_TRUE(run_with(a, "cpu", kernel.c_str(), executor).ok());
    EXPECT_EQ(out, expected) << label;
  });
}

// TOP-25: scratch follows k and the candidates, not the width.
TEST(TopkWide, ScratchDoesNotGrowWithTheWidth) {
  const auto bytes = [](std::int64_t width, std::int64_t k, std::int64_t candidates) {
    TopkArgs a;
    a.scores = Tensor::dense(nullptr, DType::f32, {1, width});
    a.bounds.end = Tensor::dense(nullptr, DType::i32, {1});
    a.k = k;
    a.out = Tensor::dense(nullptr, DType::i32, {1, k});
    if (candidates > 0) a.candidates = Tensor::dense(nullptr, DType::i32, {1, candidates});
    TopkPlan p;
    EXPECT_TRUE(plan(a, {.backend = "cpu"}, p).ok());
    return static_cast<std::int64_t>(p.workspace_bytes);
  };
  EXPECT_EQ(bytes(1 << 20, 512, 0), bytes(kWidest, 512, 0));
  EXPECT_EQ(bytes(1 << 20, 2048, 2048), bytes(kWidest, 2048, 2048));
  EXPECT_LE(bytes(kWidest, 512, 0), 110'000);
  EXPECT_LE(bytes(kWidest, 2048, 2048), 250'000);
  EXPECT_LE(bytes(100, 1 << 30, 0), 30'000) << "k beyond the width costs nothing";
}

}  // namespace
}  // namespace keysieve::test
#endif

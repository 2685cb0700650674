// Element offsets past 2^31 and 2^32 in device memory: rows that lie there hold the data, and the rows where an
// offset of 32 bits would end up hold sentinels. What the reference makes of a matrix of those rows alone is what
// must come back.
#include <gtest/gtest.h>

#include <cstring>

#include "gpu/device.hpp"
#include "support/families.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

constexpr Device kDevice{DeviceType::cuda, 0};
constexpr unsigned char kSentinel = 0x3F;  // scores of 0.747, mask words with most bits set

// Device memory full of sentinels; empty where the device has too little.
class Far {
 public:
  explicit Far(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* data = nullptr;
    if (gpu::allocate(&data, bytes_) != gpu::kSuccess) {
      (void)gpu::take_last_error();
      return;
    }
    data_ = static_cast<char*>(data);
    EXPECT_EQ(gpu::fill_bytes(data_, kSentinel, bytes_), gpu::kSuccess);
    EXPECT_EQ(gpu::synchronize(), gpu::kSuccess);
  }
  template <class T>
  explicit Far(const std::vector<T>& values) : Far(std::ssize(values) * sizeof(T)) {
    put(0, values.data(), std::ssize(values) * sizeof(T));
  }
  ~Far() { (void)gpu::release(data_); }
  Far(const Far&) = delete;
  Far& operator=(const Far&) = delete;

  [[nodiscard]] bool ok() const { return data_ != nullptr; }
  [[nodiscard]] char* data() const { return data_; }
  void put(std::int64_t at, const void* from, std::int64_t bytes) const {
    ASSERT_EQ(gpu::copy_to_device(data_ + at, from, static_cast<std::size_t>(bytes)), gpu::kSuccess);
  }
  void get(std::int64_t at, void* to, std::int64_t bytes) const {
    ASSERT_EQ(gpu::copy_to_host(to, data_ + at, static_cast<std::size_t>(bytes)), gpu::kSuccess);
  }
  void expect_sentinels(std::int64_t at, std::int64_t bytes) const {
    std::vector<unsigned char> seen(static_cast<std::size_t>(bytes));
    get(at, seen.data(), bytes);
    EXPECT_EQ(seen, std::vector<unsigned char>(static_cast<std::size_t>(bytes), kSentinel))
        << "at byte " << at;
  }

 private:
  std::size_t bytes_;
  char* data_ = nullptr;
};

template <class Args>
void run_on_device(const Args& args, const std::string& kernel) {
  Plan<Args> planned;
  const Status status = plan(args, PlanOptions{"cuda", kernel.c_str(), {}, 1}, planned);
  ASSERT_TRUE(status.ok()) << status.message();
  const Far workspace(static_cast<std::int64_t>(planned.workspace_bytes) + 256);
  ASSERT_TRUE(workspace.ok());
  const Status ran = run(planned, args, {workspace.data(), planned.workspace_bytes}, {});
  ASSERT_TRUE(ran.ok()) << kernel << ": " << ran.message();
  ASSERT_EQ(gpu::synchronize(), gpu::kSuccess) << kernel;
}

// 4,100 rows of 2^20 columns; the third is 2^31 and the last 2^32 elements and more from the first. Each of them
// is short, all others are empty.
constexpr std::int64_t kWidth = std::int64_t{1} << 20, kRows = 4'100, kLive = 40'003, kPlaces = 1'000;
constexpr std::int64_t kFull[] = {1, 700, 2'050, 4'099};
constexpr std::int64_t kWrapped[] = {2, 3};  // kFull[2] and kFull[3] modulo 2^31 and 2^32 elements
constexpr std::int64_t kFullRows = std::ssize(kFull);

struct ManyRows {
  std::vector<float> near;  // [kFullRows, kLive]
  std::vector<std::int32_t> near_end, end, near_list, list;
  Far scores{kRows * kWidth * 4};

  ManyRows()
      : near(make_scores(Family::learned_like, kFullRows * kLive, 3)),
        end(kRows, 0),
        near_list(kFullRows * kPlaces),
        list(kRows * kPlaces, 0) {
    for (std::int64_t r = 0; r < kFullRows; ++r) {
      near_end.push_back(static_cast<std::int32_t>(kLive - 5 * r));
      end[static_cast<std::size_t>(kFull[r])] = near_end.back();
      for (std::int64_t j = 0; j < kPlaces; ++j) {
        const auto id = static_cast<std::int32_t>((j * 331 + r) % (kLive / 8 + 3));
        near_list[static_cast<std::size_t>(r * kPlaces + j)] = id;
        list[static_cast<std::size_t>(kFull[r] * kPlaces + j)] = id;
      }
    }
    if (scores.ok()) upload();
  }
  void upload() const {
    for (std::int64_t r = 0; r < kFullRows; ++r)
      scores.put(kFull[r] * kWidth * 4, near.data() + r * kLive, kLive * 4);
  }
  // A row of the device's matrix against the reference's.
  template <class T>
  void expect_rows(const char* what, const Far& far, const std::vector<T>& expected,
                   std::int64_t row_elements, std::int64_t far_stride) const {
    for (std::int64_t r = 0; r < kFullRows; ++r) {
      std::vector<T> got(static_cast<std::size_t>(row_elements));
      far.get(kFull[r] * far_stride * std::int64_t{sizeof(T)}, got.data(),
              row_elements * std::int64_t{sizeof(T)});
      EXPECT_EQ(0, std::memcmp(got.data(), expected.data() + r * row_elements, got.size() * sizeof(T)))
          << what << ", row " << kFull[r];
    }
  }
  [[nodiscard]] Tensor near_scores(std::vector<float>& memory) const {
    return Tensor::dense(memory.data(), DType::f32, {kFullRows, kLive});
  }
  [[nodiscard]] Tensor far_scores() const {
    return Tensor::dense(scores.data(), DType::f32, {kRows, kWidth}, kDevice);
  }
};

TEST(FarRows, CandidateMask) {
  const ManyRows m;
  if (!m.scores.ok()) GTEST_SKIP() << "less than 17 GB of device memory";
  std::vector<float> expected = m.near;
  std::vector<std::int32_t> ends = m.near_end, lists = m.near_list;
  CandidateMaskArgs a;
  a.scores = m.near_scores(expected);
  a.bounds.end = Tensor::dense(ends.data(), DType::i32, {kFullRows});
  a.candidates = Tensor::dense(lists.data(), DType::i32, {kFullRows, kPlaces});
  ASSERT_TRUE(run_with(a, "reference").ok());
  const Far end(m.end), list(m.list);
  a.scores = m.far_scores();
  a.bounds.end = Tensor::dense(end.data(), DType::i32, {kRows}, kDevice);
  a.candidates = Tensor::dense(list.data(), DType::i32, {kRows, kPlaces}, kDevice);
  for (const std::string& kernel : device_kernels(a)) {
    m.upload();
    run_on_device(a, kernel);
    m.expect_rows("mask", m.scores, expected, kLive, kWidth);
    for (const std::int64_t row : kFull) m.scores.expect_sentinels((row * kWidth + kLive) * 4, 1 << 20);
    for (const std::int64_t row : kWrapped) m.scores.expect_sentinels(row * kWidth * 4, 1 << 20);
    m.scores.expect_sentinels(0, 1 << 20);
  }
}

TEST(FarRows, CandidateBlocks) {
  ManyRows m;
  if (!m.scores.ok()) GTEST_SKIP() << "less than 17 GB of device memory";
  std::vector<std::int32_t> expected(kFullRows * kPlaces);
  CandidateBlocksArgs a;
  a.scores = m.near_scores(m.near);
  a.bounds.end = Tensor::dense(m.near_end.data(), DType::i32, {kFullRows});
  a.candidates = Tensor::dense(expected.data(), DType::i32, {kFullRows, kPlaces});
  ASSERT_TRUE(run_with(a, "reference").ok());
  const Far end(m.end), list(kRows * kPlaces * 4);
  a.scores = m.far_scores();
  a.bounds.end = Tensor::dense(end.data(), DType::i32, {kRows}, kDevice);
  a.candidates = Tensor::dense(list.data(), DType::i32, {kRows, kPlaces}, kDevice);
  for (const std::string& kernel : device_kernels(a)) {
    run_on_device(a, kernel);
    m.expect_rows("blocks", list, expected, kPlaces, kPlaces);
  }
}

TEST(FarRows, Topk) {
  ManyRows m;
  if (!m.scores.ok()) GTEST_SKIP() << "less than 17 GB of device memory";
  constexpr std::int64_t kPicks = 512;
  for (const bool restricted : {false, true}) {
    std::vector<std::int32_t> expected(kFullRows * kPicks);
    TopkArgs a;
    a.k = kPicks;
    a.scores = m.near_scores(m.near);
    a.bounds.end = Tensor::dense(m.near_end.data(), DType::i32, {kFullRows});
    if (restricted) a.candidates = Tensor::dense(m.near_list.data(), DType::i32, {kFullRows, kPlaces});
    a.out = Tensor::dense(expected.data(), DType::i32, {kFullRows, kPicks});
    ASSERT_TRUE(run_with(a, "reference").ok());
    const Far end(m.end), list(m.list), out(kRows * kPicks * 4);
    a.scores = m.far_scores();
    a.bounds.end = Tensor::dense(end.data(), DType::i32, {kRows}, kDevice);
    if (restricted) a.candidates = Tensor::dense(list.data(), DType::i32, {kRows, kPlaces}, kDevice);
    a.out = Tensor::dense(out.data(), DType::i32, {kRows, kPicks}, kDevice);
    for (const std::string& kernel : device_kernels(a)) {
      run_on_device(a, kernel);
      m.expect_rows(restricted ? "topk of candidates" : "topk", out, expected, kPicks, kPicks);
    }
  }
}

// A row as wide as rows may be, live in its last columns.
TEST(FarRows, TopkOfTheWidestRow) {
  constexpr std::int64_t kWidest = (std::int64_t{1} << 31) - 1, kPicks = 700, kSeen = 5'000;
  std::vector<float> near = make_scores(Family::learned_like, kSeen, 3);
  std::int64_t start[] = {0}, end[] = {kSeen}, far_start[] = {kWidest - kSeen}, far_end[] = {kWidest + 9};
  std::vector<std::int32_t> expected(kPicks), got(kPicks);
  TopkArgs a;
  a.k = kPicks;
  a.scores = Tensor::dense(near.data(), DType::f32, {1, kSeen});
  a.bounds.start = Tensor::dense(start, DType::i64, {1});
  a.bounds.end = Tensor::dense(end, DType::i64, {1});
  a.out = Tensor::dense(expected.data(), DType::i32, {1, kPicks});
  ASSERT_TRUE(run_with(a, "reference").ok());
  const Far scores(kWidest * 4);
  if (!scores.ok()) GTEST_SKIP() << "less than 9 GB of device memory";
  scores.put((kWidest - kSeen) * 4, near.data(), kSeen * 4);
  const Far starts(std::vector<std::int64_t>{far_start[0]}), ends(std::vector<std::int64_t>{far_end[0]}),
      out(kPicks * 4);
  a.scores = Tensor::dense(scores.data(), DType::f32, {1, kWidest}, kDevice);
  a.bounds.start = Tensor::dense(starts.data(), DType::i64, {1}, kDevice);
  a.bounds.end = Tensor::dense(ends.data(), DType::i64, {1}, kDevice);
  a.out = Tensor::dense(out.data(), DType::i32, {1, kPicks}, kDevice);
  for (const std::string& kernel : device_kernels(a)) {
    run_on_device(a, kernel);
    out.get(0, got.data(), kPicks * 4);
    EXPECT_EQ(got, expected) << kernel;
  }
}

// A mask of more than 2^32 words; every word is written, so a padding row shows where a stray one went.
TEST(FarRows, PackedMask) {
  constexpr std::int64_t kMaskRows = 131'328, kWords = 32'772, kListed = 4, kTokens = kMaskRows - 100;
  const Far mask(kMaskRows * kWords * 4);
  if (!mask.ok()) GTEST_SKIP() << "less than 18 GB of device memory";
  std::vector<std::int32_t> keys(kTokens * kListed);
  const auto key = [](std::int64_t token, std::int64_t j) {
    return static_cast<std::int32_t>((token * 7919 + j * 262'147) % (kWords * 32));
  };
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t j = 0; j < kListed; ++j) keys[static_cast<std::size_t>(t * kListed + j)] = key(t, j);
  const Far list(keys), q_start(std::vector<std::int64_t>{0, kTokens}),
      count(std::vector<std::int64_t>{kWords * 32});
  PackedMaskArgs a;
  a.q_start = Tensor::dense(q_start.data(), DType::i64, {2}, kDevice);
  a.key_count = Tensor::dense(count.data(), DType::i64, {1}, kDevice);
  a.indices = Tensor::dense(list.data(), DType::i32, {kTokens, kListed}, kDevice);
  a.mask = Tensor::dense(mask.data(), DType::u32, {1, kMaskRows, kWords}, kDevice);
  for (const std::string& kernel : device_kernels(a)) {
    run_on_device(a, kernel);
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, kMaskRows / 2, std::int64_t{131'055},
                                   kTokens - 1, kTokens, kMaskRows - 1}) {
      std::vector<std::uint32_t> expected(kWords, 0), got(kWords);
      for (std::int64_t j = 0; j < kListed && row < kTokens; ++j)
        expected[static_cast<std::size_t>(key(row, j) / 32)] |= 1u << (key(row, j) % 32);
      mask.get(row * kWords * 4, got.data(), kWords * 4);
      EXPECT_EQ(got, expected) << kernel << ", row " << row;
    }
  }
}

}  // namespace
}  // namespace keysieve::test

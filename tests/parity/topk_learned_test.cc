// topk on the scores of a trained indexer, against the selections stored with them. KEYSIEVE_TEST_DATA names
// the folder; without it the test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "support/topk_call.hpp"

namespace keysieve::test {
namespace {

// The array `name` of a safetensors file that the caller trusts.
template <class T>
std::vector<T> read_array(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t header_bytes = 0;
  if (!file.read(reinterpret_cast<char*>(&header_bytes), 8)) return {};
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const std::string key = "\"data_offsets\":[";
  const std::size_t entry = header.find("\"" + name + "\"");
  const std::size_t offsets = entry == std::string::npos ? entry : header.find(key, entry);
  if (offsets == std::string::npos) return {};
  char* rest = nullptr;
  const std::uint64_t begin = std::strtoull(header.c_str() + offsets + key.size(), &rest, 10);
  const std::uint64_t end = std::strtoull(rest + 1, nullptr, 10);
  std::vector<T> values((end - begin) / sizeof(T));
  file.seekg(static_cast<std::streamoff>(8 + header_bytes + begin));
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
  return values;
}

// Eight requests as one packed matrix row each; plain, and restricted to the blocks that an earlier layer
// published.
TEST(TopkLearned, SelectsWhatTheModelSelected) {
  const char* folder = std::getenv("KEYSIEVE_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "KEYSIEVE_TEST_DATA names no folder with learned data";
  const std::string path = std::string(folder) + "/tinydsa/decode8_layer3_index.safetensors";
  const auto scores = read_array<double>(path, "expected_scores");
  if (scores.empty()) GTEST_SKIP() << path << " is not there";
  const auto starts = read_array<std::int32_t>(path, "k_start");
  const auto gaps = read_array<double>(path, "expected_topk_gap");
  const auto blocks = read_array<std::int32_t>(path, "candidate_blocks_in");
  ASSERT_EQ(starts.size(), 9u);
  ASSERT_EQ(blocks.size(), 8u * 512);
  const auto width = static_cast<std::int64_t>(scores.size());
  std::vector<float> packed;
  for (int r = 0; r < 8; ++r) packed.insert(packed.end(), scores.begin(), scores.end());
  for (const bool restricted : {false, true}) {
    const auto expected =
        read_array<std::int32_t>(path, restricted ? "expected_topk" : "expected_topk_unrestricted");
    ASSERT_EQ(expected.size(), 8u * 512);
    const auto make = [&] {
      TopkCall c = make_topk({8, width, 512}, packed);
      c.has_start = true;
      c.start = TensorBox::of(DType::i32, std::vector<std::int32_t>(starts.begin(), starts.end() - 1));
      c.end = TensorBox::of(DType::i32, std::vector<std::int32_t>(starts.begin() + 1, starts.end()));
      c.has_candidates = restricted;
      c.candidates = TensorBox(DType::i32, {8, 512});
      c.candidates.fill([&](auto i, auto j) { return blocks[static_cast<std::size_t>(i * 512 + j)]; });
      c.extra.order = TopkOrder::by_score;
      return c;
    };
    expect_parity(make);
    TopkCall c = make();
    ASSERT_TRUE(run_with(c.args(), "cpu").ok());
    for (std::int64_t r = 0; r < 8; ++r) {
      // Scores are stored in 64 bits: a selection is certain where the gap at the cut exceeds what 32 bits
      // round away.
      if (restricted && gaps[static_cast<std::size_t>(r)] < 1e-5) continue;
      std::vector<std::int64_t> want;
      for (std::int64_t t = 0; t < 512; ++t)
        if (const std::int32_t id = expected[static_cast<std::size_t>(r * 512 + t)]; id >= 0)
          want.push_back(id);
      std::vector<std::int64_t> got = c.picks(r);
      std::sort(want.begin(), want.end());
      std::sort(got.begin(), got.end());
      EXPECT_EQ(got, want) << "request " << r << (restricted ? ", restricted" : "");
    }
  }
}

}  // namespace
}  // namespace keysieve::test

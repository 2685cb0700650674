// score_rows: the scores that top-k benchmarks select from: learned ones and the families of the tests.
// KEYSIEVE_TEST_DATA names a folder with learned step files; without it the family `learned` is absent.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/families.hpp"

namespace keysieve::bench {

// Scores of the longest request of the learned decode step; longer rows repeat them with a little noise.
inline const std::vector<float>& learned_row() {
  static const std::vector<float> row = [] {
    std::vector<float> scores;
    const char* folder = std::getenv("KEYSIEVE_TEST_DATA");
    if (folder == nullptr) return scores;
    std::ifstream file(std::string(folder) + "/tinydsa/decode8_layer3_index.safetensors", std::ios::binary);
    std::uint64_t header_bytes = 0;
    if (!file.read(reinterpret_cast<char*>(&header_bytes), 8)) return scores;
    std::string header(header_bytes, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const std::size_t entry = header.find("\"expected_scores\"");
    const std::size_t offsets = header.find("\"data_offsets\":[", entry);
    const std::uint64_t begin = std::strtoull(header.c_str() + offsets + 16, nullptr, 10);
    constexpr std::uint64_t kFirst = 4529, kCount = 32'000;
    std::vector<double> values(kCount);
    file.seekg(static_cast<std::streamoff>(8 + header_bytes + begin + kFirst * 8));
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(kCount * 8));
    if (file) scores.assign(values.begin(), values.end());
    return scores;
  }();
  return row;
}

inline std::vector<float> scores_of(const std::string& family, std::int64_t count) {
  if (family == "learned") {
    std::vector<float> scores = test::make_scores(test::Family::random, count, 3);
    const std::vector<float>& learned = learned_row();
    for (std::size_t i = 0; i < scores.size(); ++i)
      scores[i] = learned[i % learned.size()] + (i < learned.size() ? 0.f : 0.05f * scores[i]);
    return scores;
  }
  for (const test::Family f : test::all_families())
    if (test::family_name(f) == family) return test::make_scores(f, count, 3);
  return {};
}

}  // namespace keysieve::bench

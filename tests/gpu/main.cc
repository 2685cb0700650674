// gpu_tests: runs the tests on device 0. A run of all of them leaves names, results and the commit in
// gpu_tests.json, any other with `--gtest_output=json:FILE`.
#include <gtest/gtest.h>

#include <cstdio>

#include "commit.hpp"
#include "gpu/device.hpp"
#include "harness.hpp"

namespace keysieve::test {
namespace {

class RunFacts : public ::testing::Environment {
 public:
  void SetUp() override {
    RecordProperty("commit", KEYSIEVE_COMMIT);
    RecordProperty("architecture", gpu::device_facts({DeviceType::cuda, 0}).architecture);
    RecordProperty("processors", gpu::device_facts({DeviceType::cuda, 0}).processors);
  }

 private:
  static void RecordProperty(const char* key, const std::string& value) {
    ::testing::Test::RecordProperty(key, value);
  }
  static void RecordProperty(const char* key, int value) { ::testing::Test::RecordProperty(key, value); }
};

}  // namespace
}  // namespace keysieve::test

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* refusal = keysieve::gpu::device_refusal({keysieve::DeviceType::cuda, 0})) {
    std::printf("gpu_tests: skipped, %s\n", refusal);
    return kSkipped;
  }
  if (GTEST_FLAG_GET(output).empty() && GTEST_FLAG_GET(filter) == "*")
    GTEST_FLAG_SET(output, "json:gpu_tests.json");
  keysieve::test::Harness harness;
  keysieve::test::device_harness = &harness;
  ::testing::AddGlobalTestEnvironment(new keysieve::test::RunFacts);
  return RUN_ALL_TESTS();
}

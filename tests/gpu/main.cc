// gpu_tests: runs the tests on device 0. `--gtest_output=json:FILE` leaves names, results and the commit.
#include <gtest/gtest.h>

#include <cstdio>

#include "commit.hpp"
#include "gpu/device.hpp"
#include "support/device_parity.hpp"

namespace keysieve::test {
namespace {

class Harness final : public DeviceHarness {
 public:
  Harness() { note(gpu::make_stream(&stream_)); }
  ~Harness() override {
    gpu::end_graph(graph_, exec_);
    (void)gpu::release(memory_);
    (void)gpu::end_stream(stream_);
  }
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  char* memory(std::size_t bytes) override {
    if (bytes > bytes_) {
      (void)gpu::release(memory_);
      bytes_ = bytes * 2;
      void* data = nullptr;
      note(gpu::allocate(&data, bytes_));
      memory_ = static_cast<char*>(data);
    }
    return memory_;
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    note(gpu::copy_to_device(to, from, bytes));
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    note(gpu::copy_to_host(to, from, bytes));
  }
  void fill(void* to, int value, std::size_t bytes) override {
    if (bytes > 0) note(gpu::fill_bytes(to, value, bytes));
  }
  void* stream() override {
    // Copies and fills went to the default stream.
    if (!capturing_) note(gpu::synchronize());
    return stream_;
  }
  void begin_capture() override {
    note(gpu::synchronize());
    gpu::end_graph(graph_, exec_);
    graph_ = nullptr;
    exec_ = nullptr;
    capturing_ = true;
    note(gpu::begin_capture(stream_));
  }
  void end_capture() override {
    note(gpu::end_capture(stream_, &graph_));
    note(gpu::instantiate(&exec_, graph_));
    capturing_ = false;
  }
  void replay() override {
    note(gpu::synchronize());
    note(gpu::replay(exec_, stream_));
  }
  std::string finish() override {
    note(gpu::synchronize(stream_));
    const gpu::Error error = error_;
    error_ = gpu::kSuccess;
    return error == gpu::kSuccess ? "" : gpu::error_text(error);
  }

 private:
  void note(gpu::Error error) {
    if (error_ == gpu::kSuccess) error_ = error;
  }

  gpu::StreamHandle stream_ = nullptr;
  gpu::GraphHandle graph_ = nullptr;
  gpu::GraphExecHandle exec_ = nullptr;
  bool capturing_ = false;
  char* memory_ = nullptr;
  std::size_t bytes_ = 0;
  gpu::Error error_ = gpu::kSuccess;
};

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
  keysieve::test::Harness harness;
  keysieve::test::device_harness = &harness;
  ::testing::AddGlobalTestEnvironment(new keysieve::test::RunFacts);
  return RUN_ALL_TESTS();
}

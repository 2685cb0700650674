// harness: one stream of device 0, with memory and a graph of its own. Tests take several of them to run calls
// side by side.
#pragma once

#include <cstdlib>
#include <string>

#include "gpu/device.hpp"
#include "support/device_parity.hpp"

namespace keysieve::test {

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
    if (bytes > bytes_ || fresh_) {
      (void)gpu::release(memory_);
      bytes_ = fresh_ ? bytes : bytes * 2;
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
    constexpr int kRubbish = 0xFF;  // what workspaces hold at entry
    if (bytes > 0 && !(fresh_ && value == kRubbish)) note(gpu::fill_bytes(to, value, bytes));
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
    replay_now();
  }
  // Beside whatever runs on other streams.
  void replay_now() { note(gpu::replay(exec_, stream_)); }
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

  // For checkers: each call's memory ends where it should, and workspaces hold nothing at all.
  const bool fresh_ = std::getenv("KEYSIEVE_FRESH_MEMORY") != nullptr;
  gpu::StreamHandle stream_ = nullptr;
  gpu::GraphHandle graph_ = nullptr;
  gpu::GraphExecHandle exec_ = nullptr;
  bool capturing_ = false;
  char* memory_ = nullptr;
  std::size_t bytes_ = 0;
  gpu::Error error_ = gpu::kSuccess;
};

}  // namespace keysieve::test

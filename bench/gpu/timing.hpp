// timing: what the device benchmarks share. A call is captured once as a graph and replayed alone between two
// events; the median counts. Warm: the same buffers again and again. Cold: after 256 MiB were written.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "gpu/device.hpp"
#include "keysieve/plan.hpp"

namespace keysieve::bench {

inline constexpr Device kDevice{DeviceType::cuda, 0};

inline void check(gpu::Error error) {
  if (error == gpu::kSuccess) return;
  std::fprintf(stderr, "device: %s\n", gpu::error_text(error));
  std::exit(1);
}
inline void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

struct Memory {
  void* data = nullptr;
  std::size_t bytes = 0;
  explicit Memory(std::size_t n) : bytes(n) { check(gpu::allocate(&data, std::max<std::size_t>(n, 256))); }
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    check(gpu::copy_to_device(data, values.data(), bytes));
  }
  ~Memory() { (void)gpu::release(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

using Enqueue = std::function<void(gpu::StreamHandle)>;

class Clock {
 public:
  Clock() : flush_(kFlushBytes) {
    check(gpu::make_stream(&stream_));
    check(gpu::make_event(&from_));
    check(gpu::make_event(&to_));
    // Clocks rise only under work.
    (void)microseconds([&](gpu::StreamHandle s) { check(gpu::fill_bytes(flush_.data, 1, kFlushBytes, s)); },
                       false, 1000);
  }
  // Microseconds of one replay of what `enqueue` puts on the stream.
  double microseconds(const Enqueue& enqueue, bool cold, int repeats = 60) {
    gpu::GraphHandle graph;
    gpu::GraphExecHandle exec;
    check(gpu::begin_capture(stream_));
    enqueue(stream_);
    check(gpu::end_capture(stream_, &graph));
    check(gpu::instantiate(&exec, graph));
    std::vector<float> times;
    for (int i = 0; i < repeats + 5; ++i) {
      if (cold) check(gpu::fill_bytes(flush_.data, i, kFlushBytes, stream_));
      check(gpu::record(from_, stream_));
      check(gpu::replay(exec, stream_));
      check(gpu::record(to_, stream_));
      check(gpu::synchronize(to_));
      float ms = 0;
      check(gpu::elapsed_ms(&ms, from_, to_));
      if (i >= 5) times.push_back(ms * 1000);
    }
    gpu::end_graph(graph, exec);
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }
  // The speeds of this device, in bytes a microsecond; a copy counts bytes read and bytes written.
  double copy_speed() {
    constexpr std::size_t kBytes = std::size_t{512} << 20;
    const Memory from(kBytes), to(kBytes);
    return 2.0 * kBytes /
           microseconds(
               [&](gpu::StreamHandle s) { check(gpu::copy_on_device(to.data, from.data, kBytes, s)); }, false,
               20);
  }
  double fill_speed() {
    constexpr std::size_t kBytes = std::size_t{1} << 30;
    const Memory memory(kBytes);
    return kBytes /
           microseconds([&](gpu::StreamHandle s) { check(gpu::fill_bytes(memory.data, 1, kBytes, s)); },
                        false, 20);
  }

 private:
  static constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
  gpu::StreamHandle stream_ = nullptr;
  gpu::EventHandle from_ = nullptr, to_ = nullptr;
  Memory flush_;
};

// Runs a planned call; the workspace grows with the largest.
template <class Args>
Enqueue planned_call(const Args& args, Memory& workspace, const char* kernel = "") {
  Plan<Args> planned;
  check(plan(args, PlanOptions{.backend = "cuda", .kernel = kernel}, planned));
  if (planned.workspace_bytes > workspace.bytes) {
    std::fprintf(stderr, "workspace too small: %zu\n", planned.workspace_bytes);
    std::exit(1);
  }
  return [planned, args, &workspace](gpu::StreamHandle stream) {
    check(run(planned, args, {workspace.data, workspace.bytes}, {stream, nullptr}));
  };
}

}  // namespace keysieve::bench

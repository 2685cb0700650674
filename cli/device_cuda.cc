#include <algorithm>
#include <limits>
#include <vector>

#include "device.hpp"
#include "gpu/device.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

constexpr Device kDevice{DeviceType::cuda, 0};

class GpuDevice final : public StageDevice {
 public:
  GpuDevice() {
    note(gpu::make_stream(&stream_));
    note(gpu::make_event(&from_));
    note(gpu::make_event(&to_));
  }
  ~GpuDevice() override {
    release();
    (void)gpu::end_event(from_);
    (void)gpu::end_event(to_);
    (void)gpu::end_stream(stream_);
  }
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  [[nodiscard]] std::string name() const override {
    const gpu::DeviceFacts& facts = gpu::device_facts(kDevice);
    return printed("a device of compute capability %d.%d with %d multiprocessors", facts.architecture / 10,
                   facts.architecture % 10, facts.processors);
  }
  [[nodiscard]] double copy_bandwidth() override {
    constexpr std::size_t kBytes = std::size_t{512} << 20;
    void *from = allocate(kBytes), *to = allocate(kBytes);
    double seconds = 0;
    Status status = error("copy");
    if (from == nullptr || to == nullptr) return 0;
    status = time(
        [&](void* stream) {
          note(gpu::copy_on_device(to, from, kBytes, static_cast<gpu::StreamHandle>(stream)));
          return Status{};
        },
        5, seconds);
    release();
    return status.ok() && seconds > 0 ? 2.0 * kBytes / seconds : 0;
  }
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    void* data = nullptr;
    if (gpu::allocate(&data, std::max<std::size_t>(bytes, 256)) != gpu::kSuccess) {
      (void)gpu::take_last_error();
      return nullptr;
    }
    memory_.push_back(data);
    return data;
  }
  void release() override {
    for (void* data : memory_) (void)gpu::release(data);
    memory_.clear();
  }
  [[nodiscard]] Status upload(void* to, const void* from, std::size_t bytes) override {
    note(gpu::copy_to_device(to, from, bytes));
    return error("upload");
  }
  [[nodiscard]] Status download(void* to, const void* from, std::size_t bytes) override {
    note(gpu::copy_to_host(to, from, bytes));
    return error("download");
  }
  [[nodiscard]] Status time(const std::function<Status(void* stream)>& enqueue, int repeats,
                            double& seconds) override {
    gpu::GraphHandle graph = nullptr;
    gpu::GraphExecHandle exec = nullptr;
    note(gpu::synchronize());  // uploads went to the default stream
    note(gpu::begin_capture(stream_));
    const Status status = enqueue(stream_);
    note(gpu::end_capture(stream_, &graph));
    if (status.ok()) note(gpu::instantiate(&exec, graph));
    seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; status.ok() && error_ == gpu::kSuccess && i <= repeats; ++i) {
      float ms = 0;
      note(gpu::record(from_, stream_));
      note(gpu::replay(exec, stream_));
      note(gpu::record(to_, stream_));
      note(gpu::synchronize(to_));
      note(gpu::elapsed_ms(&ms, from_, to_));
      if (i > 0) seconds = std::min(seconds, static_cast<double>(ms) / 1000);
    }
    gpu::end_graph(graph, exec);
    return status.ok() ? error("run") : status;
  }

 private:
  void note(gpu::Error error) {
    if (error_ == gpu::kSuccess) error_ = error;
  }
  [[nodiscard]] Status error(const char* operation) {
    const gpu::Error error = error_;
    error_ = gpu::kSuccess;
    return error == gpu::kSuccess ? Status{} : gpu::device_error(operation, error);
  }

  gpu::StreamHandle stream_ = nullptr;
  gpu::EventHandle from_ = nullptr, to_ = nullptr;
  std::vector<void*> memory_;
  gpu::Error error_ = gpu::kSuccess;
};

}  // namespace

std::unique_ptr<StageDevice> open_device(const std::string& backend, std::string& refusal) {
  if (backend != "cuda") return nullptr;
  if (const char* reason = gpu::device_refusal(kDevice)) {
    refusal = reason;
    return nullptr;
  }
  return std::make_unique<GpuDevice>();
}

}  // namespace keysieve::cli

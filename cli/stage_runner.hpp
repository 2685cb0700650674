// stage_runner: plans one call of an operation, gives it a workspace, runs it several times and reports what ran and how
// long it took.
#pragma once

#include <algorithm>
#include <chrono>

#include "device_tensors.hpp"
#include "pipeline.hpp"
#include "tracing.hpp"

namespace keysieve::cli {

inline io::StageReport stage_named(const char* name) {
  io::StageReport stage;
  stage.stage = name;
  return stage;
}

class StageRunner {
 public:
  StageRunner(const io::Step& step, const RunOptions& options) : step_(step), options_(options) {}

  // The first error that is not a refusal.
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] bool failed() const { return !status_.ok(); }

  // Plans and times one call; false when it was refused or failed. Seconds add up over the chunks of a stage.
  template <class Args>
  bool call(const char* operation, const Args& args, io::StageReport& stage, int repeats) {
    if (options_.progress) options_.progress(step_.name + ": " + stage.stage);
    if constexpr (HasDeviceTensors<Args>) {
      if (options_.device != nullptr) return call_on_device(operation, args, stage, repeats);
    }
    const KernelChoice kernels = options_.kernels.on_host();
    const PlannedChoice choice(kernels, operation, options_.executor);
    Plan<Args> planned;
    Status status = plan(args, choice.options, planned);
    if (status.code == Code::unsupported) {
      stage.refusal = status.seen;
      return false;
    }
    if (!status.ok()) return stop(status);
    if (planned.workspace_bytes > workspace_bytes_) {
      workspace_ = Buffer<char>(static_cast<std::int64_t>(planned.workspace_bytes) + 64);
      workspace_bytes_ = planned.workspace_bytes;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    char* const aligned = workspace_.data() + (64 - address % 64) % 64;
    const Workspace workspace{planned.workspace_bytes > 0 ? aligned : nullptr, planned.workspace_bytes};
    const auto once = [&](const Executor* executor) {
      const auto start = Clock::now();
      status = keysieve::run(planned, args, workspace, Stream{nullptr, executor});
      return seconds_since(start);
    };
    double best = once(options_.executor);
    if (!status.ok()) return stop(status);
    double spent = best;
    int done = 1;
    for (; done < repeats && spent < kRepeatSeconds; ++done) {
      const double seconds = once(options_.executor);
      if (!status.ok()) return stop(status);
      best = std::min(best, seconds);
      spent += seconds;
    }
    if (options_.trace != nullptr) trace(stage, planned.kernel_name, once);
    if (!status.ok()) return stop(status);
    stage.kernel = planned.kernel_name;
    stage.seconds += best;
    stage.repeats = stage.repeats == 0 ? done : std::min(stage.repeats, done);
    return true;
  }

 private:
  // As call(), with tensors copied to the device and back, which takes no part in the time.
  template <class Args>
  bool call_on_device(const char* operation, const Args& args, io::StageReport& stage, int repeats) {
    StageDevice& device = *options_.device;
    DeviceTensors<Args> tensors(device, args);
    const PlannedChoice choice(options_.kernels, operation, nullptr);
    Plan<Args> planned;
    Status status = plan(tensors.args(), choice.options, planned);
    if (status.code == Code::unsupported) {
      stage.refusal = status.seen;
      return false;
    }
    if (!status.ok() || !(status = tensors.upload()).ok()) return stop(status);
    void* const memory = device.allocate(planned.workspace_bytes);
    if (memory == nullptr) throw std::bad_alloc();
    const Workspace workspace{memory, planned.workspace_bytes};
    const auto start = Clock::now();
    double best = 0;
    status = device.time(
        [&](void* stream) {
          return keysieve::run(planned, tensors.args(), workspace, Stream{stream, nullptr});
        },
        repeats, best);
    if (!status.ok() || !(status = tensors.download()).ok()) return stop(status);
    if (options_.trace != nullptr)
      options_.trace->push_back({step_.name + " " + stage.stage, "stage", microseconds(start),
                                 microseconds(Clock::now()) - microseconds(start), 0, planned.kernel_name});
    stage.kernel = planned.kernel_name;
    stage.on_device = true;
    stage.seconds += best;
    stage.repeats = stage.repeats == 0 ? repeats : std::min(stage.repeats, repeats);
    return true;
  }

  static constexpr double kRepeatSeconds = 1.0;  // a stage that took this long is not repeated

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  template <class Once>
  void trace(const io::StageReport& stage, const char* kernel, const Once& once) {
    const auto start = Clock::now();
    if (options_.executor != nullptr) {
      TracingExecutor tracing(*options_.executor, stage.stage, *options_.trace);
      const Executor executor = tracing.executor();
      once(&executor);
    } else {
      once(nullptr);
    }
    options_.trace->push_back({step_.name + " " + stage.stage, "stage", microseconds(start),
                               microseconds(Clock::now()) - microseconds(start), 0, kernel});
  }

  bool stop(const Status& status) {
    status_ = status;
    return false;
  }

  const io::Step& step_;
  const RunOptions& options_;
  Status status_;
  Buffer<char> workspace_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace keysieve::cli

// tracing: an executor that notes when which thread worked on which task of a stage.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/report.hpp"
#include "keysieve/executor.hpp"

namespace keysieve::cli {

using Clock = std::chrono::steady_clock;

// Since the program started.
inline const Clock::time_point kOrigin = Clock::now();
inline double microseconds(Clock::time_point at) {
  return std::chrono::duration<double, std::micro>(at - kOrigin).count();
}

class TracingExecutor {
 public:
  TracingExecutor(const Executor& inner, std::string name, std::vector<io::TraceEvent>& events)
      : inner_(inner), name_(std::move(name)), events_(events) {}
  [[nodiscard]] Executor executor() { return {this, inner_.concurrency, &for_each}; }

 private:
  struct Call {
    TracingExecutor* self;
    void (*body)(void*, std::int64_t);
    void* context;
  };
  static void for_each(void* self, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
    auto* const tracing = static_cast<TracingExecutor*>(self);
    Call call{tracing, body, context};
    tracing->inner_.for_each(tracing->inner_.self, tasks, &traced, &call);
  }
  static void traced(void* context, std::int64_t task) {
    const Call& call = *static_cast<Call*>(context);
    const auto start = Clock::now();
    call.body(call.context, task);
    const auto end = Clock::now();
    TracingExecutor& self = *call.self;
    const std::lock_guard lock(self.mutex_);
    const auto known = std::find(self.threads_.begin(), self.threads_.end(), std::this_thread::get_id());
    const int thread = static_cast<int>(known - self.threads_.begin()) + 1;
    if (known == self.threads_.end()) self.threads_.push_back(std::this_thread::get_id());
    if (self.events_.size() < 200'000) {
      self.events_.push_back({self.name_ + " task", "task", microseconds(start),
                              microseconds(end) - microseconds(start), thread,
                              "task " + std::to_string(task)});
    }
  }
  const Executor& inner_;
  std::string name_;
  std::vector<io::TraceEvent>& events_;
  std::mutex mutex_;
  std::vector<std::thread::id> threads_;
};

}  // namespace keysieve::cli

// allocations: counts what code asks of the heap, by whatever name: operator new ends in malloc, and
// allocations.cc replaces the whole family. Counted only on threads that watch, so that a test may count a call
// without the executor that the call is given.
#pragma once

#include <cstdint>

#include "keysieve/executor.hpp"

namespace keysieve::test {

// False where malloc is somebody else's: under sanitizers, and without glibc.
extern const bool kAllocationsCount;

// How many there were on watching threads since the program started.
[[nodiscard]] std::int64_t allocations();

// While it lives, this thread watches, or with `on` false looks away.
class WatchAllocations {
 public:
  explicit WatchAllocations(bool on = true);
  ~WatchAllocations();
  WatchAllocations(const WatchAllocations&) = delete;
  WatchAllocations& operator=(const WatchAllocations&) = delete;

 private:
  bool before_;
};

// An executor that watches its tasks, whatever threads `inner` puts them on, and not `inner` itself.
inline Executor watched(const Executor& inner) {
  return {const_cast<Executor*>(&inner), inner.concurrency,
          [](void* self, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
            struct Task {
              void (*body)(void*, std::int64_t);
              void* context;
            } task{body, context};
            const WatchAllocations look_away(false);
            const auto& executor = *static_cast<const Executor*>(self);
            executor.for_each(
                executor.self, tasks,
                [](void* watched_task, std::int64_t index) {
                  const WatchAllocations watch;
                  const auto& t = *static_cast<const Task*>(watched_task);
                  t.body(t.context, index);
                },
                &task);
          }};
}

}  // namespace keysieve::test

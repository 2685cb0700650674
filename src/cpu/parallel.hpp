// parallel: hands tasks to the caller's executor. Workers take the next task from a counter, so long rows do
// not hold up short ones; results must not depend on who takes what.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "contract/mutant.hpp"
#include "registry/kernel.hpp"

namespace keysieve::cpu {

// Calls body(task, worker) for every task in [0, tasks); worker < launch.concurrency names the scratch slice
// that this call alone may use meanwhile.
template <class Body>
void for_each_task(const Launch& launch, std::int64_t tasks, Body&& body) {
  if (mutant("run.allocates")) ::operator delete(::operator new(1));
  std::int64_t workers = std::min<std::int64_t>(launch.concurrency, tasks);
  if (launch.executor == nullptr || launch.executor->for_each == nullptr)
    workers = std::min<std::int64_t>(workers, 1);
  if (workers <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  struct Shared {
    std::atomic<std::int64_t> next{0};
    std::int64_t tasks;
    Body* body;
  } shared{{0}, tasks, &body};
  launch.executor->for_each(
      launch.executor->self, workers,
      [](void* context, std::int64_t worker) {
        auto& s = *static_cast<Shared*>(context);
        for (std::int64_t task = s.next++; task < s.tasks; task = s.next++)
          (*s.body)(task, static_cast<int>(worker));
      },
      &shared);
}

// The part of the workspace that belongs to one worker.
template <class T>
T* worker_scratch(const Launch& launch, int worker, std::size_t bytes_per_worker) {
  return reinterpret_cast<T*>(static_cast<char*>(launch.workspace.data) +
                              static_cast<std::size_t>(worker) * bytes_per_worker);
}

}  // namespace keysieve::cpu

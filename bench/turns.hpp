// turns: times two ways of the same work by turns in one run, so that what the machine does meanwhile hits
// both.
#pragma once

#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "keysieve/plan.hpp"

namespace keysieve::bench {

// Seconds that this thread spent; unlike the clock on the wall it stands still while others have the core.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <class Work>
double seconds_of(Work&& work) {
  const double begin = thread_seconds();
  work();
  return thread_seconds() - begin;
}

struct Turns {
  double ours = 1e9, other = 1e9;  // least seconds of a call
};

// Calls both once an iteration; the iteration's time is ours.
template <class Ours, class Other>
Turns take_turns(benchmark::State& state, Ours&& ours, Other&& other) {
  Turns least;
  for (auto _ : state) {
    least.other = std::min(least.other, seconds_of(other));
    const double t = seconds_of(ours);
    least.ours = std::min(least.ours, t);
    state.SetIterationTime(t);
  }
  return least;
}

// A planned call with its workspace, on the calling thread.
template <class Args>
class Call {
 public:
  explicit Call(const Args& args) : args_(args) {
    if (const Status s = plan(args_, {}, plan_); !s.ok()) std::abort();
    workspace_.resize(plan_.workspace_bytes + 64);
  }
  void operator()() {
    auto* memory = workspace_.data() + (64 - reinterpret_cast<std::uintptr_t>(workspace_.data()) % 64);
    if (const Status s = run(plan_, args_, {memory, plan_.workspace_bytes}, {}); !s.ok()) std::abort();
  }

 private:
  Args args_;
  Plan<Args> plan_;
  std::vector<unsigned char> workspace_;
};

// Memory of a reserved width: what no call touches costs nothing. Ends with the program.
template <class T>
T* reserve(std::size_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<T*>(memory);
}
template <class T>
void release(T* memory, std::size_t count) {
  munmap(memory, count * sizeof(T));
}

}  // namespace keysieve::bench

// executor: where host work runs. An engine passes its own thread pool; without one, run() works on the
// calling thread alone and starts no thread.
#pragma once

#include <cstdint>
#include <memory>

namespace [[gnu::visibility("default")]] keysieve {

struct Executor {
  void* self = nullptr;
  // Most tasks that one call hands out; also what workspace sizes are planned for.
  std::int32_t concurrency = 1;
  // Calls body(context, task) once for every task in [0, tasks), in any order, on any threads, and returns
  // after the last one has returned. Running them one after the other is always right.
  void (*for_each)(void* self, std::int64_t tasks, void (*body)(void* context, std::int64_t task),
                   void* context) = nullptr;
};

// A pool of oneTBB threads; threads = 0 takes every core that this process may use.
class ThreadPool {
 public:
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  [[nodiscard]] Executor executor() const;

 private:
  struct Arena;
  std::unique_ptr<Arena> arena_;
};

// Where run() enqueues or executes: a device stream for device backends, an executor for host backends.
struct Stream {
  void* handle = nullptr;              // cudaStream_t; ignored by host backends
  const Executor* executor = nullptr;  // null: the calling thread; ignored by device backends
};

// Scratch memory of the caller; its content before a call has no meaning and after it neither.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace keysieve

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>

#include "keysieve/executor.hpp"

namespace keysieve {

struct ThreadPool::Arena {
  tbb::task_arena arena;
  // oneTBB prints a warning when it is asked for more threads than the process may use, and cannot take any number.
  explicit Arena(int threads)
      : arena(threads <= 0 ? tbb::task_arena::automatic
                           : std::min(threads, tbb::info::default_concurrency())) {}
};

ThreadPool::ThreadPool(int threads) : arena_(std::make_unique<Arena>(threads)) { arena_->arena.initialize(); }
ThreadPool::~ThreadPool() = default;

Executor ThreadPool::executor() const {
  return {arena_.get(), arena_->arena.max_concurrency(),
          [](void* self, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
            static_cast<Arena*>(self)->arena.execute([&] {
              tbb::parallel_for(
                  std::int64_t{0}, tasks, [&](std::int64_t task) { body(context, task); },
                  tbb::simple_partitioner());
            });
          }};
}

}  // namespace keysieve

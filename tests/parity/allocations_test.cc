// That the parity driver, which counts the allocations of every call, can count at all: on this thread, and on an
// executor's.
#include "support/allocations.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "keysieve/topk.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

// Out of the optimiser's sight, which leaves out what nobody uses.
void use(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

template <class Body>
std::int64_t counted(Body&& body) {
  const std::int64_t before = allocations();
  {
    const WatchAllocations watch;
    body();
  }
  return allocations() - before;
}

TEST(Allocations, EveryWayIsCounted) {
  if (!kAllocationsCount) GTEST_SKIP() << "malloc is somebody else's here";
  EXPECT_EQ(counted([] {}), 0);
  EXPECT_EQ(counted([] { use(std::make_unique<int>(1).get()); }), 1);
  EXPECT_EQ(counted([] { use(std::string(100, ' ').data()); }), 1);
  EXPECT_EQ(counted([] {
              void* memory = std::malloc(1);
              use(memory);
              memory = std::realloc(memory, 1000);
              use(memory);
              std::free(memory);
              memory = std::aligned_alloc(64, 64);
              use(memory);
              std::free(memory);
            }),
            3);
}

TEST(Allocations, TasksAreWatchedAndTheirExecutorIsNot) {
  if (!kAllocationsCount) GTEST_SKIP() << "malloc is somebody else's here";
  struct Pool {
    int calls = 0;
  } pool;
  const Executor inner{&pool, 2,
                       [](void* self, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
                         const auto own = std::make_unique<int>(1);
                         use(own.get());
                         static_cast<Pool*>(self)->calls += 1;
                         for (std::int64_t task = 0; task < tasks; ++task) body(context, task);
                       }};
  const Executor executor = watched(inner);
  EXPECT_EQ(counted([&] {
              executor.for_each(
                  executor.self, 3, [](void*, std::int64_t) { use(std::make_unique<int>(1).get()); },
                  nullptr);
            }),
            3);
  EXPECT_EQ(pool.calls, 1);
}

TEST(Allocations, GEN_16_RefusalsAllocateNothing) {
  if (!kAllocationsCount) GTEST_SKIP() << "malloc is somebody else's here";
  float scores[16] = {};
  std::int32_t end[1] = {16}, out[4] = {};
  TopkArgs args;
  args.scores = Tensor::dense(scores, DType::f32, {1, 16});
  args.bounds.end = Tensor::dense(end, DType::i32, {1});
  args.k = 4;
  args.out = Tensor::dense(out, DType::i32, {1, 4});
  TopkPlan planned;
  Status small_workspace, no_plan, bad_shape;
  EXPECT_EQ(counted([&] {
              small_workspace = plan(args, {}, planned);
              if (small_workspace.ok()) small_workspace = run(planned, args, {}, {});
              no_plan = run(TopkPlan{}, args, {}, {});
              args.k = 5;
              bad_shape = run(planned, args, {}, {});
            }),
            0);
  EXPECT_EQ(small_workspace.code, Code::workspace_too_small) << small_workspace.message();
  EXPECT_EQ(no_plan.code, Code::invalid_argument) << no_plan.message();
  EXPECT_EQ(bad_shape.code, Code::invalid_argument) << bad_shape.message();
}

}  // namespace
}  // namespace keysieve::test

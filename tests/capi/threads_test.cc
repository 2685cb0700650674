// Several threads call at the same time, each with an executor that runs its tasks on threads of its own, and
// they read the same inputs. Each must leave what the call leaves alone. What they may not share in secret,
// ThreadSanitizer sees here: this file comes first in its CI job, so that the first use of every kernel is one
// by many.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "capi/to_c.hpp"
#include "fuzz/calls.hpp"

namespace keysieve::test {
namespace {

constexpr int kCallers = 4;
constexpr int kCalls = 40;

// An engine's pool of the plainest kind.
constexpr keysieve_executor kThreadPerTask{
    sizeof(keysieve_executor), nullptr,
    [](void*, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
      std::vector<std::thread> threads;
      for (std::int64_t task = 0; task < tasks; ++task) threads.emplace_back(body, context, task);
      for (std::thread& thread : threads) thread.join();
    },
    3, 0};

template <class Args>
struct Caller {
  Args args;
  fuzz::Memory<Args> memory;
  keysieve_error error{};

  void call(const char* backend, const keysieve_executor* executor) {
    CView view;
    const auto c = to_c(args, view);
    const auto functions = c_functions(c);
    keysieve_options options{};
    options.struct_size = sizeof options;
    options.backend = backend;
    options.executor = executor;
    error.struct_size = sizeof error;
    std::size_t bytes = 0;
    if (functions.workspace_bytes(&c, &options, &bytes, &error) != KEYSIEVE_OK) return;
    char text[200];
    functions.explain(&c, &options, text, sizeof text);
    const auto scratch = fuzz::workspace(bytes);
    functions.run(&c, &options, scratch.get(), bytes, &error);
  }
};

template <class Args>
void read_the_same(const Args& from, Args& to) {
  std::vector<void*> data;
  visit_tensors(from, [&](const char*, const Tensor& t, Access) { data.push_back(t.data); });
  auto next = data.begin();
  visit_tensors(to, [&](const char*, const Tensor& t, Access access) {
    if (access == Access::read) const_cast<Tensor&>(t).data = *next;
    ++next;
  });
}

template <class Args>
void expect_alone_is_together(const keysieve_executor* executor) {
  int called = 0;
  for (unsigned seed = 0; seed < kCalls; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::uint8_t bytes[100];
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    fuzz::Source in(bytes, sizeof bytes);
    Args args;
    fuzz::make(in, args);
    Caller<Args> callers[kCallers + 1];
    bool fits = judge(args).ok();
    for (Caller<Args>& caller : callers) {
      caller.args = args;
      fits = fits && caller.memory.attach(caller.args, seed);
    }
    if (!fits) continue;
    const char* backend = seed % 4 == 3 ? "reference" : "cpu";
    std::vector<std::thread> threads;
    for (int i = 0; i < kCallers; ++i) {
      read_the_same(callers[0].args, callers[i].args);
      threads.emplace_back([&, i] { callers[i].call(backend, executor); });
    }
    for (std::thread& thread : threads) thread.join();
    Caller<Args>& alone = callers[kCallers];
    alone.call(backend, nullptr);
    ASSERT_EQ(alone.error.code, KEYSIEVE_OK) << alone.error.text;
    for (int i = 0; i < kCallers; ++i) {
      EXPECT_EQ(callers[i].error.code, KEYSIEVE_OK) << callers[i].error.text;
      EXPECT_TRUE(callers[i].memory.equals(alone.memory)) << "caller " << i;
    }
    ++called;
  }
  EXPECT_GT(called, kCalls / 4);
}

template <class Args>
class Threads : public testing::Test {};
using EveryOperation =
    testing::Types<IndexStoreArgs, IndexGatherArgs, PrepareQueriesArgs, MqaLogitsArgs, CandidateBlocksArgs,
                   CandidateMaskArgs, TopkArgs, TranslateArgs, PackedMaskArgs, MaskIndicesArgs, MaskedMhaArgs,
                   SparseMlaArgs, MergeStatesArgs>;
TYPED_TEST_SUITE(Threads, EveryOperation);

TYPED_TEST(Threads, CallAtTheSameTimeWithTheirOwn) { expect_alone_is_together<TypeParam>(&kThreadPerTask); }

TYPED_TEST(Threads, CallAtTheSameTimeWithOnePool) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "Debian's oneTBB is not built for ThreadSanitizer, which cannot see how it orders threads";
#endif
  keysieve_thread_pool* pool = keysieve_thread_pool_create(2);
  ASSERT_NE(pool, nullptr);
  expect_alone_is_together<TypeParam>(keysieve_thread_pool_executor(pool));
  keysieve_thread_pool_destroy(pool);
}

}  // namespace
}  // namespace keysieve::test

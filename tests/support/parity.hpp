// parity: runs every host kernel of an operation, on every instruction set of this machine, with one thread
// and with two, and compares all that its tensors hold afterwards with what the reference leaves. No call of a
// cpu kernel may allocate. A new kernel in the registry is covered without touching a test.
//
// A Bundle owns its TensorBoxes: `Args args()` gives the call, `std::vector<TensorBox*> boxes()` every
// tensor, inputs too, since those must not change.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "keysieve/plan.hpp"
#include "support/allocations.hpp"
#include "support/device_parity.hpp"
#include "support/tensor_box.hpp"

namespace keysieve::test {

// A workspace of exactly the planned size, filled with 0xFF, with guards behind it.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(std::size_t bytes) : bytes_(bytes), memory_(bytes + 128 + kGuard, 0xFF) {
    std::memset(data() + bytes_, 0xA7, kGuard);
  }
  [[nodiscard]] Workspace view() { return {data(), bytes_}; }
  [[nodiscard]] bool intact() {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (data()[bytes_ + i] != 0xA7) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  unsigned char* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + ((address + 63) / 64 * 64 - address);
  }
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
};

template <class Args>
Status run_with(const Args& args, const char* backend, const char* kernel = "",
                const Executor* executor = nullptr) {
  Plan<Args> planned;
  const PlanOptions options{backend, kernel, {}, executor == nullptr ? 1 : executor->concurrency};
  Status status = plan(args, options, planned);
  if (!status.ok()) return status;
  GuardedWorkspace workspace(planned.workspace_bytes);
  const std::int64_t before = allocations();
  const Executor watching = executor == nullptr ? Executor{} : watched(*executor);
  {
    const WatchAllocations watch(std::string_view(backend) == "cpu");  // the reference is exempt
    status = run(planned, args, workspace.view(), {nullptr, executor == nullptr ? nullptr : &watching});
  }
  EXPECT_EQ(allocations(), before) << planned.kernel_name << " allocates (GEN-16)";
  EXPECT_TRUE(workspace.intact()) << planned.kernel_name << " wrote past its workspace";
  return status;
}

// Whether this build runs as fast as a user's: others have nothing to say about time.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool kTimesCount = true;
#else
inline constexpr bool kTimesCount = false;
#endif

inline std::vector<std::int64_t> instruction_sets() {
  std::vector<std::int64_t> sets;
  for (const std::int64_t set : {HWY_BASELINE_SCALAR, HWY_AVX2, HWY_AVX3, HWY_NEON})
    if ((hwy::SupportedTargets() & set) != 0) sets.push_back(set);
  return sets;
}

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// ThreadSanitizer cannot see how Debian's oneTBB, which is not built for it, orders threads, and would report
// every hand-over as a race; there an engine's own pool of the plainest kind takes its place.
inline const Executor& two_threads() {
#ifdef __SANITIZE_THREAD__
  static const Executor executor{
      nullptr, 2, [](void*, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
        std::vector<std::thread> threads;
        for (std::int64_t task = 0; task < tasks; ++task) threads.emplace_back(body, context, task);
        for (std::thread& thread : threads) thread.join();
      }};
#else
  static const ThreadPool pool(2);
  static const Executor executor = pool.executor();
#endif
  return executor;
}

struct SameBytes {
  void operator()(const std::string& what, std::vector<TensorBox*> expected,
                  std::vector<TensorBox*> got) const {
    ASSERT_EQ(expected.size(), got.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(expected[i]->bytes(), got[i]->bytes()) << what << ": tensor " << i << " differs";
  }
};

// Calls body(label, executor) on every instruction set of this machine, with one thread and with two.
template <class Body>
void on_every_set(Body&& body) {
  std::vector<std::int64_t> sets = instruction_sets();
  std::vector<const Executor*> executors = {nullptr, &two_threads()};
  if (kThreadSanitizer) {  // What two threads share does not depend on the instruction set.
    sets = {sets.back()};
    executors = {&two_threads()};
  }
  for (const std::int64_t set : sets) {
    hwy::SetSupportedTargetsForTest(set);
    for (const Executor* executor : executors)
      body(std::string("on ") + hwy::TargetName(set) + (executor != nullptr ? ", 2 threads" : ""), executor);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Calls body(kernel name, label, executor) for every way in which host kernels can run these arguments.
template <class Args, class Body>
void for_each_host_run(const Args& args, Body&& body) {
  int ran = 0;
  for (const Verdict& verdict : explain(args, PlanOptions{.backend = "cpu"}).verdicts) {
    if (verdict.backend != "cpu") continue;
    if (!verdict.chosen && verdict.refusal != "an earlier kernel takes it") {
      ::testing::Test::RecordProperty(verdict.kernel, verdict.refusal);
      continue;
    }
    on_every_set([&](const std::string& label, const Executor* executor) {
      body(verdict.kernel, verdict.kernel + " " + label, executor);
      ++ran;
    });
  }
  EXPECT_GT(ran, 0) << "no cpu kernel took these arguments";
}

template <class MakeBundle, class Compare = SameBytes>
void expect_parity(MakeBundle&& make, Compare compare = {}) {
  auto expected = make();
  const Status status = run_with(expected.args(), "reference");
  ASSERT_TRUE(status.ok()) << status.message();
  if (device_harness != nullptr) return expect_device_parity(*device_harness, make, expected, compare);
  for_each_host_run(expected.args(),
                    [&](const std::string& kernel, const std::string& label, const Executor* executor) {
                      auto got = make();
                      const Status ran = run_with(got.args(), "cpu", kernel.c_str(), executor);
                      ASSERT_TRUE(ran.ok()) << label << ": " << ran.message();
                      compare(label, expected.boxes(), got.boxes());
                    });
}

}  // namespace keysieve::test

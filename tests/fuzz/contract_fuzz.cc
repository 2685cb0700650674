// Any arguments: judged without undefined behaviour, and if a kernel takes them, run without touching a byte
// outside the tensors. Threads and repetition do not change a byte, and where an operation is exact the cpu
// kernels leave what the reference leaves.
#include <algorithm>
#include <cstdio>

#include "fuzz/calls.hpp"
#include "keysieve/plan.hpp"

namespace keysieve::fuzz {
namespace {

[[noreturn]] void fail(const Status& status, const char* what) {
  std::fprintf(stderr, "%s: %s: %s\n", status.operation, what, status.message().c_str());
  std::abort();
}

// Two tasks at a time, the last first.
constexpr Executor kBackwards{
    nullptr, 2, [](void*, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
      while (tasks-- > 0) body(context, tasks);
    }};

template <class Args>
constexpr bool is_exact = !std::is_same_v<Args, MqaLogitsArgs> && !std::is_same_v<Args, MaskedMhaArgs> &&
                          !std::is_same_v<Args, SparseMlaArgs> && !std::is_same_v<Args, MergeStatesArgs>;

// False: not run, which is fine.
template <class Args>
bool run_with(Args args, const char* backend, const Executor* executor, std::uint64_t seed,
              Memory<Args>& memory) {
  Plan<Args> planned;
  Status status =
      plan(args, {.backend = backend, .concurrency = executor ? executor->concurrency : 1}, planned);
  if (!status.ok() || planned.workspace_bytes > 1 << 24 || !memory.attach(args, seed)) return false;
  const auto scratch = workspace(planned.workspace_bytes);
  status = run(planned, args, {scratch.get(), planned.workspace_bytes}, {nullptr, executor});
  if (!status.ok()) fail(status, "planned, and then refused");
  return true;
}

template <class Args>
void try_call(const Args& args, std::uint64_t seed) {
  for (const char* backend : {"", "reference", "cpu"}) {
    const Explanation explanation = explain(args, PlanOptions{.backend = backend});
    if (explanation.status.ok()) continue;
    if (explanation.status.operation[0] == 0 || explanation.status.rule[0] == 0)
      fail(explanation.status, "no rule named");
  }
  Memory<Args> once, again, exact;
  if (!run_with(args, "cpu", nullptr, seed, once)) return;
  if (!run_with(args, "cpu", &kBackwards, seed, again)) fail({}, "not run again");
  if (once.overlaps()) return;
  if (!once.equals(again)) fail(judge(args), "two runs differ");
  if (!is_exact<Args> || !run_with(args, "reference", nullptr, seed, exact)) return;
  if (!once.equals(exact)) fail(judge(args), "cpu and reference differ");
}

}  // namespace
}  // namespace keysieve::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  keysieve::fuzz::Source in(data, bytes);
  const std::uint64_t seed = in.byte();
  keysieve::fuzz::with_call(in, [&](const auto& args) { keysieve::fuzz::try_call(args, seed); });
  return 0;
}

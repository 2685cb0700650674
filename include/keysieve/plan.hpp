// plan: which kernel runs and how much scratch it needs. Planning looks at shapes, dtypes and strides, never
// at data, so one plan serves every call of the same shapes. Each operation's header has an Args struct;
// these three functions take any of them:
//
//   TopkArgs args{...};
//   TopkPlan p;
//   if (Status s = plan(args, {}, p); !s.ok()) return s;
//   return run(p, args, {scratch, p.workspace_bytes}, {});
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keysieve/executor.hpp"
#include "keysieve/status.hpp"

namespace [[gnu::visibility("default")]] keysieve {

template <class Args>
struct Kernel;  // one entry of a backend's table; internal

struct PlanOptions {
  // "cpu", "reference" or "cuda"; empty: the optimised backend of the device that the tensors live on.
  // keysieve never changes backend on its own.
  const char* backend = "";
  const char* kernel = "";                // the only kernel allowed, by public name; empty: any
  std::span<const char* const> forbid{};  // kernels not allowed, by public name
  std::int32_t concurrency = 1;           // of the executor that run() will be given
};

template <class Args>
struct Plan {
  const Kernel<Args>* kernel = nullptr;
  const char* kernel_name = "";     // "cpu.topk.filter"
  std::size_t workspace_bytes = 0;  // what run() needs; its start must be aligned to 64 bytes
  std::int32_t concurrency = 1;
};

// What the registry thought of one kernel.
struct Verdict {
  std::string backend;
  std::string kernel;
  std::string refusal;  // empty: it takes these arguments
  bool chosen = false;
};

struct Explanation {
  Status status;  // what plan() returns
  std::vector<Verdict> verdicts;
};

// Judges the arguments and picks the first kernel that takes them. Data pointers may still be null.
// (GCC and clang give a template's instance no visibility from its namespace, hence the attributes.)
template <class Args>
[[nodiscard, gnu::visibility("default")]] Status plan(const Args& args, const PlanOptions& options,
                                                      Plan<Args>& out);

// Judges again (arguments may have changed since plan()), then works or enqueues. Reentrant; allocates nothing
// (only kernels of the reference backend do, GEN-16), prints nothing, reads no environment.
template <class Args>
[[nodiscard, gnu::visibility("default")]] Status run(const Plan<Args>& plan, const Args& args,
                                                     Workspace workspace, Stream stream);

// Every kernel of every enabled backend with the reason why it was or was not taken.
template <class Args>
[[nodiscard, gnu::visibility("default")]] Explanation explain(const Args& args, const PlanOptions& options);

// The enabled backends, and every kernel of one, by public name.
[[nodiscard]] std::vector<std::string> backend_names();
[[nodiscard]] std::vector<std::string> kernel_names(const char* backend);

[[nodiscard]] const char* version();

}  // namespace keysieve

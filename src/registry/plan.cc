// plan, run and explain for every operation: judge the arguments, ask the kernels in order, check the
// workspace.
#include "keysieve/plan.hpp"

#include <cstring>

#include "contract/candidate_blocks.hpp"
#include "contract/candidate_mask.hpp"
#include "contract/general.hpp"
#include "contract/index_gather.hpp"
#include "contract/index_store.hpp"
#include "contract/masked_mha.hpp"
#include "contract/merge_states.hpp"
#include "contract/mqa_logits.hpp"
#include "contract/packed_mask.hpp"
#include "contract/prepare_queries.hpp"
#include "contract/settled.hpp"
#include "contract/sparse_mla.hpp"
#include "contract/topk.hpp"
#include "contract/translate.hpp"
#include "registry/backend.hpp"

namespace keysieve {
namespace {

constexpr std::uintptr_t kWorkspaceAlignment = 64;  // a cache line, and the widest vector
constexpr std::size_t kMostWorkspace = std::size_t{1} << 60;

template <class Args>
Status judge_all(const Args& args) {
  // First that sizes and strides can be reckoned with at all; an operation's rules multiply and add them.
  constexpr const char* kOperation = judge(Args{}).operation;
  const Status tensors = judge_tensors(args, kOperation);
  return tensors.ok() ? judge(args) : tensors;
}

bool same(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

// Why the caller's options leave a kernel out; nullptr: they do not.
const char* barred(const Backend& backend, const char* kernel, const PlanOptions& options, Device device) {
  if (backend.device != device.type) return "the tensors live on another type of device";
  if (options.backend[0] != 0 ? !same(options.backend, backend.name) : !backend.optimised)
    return options.backend[0] != 0 ? "another backend was asked for" : "runs only when asked for by name";
  if (options.kernel[0] != 0 && !same(options.kernel, kernel)) return "another kernel was asked for";
  for (const char* name : options.forbid)
    if (same(name, kernel)) return "forbidden by the caller";
  return nullptr;
}

// Calls visit(backend, kernel, refusal) for every kernel of this operation, in order, until it returns true.
template <class Args, class Visit>
void ask_kernels(const Args& args, const PlanOptions& options, Visit&& visit) {
  const Device device = device_of(args);
  for (const Backend* backend : enabled_backends()) {
    for (const Kernel<Args>& kernel : std::get<std::span<const Kernel<Args>>>(backend->kernels)) {
      const char* refusal = barred(*backend, kernel.name, options, device);
      if (refusal == nullptr) refusal = kernel.refuses(args);
      if (visit(*backend, kernel, refusal)) return;
    }
  }
}

}  // namespace

template <class Args>
Status plan(const Args& given, const PlanOptions& options, Plan<Args>& out) {
  out = {};
  Status status = judge_all(given);
  if (!status.ok()) return status;
  const Args args = settled(given);
  if (options.concurrency < 1)
    return Check(status.operation)
        .that(false, "concurrency", "GEN-07 concurrency >= 1", options.concurrency)
        .status();
  const Kernel<Args>* chosen = nullptr;
  status.code = Code::unsupported;
  status.argument = "backend";
  status.rule = "GEN-08 an enabled kernel takes these arguments";
  SeenText refusals(status);
  ask_kernels(args, options, [&](const Backend&, const Kernel<Args>& kernel, const char* refusal) {
    if (refusal == nullptr) {
      chosen = &kernel;
      return true;
    }
    refusals.text(status.seen[0] == 0 ? "" : "; ").text(kernel.name).text(": ").text(refusal);
    return false;
  });
  if (chosen == nullptr) {
    if (status.seen[0] == 0) refusals.text("no kernel for this operation in any enabled backend");
    return status;
  }
  const std::size_t bytes = chosen->workspace_bytes(args, options.concurrency);
  if (bytes >= kMostWorkspace)
    return Check(status.operation)
        .that(false, "workspace", "GEN-15 a workspace takes less than 2^60 bytes", "more")
        .status();
  out.kernel = chosen;
  out.kernel_name = chosen->name;
  out.concurrency = options.concurrency;
  out.workspace_bytes = (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  return {};
}

// GEN-16: neither this nor an optimised kernel allocates; a Status holds its words itself.
template <class Args>
Status run(const Plan<Args>& plan, const Args& given, Workspace workspace, Stream stream) {
  Status status = judge_all(given);
  if (!status.ok()) return status;
  const Args args = settled(given);
  const char* operation = status.operation;
  Check check(operation);
  check.that(plan.kernel != nullptr, "plan", "GEN-09 run() takes a plan that plan() made", "an empty plan");
  if (!check.holds()) return check.status();
  const char* refusal = plan.kernel->refuses(args);
  check.that(refusal == nullptr, "plan", "GEN-10 the planned kernel takes these arguments",
             refusal == nullptr ? "" : refusal);
  if (!check.holds()) return check.status();
  status = judge_addresses(args, operation);
  if (!status.ok()) return status;
  const std::size_t needed = plan.kernel->workspace_bytes(args, plan.concurrency);
  if (needed > workspace.bytes || (needed > 0 && workspace.data == nullptr)) {
    check.that(false, "workspace", "GEN-11 the workspace has workspace_bytes of this plan",
               static_cast<std::int64_t>(workspace.data == nullptr ? 0 : workspace.bytes));
    status = check.status();
    status.code = Code::workspace_too_small;
    SeenText(status).text(" bytes of ").number(static_cast<std::int64_t>(needed));
    return status;
  }
  check.that(needed == 0 || reinterpret_cast<std::uintptr_t>(workspace.data) % kWorkspaceAlignment == 0,
             "workspace", "GEN-12 the workspace starts on 64 bytes", "an unaligned pointer");
  if (!check.holds() || writes_nothing(args)) return check.status();
  return plan.kernel->run(
      args, Launch{workspace, stream.executor, plan.concurrency, stream.handle, device_of(args)});
}

template <class Args>
Explanation explain(const Args& given, const PlanOptions& options) {
  Explanation explanation;
  Plan<Args> planned;
  explanation.status = plan(given, options, planned);
  if (explanation.status.code == Code::invalid_argument) return explanation;
  const Args args = settled(given);
  ask_kernels(args, options, [&](const Backend& backend, const Kernel<Args>& kernel, const char* refusal) {
    const bool chosen = planned.kernel == &kernel;
    if (refusal == nullptr && !chosen) refusal = "an earlier kernel takes it";
    explanation.verdicts.push_back({backend.name, kernel.name, refusal == nullptr ? "" : refusal, chosen});
    return false;
  });
  return explanation;
}

namespace {

// Names plan, run and explain once for each operation, so that their code is in the library.
template <class... Args>
constexpr auto instantiate(OperationList<Args...>) {
  return std::make_tuple(std::make_tuple(&plan<Args>, &run<Args>, &explain<Args>)...);
}

}  // namespace

// Referenced from nowhere: it keeps the functions above, which only headers of other libraries call.
[[gnu::used]] const auto kOperationFunctions = instantiate(Operations{});

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Backend* backend : enabled_backends()) names.emplace_back(backend->name);
  return names;
}

std::vector<std::string> kernel_names(const char* backend_name) {
  std::vector<std::string> names;
  for (const Backend* backend : enabled_backends()) {
    if (!same(backend->name, backend_name)) continue;
    std::apply(
        [&](const auto&... tables) {
          (
              [&](const auto& table) {
                for (const auto& kernel : table) names.emplace_back(kernel.name);
              }(tables),
              ...);
        },
        backend->kernels);
  }
  return names;
}

const char* version() { return KEYSIEVE_VERSION; }

}  // namespace keysieve

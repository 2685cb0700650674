// kernel_choice: which kernel each stage may take: --backend and the variable KEYSIEVE_KERNEL, a list such as
// "cpu.topk.filter,-cpu.mqa_logits.tile". A name allows only this kernel for its operation, a name with '-'
// forbids it.
#pragma once

#include <string>
#include <vector>

#include "keysieve/plan.hpp"

namespace keysieve::cli {

struct KernelChoice {
  std::string backend;
  std::vector<std::string> only, forbidden;
  // An error text for a name that no backend has; empty when all is well.
  [[nodiscard]] std::string parse(const std::string& list);
  [[nodiscard]] bool on_device() const { return backend == "cuda"; }
  // For operations that the device has no kernels for yet.
  [[nodiscard]] KernelChoice on_host() const;
};

// The plan options of one operation. Points into the choice, which must outlive it.
struct PlannedChoice {
  PlannedChoice(const KernelChoice& choice, const std::string& operation, const Executor* executor);
  PlannedChoice(const PlannedChoice&) = delete;
  PlannedChoice& operator=(const PlannedChoice&) = delete;
  PlanOptions options;

 private:
  std::vector<const char*> forbidden_;
};

}  // namespace keysieve::cli

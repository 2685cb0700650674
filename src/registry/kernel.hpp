// kernel: one entry of a backend's table, and what its run() is handed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "keysieve/executor.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/status.hpp"
#include "keysieve/tensor.hpp"

namespace keysieve {

struct Launch {
  Workspace workspace;       // at least workspace_bytes(args, concurrency), 64-byte aligned
  const Executor* executor;  // host backends; null: the calling thread
  std::int32_t concurrency;  // as planned; the workspace has room for this many tasks at a time
  void* stream;              // device backends
  Device device;             // where the tensors live
};

template <class Args>
struct Kernel {
  const char* name;                     // backend[.arch].operation.method
  const char* (*refuses)(const Args&);  // nullptr: takes it; else why not
  std::size_t (*workspace_bytes)(const Args&, std::int32_t concurrency);
  Status (*run)(const Args&, const Launch&);
};

}  // namespace keysieve

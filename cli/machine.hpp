// machine: what this machine can do at most, measured in the same run as the stages.
#pragma once

#include <string>

#include "keysieve/executor.hpp"

namespace keysieve::cli {

// Bytes read plus bytes written per second by memcpy over buffers far larger than the caches, on all threads
// of the executor (null: one). Best of several; takes about 50 ms.
[[nodiscard]] double copy_bandwidth(const Executor* executor);

[[nodiscard]] std::string cpu_name();

}  // namespace keysieve::cli

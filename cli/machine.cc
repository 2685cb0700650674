#include "machine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>

namespace keysieve::cli {

double copy_bandwidth(const Executor* executor) {
  constexpr std::int64_t kBytes = 96 << 20;
  constexpr std::int64_t kPieceBytes = 1 << 20;
  struct Copy {
    std::unique_ptr<char[]> from{new char[kBytes]}, to{new char[kBytes]};
  } copy;
  std::memset(copy.from.get(), 1, kBytes);
  std::memset(copy.to.get(), 1, kBytes);
  const auto piece = [](void* context, std::int64_t task) {
    const auto& c = *static_cast<Copy*>(context);
    std::memcpy(c.to.get() + task * kPieceBytes, c.from.get() + task * kPieceBytes, kPieceBytes);
  };
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    if (executor != nullptr && executor->for_each != nullptr) {
      executor->for_each(executor->self, kBytes / kPieceBytes, piece, &copy);
    } else {
      for (std::int64_t task = 0; task < kBytes / kPieceBytes; ++task) piece(&copy, task);
    }
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * kBytes / best;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace keysieve::cli

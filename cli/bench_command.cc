// bench: hands over to the program keysieve_bench, which is Google Benchmark with a file per operation.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>

#include "commands.hpp"

namespace keysieve::cli {

int bench_command(const BenchCommand& command, const Console& console) {
  std::string binary = command.binary;
  if (binary.empty()) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    // Beside the program when installed, in bench/ beside cli/ in a build folder; else whatever the path has.
    for (const auto& place : {self.parent_path() / "keysieve_bench",
                              self.parent_path().parent_path() / "bench" / "keysieve_bench"}) {
      if (binary.empty() && !error && std::filesystem::exists(place, error)) binary = place;
    }
    if (binary.empty()) binary = "keysieve_bench";
  }
  std::vector<char*> arguments = {binary.data()};
  std::vector<std::string> passed = command.passed;
  for (std::string& argument : passed) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  console.out << std::flush;
  ::execvp(binary.c_str(), arguments.data());
  console.err << "keysieve: bench: '" << binary << "' does not start: " << std::strerror(errno)
              << " (build it with KEYSIEVE_BENCH=ON, or name it with --binary)\n";
  return kIoError;
}

}  // namespace keysieve::cli

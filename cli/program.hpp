// program: `keysieve` as a function, so that tests call it without a process.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "keysieve/status.hpp"

namespace keysieve::cli {

enum ExitCode : int {
  kDone = 0,
  kDisagrees = 1,  // run: not what the file expects; check: a stage broke a rule
  kUsage = 2,      // unknown options, names or combinations
  kBadFile = 3,    // the file is truncated, malformed or contradicts itself
  kIoError = 4,    // the system refused a read or a write
  kRefused = 5,    // a stage that the file asks for has no kernel, or its arguments break a rule
};

[[nodiscard]] ExitCode exit_code(const Status& status);

struct Console {
  std::ostream& out;  // results
  std::ostream& err;  // errors
  bool terminal;      // err is a terminal: progress may be shown on it
};

// args without the program's own name.
[[nodiscard]] int run_program(std::vector<std::string> args, const Console& console);

}  // namespace keysieve::cli

#include <unistd.h>

#include <iostream>

#include "program.hpp"

int main(int argc, char** argv) {
  const int code = keysieve::cli::run_program(std::vector<std::string>(argv + 1, argv + argc),
                                              {std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1});
  // A result that nobody could read is no success.
  if (std::cout.flush()) return code;
  std::cerr << "keysieve: standard output cannot be written\n";
  return code == keysieve::cli::kDone ? keysieve::cli::kIoError : code;
}

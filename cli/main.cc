#include <unistd.h>

#include <iostream>

#include "program.hpp"

int main(int argc, char** argv) {
  return keysieve::cli::run_program(std::vector<std::string>(argv + 1, argv + argc),
                                    {std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1});
}

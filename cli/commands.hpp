// commands: what each subcommand takes and does. Returns an ExitCode.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline.hpp"
#include "program.hpp"

namespace keysieve::cli {

struct CommonOptions {
  std::string backend = "cpu";
  std::string kernels;  // KEYSIEVE_KERNEL
  int threads = 0;      // 0: all that this process may use
};

// The executor of a command: none for one thread.
class Threads {
 public:
  explicit Threads(int threads);
  [[nodiscard]] const Executor* executor() const { return pool_ == nullptr ? nullptr : &executor_; }
  [[nodiscard]] int count() const { return pool_ == nullptr ? 1 : executor_.concurrency; }

 private:
  std::unique_ptr<ThreadPool> pool_;
  Executor executor_;
};

struct RunCommand {
  CommonOptions common;
  std::string file, output, json, trace;
  bool compare_dense = false, with_inputs = false, with_logits = false;
  std::string mask = "auto";
  int repeat = 3;
};
[[nodiscard]] int run_command(const RunCommand& command, const Console& console);

struct CheckCommand {
  std::string file;
  double score_tolerance = 0;  // of a row's greatest score; 0: by the dtype of the operands
};
[[nodiscard]] int check_command(const CheckCommand& command, const Console& console);

struct ExplainCommand {
  CommonOptions common;
  std::string file;
  std::int64_t rows = 0, keys = 0, heads = 64, topk = 2048, candidates = 0, block = 8;
  std::string shape_option;  // one of those that were given, "--rows"; empty: none was
};
[[nodiscard]] int explain_command(const ExplainCommand& command, const Console& console);

struct BenchCommand {
  std::string binary;               // empty: keysieve_bench beside the program, or on the path
  std::vector<std::string> passed;  // to Google Benchmark
};
[[nodiscard]] int bench_command(const BenchCommand& command, const Console& console);

// Kernel names and the backend, or an error on the console.
[[nodiscard]] bool parse_kernels(const CommonOptions& common, const Console& console, KernelChoice& out);

}  // namespace keysieve::cli

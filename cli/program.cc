#include "program.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <ostream>

#include "commands.hpp"
#include "keysieve/plan.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  keysieve run samples/prefill.safetensors --compare-dense
  keysieve run step.safetensors --threads 1 --json report.json --trace trace.json
  keysieve run step.safetensors -o out.safetensors --with-inputs && keysieve check out.safetensors
  keysieve explain step.safetensors
  keysieve bench --benchmark_filter=topk

A step file is described in docs/step_file.md.
The variable KEYSIEVE_KERNEL names kernels that must or, with '-', must not run:
  KEYSIEVE_KERNEL=-cpu.topk.filter keysieve run step.safetensors

Exit codes:
  0  everything ran, and agrees with what the file expects
  1  something differs: run, from the expected tensors of the file; check, a stage from the reference
  2  wrong usage
  3  the file is truncated, malformed or contradicts itself
  4  the system refused to read or write a file
  5  a stage was refused: no enabled kernel takes it, or its arguments break a rule)";

// A whole decimal number from `least` to `most`, and nothing else: CLI11's own check lets nan pass, and its conversion
// reads 010 as 8.
template <class Number>
CLI::Validator number_in(Number least, Number most) {
  const auto plain = [](Number value) {
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
  };
  const std::string range = plain(least) + " to " + plain(most);
  return {[=](std::string& text) -> std::string {
            Number value{};
            const char* const last = text.data() + text.size();
            const auto [end, error] = std::from_chars(text.data(), last, value);
            // Written so that nan is outside.
            const bool inside = value >= least && value <= most;
            if (error != std::errc() || end != last || !inside)
              return printed("'%.60s' is not a number from %s", text.c_str(), range.c_str());
            text = plain(value);
            return "";
          },
          range};
}

void add_common(CLI::App& command, CommonOptions& options) {
  command
      .add_option(
          "--backend", options.backend,
          "Backend of all stages: cpu, reference (plain and slow), or, where it was built, cuda; stages\n"
          "that cuda has no kernels for run on cpu")
      ->capture_default_str()
      ->check(CLI::IsMember(backend_names()));
  command.add_option("--threads", options.threads, "Threads to use; 0: all that this process may use")
      ->capture_default_str()
      ->transform(number_in<std::int64_t>(0, 1024));
}

}  // namespace

ExitCode exit_code(const Status& status) {
  switch (status.code) {
    case Code::ok:
      return kDone;
    case Code::bad_file:
      return kBadFile;
    case Code::io_error:
      return kIoError;
    default:
      return kRefused;
  }
}

bool parse_kernels(const CommonOptions& common, const Console& console, KernelChoice& out) {
  out.backend = common.backend;
  const std::string error = out.parse(common.kernels);
  if (error.empty()) return true;
  console.err << "keysieve: KEYSIEVE_KERNEL: " << error << "; `keysieve explain` lists them\n";
  return false;
}

int run_program(std::vector<std::string> args, const Console& console) {
  CLI::App app("The selection path of sparse attention on recorded steps: score, select, mask, attend.",
               "keysieve");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("keysieve ") + version());
  const char* environment = std::getenv("KEYSIEVE_KERNEL");  // the library itself reads no environment
  const std::string kernels = environment == nullptr ? "" : environment;

  RunCommand run;
  CLI::App* run_app =
      app.add_subcommand("run", "Run the stages that a step file allows, and say what they found");
  run_app->footer(
      "The table shows for each stage its kernel, best time of the repeats, bytes that it must move, the\n"
      "share of this machine's copy bandwidth that this is, and its share of the step.");
  run_app->add_option("step", run.file, "Step file (safetensors)")->required();
  run_app->add_option("-o,--output", run.output, "Write the results as out_* tensors to this file");
  run_app->add_flag("--with-inputs", run.with_inputs,
                    "Copy the inputs into the output too, so that check can read it");
  run_app->add_flag("--with-logits", run.with_logits, "Keep the scores and write them too");
  add_common(*run_app, run.common);
  run_app->add_option("--repeat", run.repeat, "Runs of each stage, of which the best counts")
      ->capture_default_str()
      ->transform(number_in<std::int64_t>(1, 1000));
  run_app
      ->add_option("--mask", run.mask,
                   "Build the packed mask: auto (16 rows a request or more), always, never")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "always", "never"}));
  run_app->add_flag("--compare-dense", run.compare_dense,
                    "Also attend to all keys: attention mass of the kept ones, distance of the output");
  run_app->add_option("--json", run.json, "Write the report as JSON (docs/report.md)");
  run_app->add_option("--trace", run.trace, "Write Chrome trace events, for chrome://tracing or Perfetto");

  CheckCommand check;
  CLI::App* check_app = app.add_subcommand(
      "check", "Compare an engine's out_* tensors with the reference; name the first broken rule");
  check_app->add_option("step", check.file, "Step file with out_* tensors")->required();
  check_app
      ->add_option(
          "--score-tolerance", check.score_tolerance,
          "Allowed difference of scores, as a share of the row's greatest; 0: by the operands' dtype")
      ->transform(number_in(0.0, 1.0));

  ExplainCommand explain;
  CLI::App* explain_app = app.add_subcommand(
      "explain", "List backends and kernels, and which ones a step would run and why not the others");
  explain_app->add_option("step", explain.file, "Step file; without one, the shape below");
  add_common(*explain_app, explain.common);
  explain_app->add_option("--rows", explain.rows, "Rows of a made-up decode step")
      ->transform(number_in<std::int64_t>(1, 1 << 20));
  explain_app->add_option("--keys", explain.keys, "Keys of each row")
      ->transform(number_in<std::int64_t>(1, 1 << 26));
  explain_app->add_option("--heads", explain.heads, "Index heads")
      ->capture_default_str()
      ->transform(number_in<std::int64_t>(1, 128));
  explain_app->add_option("--topk", explain.topk, "Keys to keep")
      ->capture_default_str()
      ->transform(number_in<std::int64_t>(0, 1 << 20));
  explain_app
      ->add_option("--candidates", explain.candidates, "Candidate blocks that the step is restricted to")
      ->transform(number_in<std::int64_t>(0, 1 << 20));

  BenchCommand bench;
  CLI::App* bench_app =
      app.add_subcommand("bench", "Run the benchmarks; further options go to Google Benchmark");
  bench_app->add_option("--binary", bench.binary, "The benchmark program, when it is not beside this one");
  bench_app->allow_extras();
  bench_app->footer("Example: keysieve bench --benchmark_filter=topk --benchmark_format=json");

  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
    app.parse(std::move(args));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, console.out, console.err) == 0 ? kDone : kUsage;
  }
  run.common.kernels = explain.common.kernels = kernels;
  for (const char* name : {"--rows", "--keys", "--heads", "--topk", "--candidates"}) {
    if (explain.shape_option.empty() && explain_app->get_option(name)->count() > 0)
      explain.shape_option = name;
  }
  bench.passed = bench_app->remaining();
  try {
    if (run_app->parsed()) return run_command(run, console);
    if (check_app->parsed()) return check_command(check, console);
    if (explain_app->parsed()) return explain_command(explain, console);
    return bench_command(bench, console);
  } catch (const std::bad_alloc&) {
    console.err << "keysieve: not enough memory for this step\n";
    return kRefused;
  }
}

}  // namespace keysieve::cli

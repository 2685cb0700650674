#include <ostream>

#include "commands.hpp"
#include "explain_step.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

void print_explanations(const std::string& name, const std::vector<StageExplanation>& stages,
                        const Console& console) {
  console.out << name << "\n";
  for (const auto& [operation, explanation] : stages) {
    if (!explanation.status.ok()) {
      console.out << "  " << operation << ": " << explanation.status.message() << "\n";
    } else {
      console.out << "  " << operation << "\n";
    }
    Table table({}, {true, true, true});
    for (const Verdict& v : explanation.verdicts)
      table.add({v.chosen ? "->" : "", v.kernel, v.chosen ? "runs" : v.refusal});
    console.out << table.text("    ");
  }
  console.out << "\n";
}

}  // namespace

int explain_command(const ExplainCommand& command, const Console& console) {
  KernelChoice kernels;
  if (!parse_kernels(command.common, console, kernels)) return kUsage;
  const Threads threads(command.common.threads);
  if (!command.file.empty() && !command.shape_option.empty()) {
    console.err << "keysieve: explain: " << command.shape_option
                << " describes a made-up step; it does not go with a step file, which has its own shape\n";
    return kUsage;
  }
  if (command.file.empty() && command.shape_option.empty()) {
    for (const std::string& backend : backend_names()) {
      console.out << "backend " << backend << "\n";
      for (const std::string& kernel : kernel_names(backend.c_str())) console.out << "  " << kernel << "\n";
    }
    console.out << "\nGive a step file, or --rows and --keys, to see which of them would run.\n";
    return kDone;
  }
  if (command.file.empty()) {
    if (command.rows == 0 || command.keys == 0) {
      console.err << "keysieve: explain: a shape needs --rows and --keys\n";
      return kUsage;
    }
    const ShapeOfStep shape{command.rows, command.keys,       command.heads,
                            command.topk, command.candidates, command.block};
    print_explanations(
        printed("%s x %s keys, %s heads, top-k %s", plural(command.rows, "row").c_str(),
                grouped(command.keys).c_str(), grouped(command.heads).c_str(), grouped(command.topk).c_str()),
        explain_shape(shape, kernels, threads.executor()), console);
    return kDone;
  }
  io::StepFile file;
  const Status status = io::StepFile::open(command.file, file);
  if (!status.ok()) {
    console.err << "keysieve: " << status.message() << "\n";
    return exit_code(status);
  }
  for (const io::Step& step : file.steps()) {
    print_explanations(step.name, explain_step(step, kernels, threads.executor()), console);
  }
  return kDone;
}

}  // namespace keysieve::cli

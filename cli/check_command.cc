#include <ostream>

#include "check_step.hpp"
#include "commands.hpp"
#include "text.hpp"

namespace keysieve::cli {

int check_command(const CheckCommand& command, const Console& console) {
  io::StepFile file;
  const Status status = io::StepFile::open(command.file, file);
  if (!status.ok()) {
    console.err << "keysieve: " << status.message() << "\n";
    return exit_code(status);
  }
  std::function<void(const std::string&)> progress;
  if (console.terminal) {
    progress = [&](const std::string& text) { console.err << "\r\033[K" << text << std::flush; };
  }
  bool any = false, refused = false;
  std::string first_broken;
  for (const io::Step& step : file.steps()) {
    if (!step.dumped.any()) continue;
    any = true;
    const std::vector<Finding> findings = check_step(step, command.score_tolerance, progress);
    if (progress) progress("");
    console.out << step.name << "\n";
    Table table({}, {true, true, true});
    for (const Finding& f : findings) {
      const bool broken = f.verdict == Finding::Verdict::broken;
      const std::string where = f.row < 0 ? "" : "row " + grouped(f.row) + ", ";
      refused = refused || f.verdict == Finding::Verdict::unchecked;
      table.add({f.stage,
                 broken                                 ? "BROKEN"
                 : f.verdict == Finding::Verdict::holds ? "holds"
                                                        : "not checked",
                 broken                                     ? where + f.rule + ": " + f.values
                 : f.verdict == Finding::Verdict::unchecked ? f.values
                                                            : plural(f.rows, "row")});
      if (broken && first_broken.empty()) {
        first_broken = step.name + ", " + f.stage + ", " + where + f.rule + ": " + f.values;
      }
    }
    console.out << table.text("  ") << "\n";
  }
  if (!any) {
    console.err << "keysieve: check: '" << command.file
                << "' holds no out_* tensors of an engine (docs/step_file.md)\n";
    return kUsage;
  }
  if (!first_broken.empty()) {
    console.out << "First broken: " << first_broken << "\n";
    return kDisagrees;
  }
  console.out << (refused ? "What could be checked agrees with the reference.\n"
                          : "Every stage agrees with the reference.\n");
  return refused ? kRefused : kDone;
}

}  // namespace keysieve::cli

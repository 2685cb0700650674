#include <algorithm>
#include <cmath>
#include <ostream>

#include "agreement.hpp"
#include "commands.hpp"
#include "io/output_file.hpp"
#include "machine.hpp"
#include "summary.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

using io::FileDType;
using io::Step;

void print_step(const io::StepReport& report, const io::RunReport& run, const Console& console) {
  double total = 0;
  for (const io::StageReport& stage : report.stages) total += stage.seconds;
  console.out << report.name << (report.role == "none" ? "" : ", candidate " + report.role) << ": "
              << plural(report.rows, "row") << " of " << plural(report.requests, "request") << ", top-k "
              << grouped(report.topk) << "\n\n";
  Table table({"stage", "kernel", "shape", "time", "moved", "of copy", "of step"},
              {true, true, true, false, false, false, false});
  for (const io::StageReport& stage : report.stages) {
    const double bandwidth = stage.on_device ? run.device_copy_bandwidth : run.copy_bandwidth;
    if (!stage.kernel.empty()) {
      table.add({stage.stage, stage.kernel, stage.shape, duration(stage.seconds), bytes(stage.bytes),
                 percent(stage.bytes / stage.seconds / bandwidth), percent(stage.seconds / total)});
    } else {
      table.add(
          {stage.stage, stage.skipped.empty() ? "refused: " + stage.refusal : "skipped: " + stage.skipped});
    }
  }
  console.out << table.text("  ") << "\n";

  const io::StepSummary& s = report.summary;
  const auto line = [&](const char* what, const std::string& value) {
    console.out << printed("  %-22s", what) << value << "\n";
  };
  if (s.visible >= 0) {
    line("keys visible", s.visible_least == s.visible_most
                             ? grouped(s.visible_most) + " for each row"
                             : grouped(s.visible_least) + " to " + grouped(s.visible_most) + " for each row");
  }
  if (s.kept >= 0)
    line("keys kept",
         printed("%.0f for each row", static_cast<double>(s.kept) / static_cast<double>(report.rows)));
  if (s.blocks_listed) {
    line("candidate blocks", printed("%.0f of %.0f for each row (", *s.blocks_listed, *s.blocks_visible) +
                                 percent(*s.blocks_listed / std::max(1.0, *s.blocks_visible)) + ")");
  }
  if (s.mask_tiles) {
    line("mask tiles empty",
         grouped(*s.mask_tiles_empty) + " of " + grouped(*s.mask_tiles) + " tiles of 128 rows x 128 keys");
  }
  if (s.mass_mean) {
    line("attention mass kept",
         percent(*s.mass_mean) + ", at least " + percent(*s.mass_least) + " in every row and head");
  }
  if (s.dense_distance) {
    line("output from all keys", printed("%.3g relative distance, %.3g cosine distance", *s.dense_distance,
                                         s.dense_cosine.value_or(0)));
  }
  for (const io::AgreementReport& a : report.agreement) {
    line(a.holds ? "as expected" : "NOT as expected", a.what + ": " + a.detail);
  }
  console.out << "\n  " << s.sentence << "\n\n";
}

// A misspelt name must not pass for one that was read.
void print_ignored(const char* what, const std::vector<std::string>& names, const Console& console) {
  constexpr std::size_t kMost = 8;
  if (names.empty()) return;
  console.out << "ignored " << what << ": ";
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    console.out << (i == 0 ? "" : ", ") << names[i].substr(0, 60);
  if (names.size() > kMost) console.out << " and " << names.size() - kMost << " more";
  console.out << "\n";
}

// Results under the names of docs/step_file.md.
void add_results(const Step& step, const StepOutputs& out, io::SafetensorsWriter& writer) {
  const auto add = [&](const char* name, FileDType dtype, std::vector<std::int64_t> shape,
                       const auto& buffer) {
    if (!buffer.empty()) writer.add(step.prefix + name, dtype, std::move(shape), buffer.data());
  };
  add("out_logits", FileDType::f32, {step.rows, step.width}, out.logits);
  add("out_candidates", FileDType::i32, {step.rows, step.candidate_count}, out.candidates);
  add("out_indices", FileDType::i32, {step.rows, out.k}, out.indices);
  add("out_counts", FileDType::i32, {step.rows}, out.counts);
  add("out_slots", FileDType::i32, {step.rows, out.k}, out.slots);
  add("out_mask", FileDType::u32, {step.requests, out.mask_rows, out.mask_words}, out.mask);
  add("out_latent", FileDType::f32, {step.rows, step.heads, 512}, out.out);
  add("out_lse", FileDType::f32, {step.rows, step.heads}, out.lse);
}

Status write_results(const RunCommand& command, const io::StepFile& file,
                     const std::vector<StepOutputs>& outputs) {
  io::SafetensorsWriter writer;
  writer.set_metadata("keysieve_step", std::to_string(io::kStepFileVersion));
  if (command.with_inputs) {
    for (const auto& [key, value] : file.file().metadata()) writer.set_metadata(key, value);
    for (const io::FileTensor& tensor : file.file().tensors()) {
      if (std::find(file.unused().begin(), file.unused().end(), tensor.name) == file.unused().end())
        writer.add(tensor);
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) add_results(file.steps()[i], outputs[i], writer);
  return writer.write(command.output);
}

}  // namespace

Threads::Threads(int threads) {
  if (threads == 1) return;
  pool_ = std::make_unique<ThreadPool>(threads);
  executor_ = pool_->executor();
  if (executor_.concurrency <= 1) pool_.reset();
}

int run_command(const RunCommand& command, const Console& console) {
  const auto fail = [&](const Status& status) {
    console.err << "keysieve: " << status.message() << "\n";
    return exit_code(status);
  };
  RunOptions options;
  if (!parse_kernels(command.common, console, options.kernels)) return kUsage;
  const auto same = [](const std::string& a, const std::string& b) { return !a.empty() && a == b; };
  if (same(command.output, command.json) || same(command.output, command.trace) ||
      same(command.json, command.trace)) {
    console.err << "keysieve: results, report and trace need a file each\n";
    return kUsage;
  }
  std::string no_device;
  const std::unique_ptr<StageDevice> device = open_device(command.common.backend, no_device);
  if (!no_device.empty()) {
    console.err << "keysieve: --backend " << command.common.backend << ": " << no_device << "\n";
    return kRefused;
  }
  options.device = device.get();
  io::StepFile file;
  Status status = io::StepFile::open(command.file, file);
  if (!status.ok()) return fail(status);
  // Before the work, not after it.
  for (const std::string* path : {&command.output, &command.json, &command.trace}) {
    if (!path->empty() && !(status = io::judge_output(*path)).ok()) return fail(status);
  }

  const Threads threads(command.common.threads);
  std::vector<io::TraceEvent> events;
  options.executor = threads.executor();
  options.repeat = command.repeat;
  options.compare_dense = command.compare_dense;
  options.mask = command.mask == "always"  ? MaskWish::always
                 : command.mask == "never" ? MaskWish::never
                                           : MaskWish::automatic;
  if (!command.trace.empty()) options.trace = &events;
  if (console.terminal) {
    options.progress = [&](const std::string& text) { console.err << "\r\033[K" << text << std::flush; };
  }

  io::RunReport report;
  report.program_version = version();
  report.file = command.file;
  report.backend = command.common.backend;
  report.cpu = cpu_name();
  report.threads = threads.count();
  report.repeat = command.repeat;
  report.unused_tensors = file.unused();
  report.unused_metadata = file.unused_metadata();
  if (options.progress) options.progress("measuring this machine's copy bandwidth");
  report.copy_bandwidth = copy_bandwidth(options.executor);
  if (device != nullptr) {
    report.device = device->name();
    report.device_copy_bandwidth = device->copy_bandwidth();
  }

  std::vector<StepOutputs> outputs(file.steps().size());
  bool refused = false, agrees = true;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Step& step = file.steps()[i];
    const std::int64_t score_bytes = step.rows * step.width * 4;
    const bool judged =
        step.expected.scores != nullptr || (step.role == io::Role::publish && step.candidates.given());
    options.keep_logits = command.with_logits || (judged && score_bytes <= options.score_bytes);
    if (command.with_logits && score_bytes > 4 * options.score_bytes) {
      console.err << "keysieve: --with-logits: " << step.name << " has "
                  << bytes(static_cast<double>(score_bytes)) << " of scores, at most "
                  << bytes(4.0 * static_cast<double>(options.score_bytes)) << " are kept\n";
      return kUsage;
    }
    io::StepReport& result = report.steps.emplace_back();
    status = run_step(step, options, outputs[i], result);
    if (options.progress) options.progress("");
    if (!status.ok()) return fail(status);
    summarise(step, outputs[i], command.compare_dense, result.summary);
    result.agreement = judge_agreement(step, outputs[i]);
    for (const io::StageReport& stage : result.stages) refused = refused || !stage.refusal.empty();
    for (const io::AgreementReport& a : result.agreement) agrees = agrees && a.holds;
    if (!command.with_logits) outputs[i].logits = {};
  }

  console.out << command.file << " on " << report.cpu << ", " << plural(report.threads, "thread") << ", copy "
              << bytes(report.copy_bandwidth) << "/s\n";
  if (device != nullptr) {
    console.out << "  and " << report.device << ", copy " << bytes(report.device_copy_bandwidth)
                << "/s, for the stages whose kernels are called " << report.backend << "\n";
  }
  print_ignored("tensors", file.unused(), console);
  print_ignored("metadata", file.unused_metadata(), console);
  for (const io::StepReport& step : report.steps) print_step(step, report, console);
  if (!command.output.empty() && !(status = write_results(command, file, outputs)).ok()) return fail(status);
  if (!command.json.empty() && !(status = io::write_text_file(command.json, io::to_json(report))).ok())
    return fail(status);
  if (!command.trace.empty() &&
      !(status = io::write_text_file(command.trace, io::to_chrome_trace(events))).ok()) {
    return fail(status);
  }
  return !agrees ? kDisagrees : refused ? kRefused : kDone;
}

}  // namespace keysieve::cli

// report: what one run of a step measured and found, and its two file forms: a stable JSON (docs/report.md)
// and Chrome trace events (chrome://tracing, Perfetto).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace keysieve::io {

inline constexpr int kReportVersion = 1;

struct StageReport {
  std::string stage;    // "topk"
  std::string kernel;   // empty: refused or skipped
  std::string refusal;  // why it was refused; empty otherwise
  std::string skipped;  // why there was nothing to do; empty otherwise
  std::string shape;    // "40 x 8,192 -> 256"
  double seconds = 0;   // best of the repeats, summed over row chunks
  double bytes = 0;     // read and written, computed from the live data
  std::int64_t chunks = 1;
  int repeats = 0;
  bool on_device = false;
};

// Comparison with one expected tensor.
struct AgreementReport {
  std::string what;  // "topk"
  bool holds = true;
  std::int64_t rows = 0;    // compared
  std::int64_t exact = 0;   // of them identical (as sets, for selections)
  std::int64_t within = 0;  // of them different only inside rounding
  double worst = 0;         // greatest difference, or greatest gap of a row that differs
  std::string detail;       // one line for people
};

struct StepSummary {
  std::int64_t visible = -1;  // keys that the rows may see, summed; -1: the file does not say
  std::int64_t visible_least = 0, visible_most = 0;
  std::int64_t kept = -1;                               // selected keys, summed
  std::optional<double> blocks_listed, blocks_visible;  // per row
  std::optional<double> mass_mean, mass_least;          // share of the attention that the kept keys carry
  std::optional<double> dense_distance, dense_cosine;   // of the output from attending to all keys
  std::string dense_missing;                            // why there is no dense comparison
  std::optional<std::int64_t> mask_tiles, mask_tiles_empty;
  std::string sentence;
};

struct StepReport {
  std::string name, role;
  std::int64_t rows = 0, requests = 0, topk = 0;
  std::vector<StageReport> stages;
  StepSummary summary;
  std::vector<AgreementReport> agreement;
};

struct RunReport {
  std::string program_version, file, backend, cpu;
  int threads = 1, repeat = 1;
  double copy_bandwidth = 0;  // bytes read and written per second by a plain copy with the same threads
  std::string device;         // that stages ran on; empty: none
  double device_copy_bandwidth = 0;
  std::vector<StepReport> steps;
  std::vector<std::string> unused_tensors, unused_metadata;
};

[[nodiscard]] std::string to_json(const RunReport& report);

struct TraceEvent {
  std::string name, category;
  double start_us = 0, duration_us = 0;
  int thread = 0;
  std::string detail;
};

[[nodiscard]] std::string to_chrome_trace(const std::vector<TraceEvent>& events);

}  // namespace keysieve::io

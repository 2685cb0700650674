#include "io/report.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace keysieve::io {
namespace {

using Json = nlohmann::ordered_json;  // keys in the order of docs/report.md

// JSON has no infinities; a number that is none becomes null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
template <class T>
Json maybe(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}
Json words(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json stage_json(const StageReport& s, double copy_bandwidth, double total) {
  const bool ran = !s.kernel.empty();
  Json json;
  json["stage"] = s.stage;
  json["kernel"] = words(s.kernel);
  json["refused"] = words(s.refusal);
  json["skipped"] = words(s.skipped);
  json["shape"] = s.shape;
  json["seconds"] = ran ? number(s.seconds) : Json(nullptr);
  json["bytes"] = ran ? number(s.bytes) : Json(nullptr);
  json["bandwidth_share"] = ran ? number(s.bytes / s.seconds / copy_bandwidth) : Json(nullptr);
  json["step_share"] = ran ? number(s.seconds / total) : Json(nullptr);
  json["chunks"] = s.chunks;
  json["repeats"] = s.repeats;
  return json;
}

Json summary_json(const StepSummary& s) {
  Json json;
  json["keys_visible"] = s.visible < 0 ? Json(nullptr) : Json(s.visible);
  json["keys_visible_least"] = s.visible_least;
  json["keys_visible_most"] = s.visible_most;
  json["keys_kept"] = s.kept < 0 ? Json(nullptr) : Json(s.kept);
  json["candidate_blocks_listed_per_row"] = maybe(s.blocks_listed);
  json["candidate_blocks_visible_per_row"] = maybe(s.blocks_visible);
  json["attention_mass_mean"] = maybe(s.mass_mean);
  json["attention_mass_least"] = maybe(s.mass_least);
  json["dense_relative_distance"] = maybe(s.dense_distance);
  json["dense_cosine_distance"] = maybe(s.dense_cosine);
  json["dense_missing"] = words(s.dense_missing);
  json["mask_tiles"] = maybe(s.mask_tiles);
  json["mask_tiles_empty"] = maybe(s.mask_tiles_empty);
  json["sentence"] = s.sentence;
  return json;
}

std::string dump(const Json& json, int indent) {
  // Names come from files; bytes that are not UTF-8 cannot reach here, but a report must never throw for
  // them.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string to_json(const RunReport& report) {
  Json json;
  json["keysieve_report"] = kReportVersion;
  json["program_version"] = report.program_version;
  json["file"] = report.file;
  json["backend"] = report.backend;
  json["threads"] = report.threads;
  json["repeat"] = report.repeat;
  json["machine"]["cpu"] = report.cpu;
  json["machine"]["copy_bytes_per_second"] = number(report.copy_bandwidth);
  json["machine"]["device"] = words(report.device);
  json["machine"]["device_copy_bytes_per_second"] =
      report.device.empty() ? Json(nullptr) : number(report.device_copy_bandwidth);
  json["steps"] = Json::array();
  for (const StepReport& step : report.steps) {
    Json s;
    s["name"] = step.name;
    s["role"] = step.role;
    s["rows"] = step.rows;
    s["requests"] = step.requests;
    s["topk"] = step.topk;
    double total = 0;
    for (const StageReport& stage : step.stages) total += stage.seconds;
    s["seconds"] = number(total);
    s["stages"] = Json::array();
    for (const StageReport& stage : step.stages)
      s["stages"].push_back(
          stage_json(stage, stage.on_device ? report.device_copy_bandwidth : report.copy_bandwidth, total));
    s["summary"] = summary_json(step.summary);
    s["agreement"] = Json::array();
    for (const AgreementReport& a : step.agreement) {
      s["agreement"].push_back({{"what", a.what},
                                {"holds", a.holds},
                                {"rows", a.rows},
                                {"exact", a.exact},
                                {"within_rounding", a.within},
                                {"worst", number(a.worst)},
                                {"detail", a.detail}});
    }
    json["steps"].push_back(std::move(s));
  }
  json["unused_tensors"] = report.unused_tensors;
  json["unused_metadata"] = report.unused_metadata;
  return dump(json, 2);
}

std::string to_chrome_trace(const std::vector<TraceEvent>& events) {
  Json list = Json::array();
  for (const TraceEvent& e : events) {
    Json event = {{"name", e.name},       {"cat", e.category}, {"ph", "X"},      {"ts", e.start_us},
                  {"dur", e.duration_us}, {"pid", 1},          {"tid", e.thread}};
    if (!e.detail.empty()) event["args"]["detail"] = e.detail;
    list.push_back(std::move(event));
  }
  Json json;
  json["traceEvents"] = std::move(list);
  json["displayTimeUnit"] = "ms";
  return dump(json, -1);
}

}  // namespace keysieve::io

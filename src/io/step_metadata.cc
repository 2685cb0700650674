#include "io/step_metadata.hpp"

#include <charconv>
#include <cinttypes>
#include <cmath>
#include <limits>

#include "io/file_error.hpp"
#include "io/step_rules.hpp"

namespace keysieve::io {
namespace {

struct IntegerKey {
  const char* name;
  std::optional<std::int64_t> StepMetadata::*field;
  std::int64_t least, most;
};
constexpr IntegerKey kIntegerKeys[] = {
    {"topk", &StepMetadata::topk, 0, Limits::kMaxTopk},
    {"next_n", &StepMetadata::next_n, 1, Limits::kMaxTopk},
    {"ratio", &StepMetadata::ratio, 1, 1 << 20},
    {"row_repeat", &StepMetadata::row_repeat, 1, std::numeric_limits<std::int32_t>::max()},
    {"index_page_tokens", &StepMetadata::index_page_tokens, 1, 1 << 20},
    {"candidate_block", &StepMetadata::candidate_block, 1, Limits::kMaxWidth},
    {"candidate_count", &StepMetadata::candidate_count, 0, Limits::kMaxTopk},
    {"layer", &StepMetadata::layer, 0, 99'999},
};

// The whole text is one number, without blanks, in decimal.
template <class Number>
bool read_number(const std::string& text, Number& out) {
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, out);
  return error == std::errc() && end == last;
}

bool read_role(const std::string& text, Role& out) {
  if (text == "publisher" || text == "publish") return out = Role::publish, true;
  if (text == "consumer" || text == "consume") return out = Role::consume, true;
  out = Role::none;
  return text == "none";
}

class Reader {
 public:
  Reader(const SafetensorsFile& file, const std::string& prefix, std::set<std::string>& known)
      : metadata_(file.metadata()), prefix_(prefix), known_(known) {}

  // Hands the value of the key to take(text), the shared one first, so that the layer's own stays; take answers false
  // for a value that is not allowed.
  template <class Take>
  void key(const char* name, const char* rule, const std::string& allowed, const Take& take) {
    for (const std::string& full : {std::string(name), prefix_ + name}) {
      const auto found = metadata_.find(full);
      if (found == metadata_.end()) continue;
      known_.insert(full);
      if (take(found->second) || !status_.ok()) continue;
      status_ = file_error(Code::bad_file, "step_file", rule, name, "%s%s\"%.60s\"%s%s", prefix_.c_str(),
                           prefix_.empty() ? "" : ": ", found->second.c_str(),
                           allowed.empty() ? "" : ", allowed ", allowed.c_str());
    }
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const std::map<std::string, std::string, std::less<>>& metadata_;
  const std::string& prefix_;
  std::set<std::string>& known_;
  Status status_;
};

}  // namespace

Status read_metadata(const SafetensorsFile& file, const std::string& prefix, StepMetadata& out,
                     std::set<std::string>& known) {
  Reader reader(file, prefix, known);
  reader.key("keysieve_step", kVersionRule, "",
             [](const std::string& text) { return text == std::to_string(kStepFileVersion); });
  for (const IntegerKey& integer : kIntegerKeys) {
    const std::string allowed = std::to_string(integer.least) + " to " + std::to_string(integer.most);
    reader.key(integer.name, kMetadataRule, allowed, [&](const std::string& text) {
      std::int64_t value = 0;
      if (!read_number(text, value) || value < integer.least || value > integer.most) return false;
      out.*integer.field = value;
      return true;
    });
  }
  reader.key("softmax_scale", kMetadataRule, "finite numbers above 0", [&](const std::string& text) {
    double value = 0;
    if (!read_number(text, value)) return false;
    out.softmax_scale = static_cast<float>(value);
    return std::isfinite(*out.softmax_scale) && *out.softmax_scale > 0;
  });
  reader.key("role", kMetadataRule, "publisher, consumer and none",
             [&](const std::string& text) { return read_role(text, out.role.emplace()); });
  reader.key("length_unit", kMetadataRule, "tokens and compressed", [&](const std::string& text) {
    out.length_unit = text == "compressed" ? LengthUnit::compressed : LengthUnit::tokens;
    return text == "tokens" || text == "compressed";
  });
  return reader.status();
}

}  // namespace keysieve::io

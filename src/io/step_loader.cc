#include "io/step_loader.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>

#include "io/file_error.hpp"

namespace keysieve::io {

StepLoader::StepLoader(const SafetensorsFile& file, std::string prefix, bool publishes, Step& step)
    : file_(file), step_(step), publishes_(publishes) {
  step_.prefix = std::move(prefix);
}

Status StepLoader::load() {
  status_ = read_metadata(file_, step_.prefix, metadata_, known_metadata_);
  if (!failed()) sizes();
  if (!failed()) requests();
  if (!failed() && step_.has_index) index();
  if (!failed()) bounds();
  if (!failed()) candidates();
  if (!failed() && step_.has_attention) attention();
  if (!failed()) expected();
  if (!failed()) dumped();
  return status_;
}

void StepLoader::fail(const char* rule, const char* argument, const char* format, ...) {
  if (failed()) return;
  char text[Status::kSeenCapacity];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  status_ = file_error(Code::bad_file, "step_file", rule, argument, "%s%s%s", step_.prefix.c_str(),
                       step_.prefix.empty() ? "" : ": ", text);
}

const FileTensor* StepLoader::find(const char* name) {
  if (!step_.prefix.empty()) {
    if (const FileTensor* own = file_.find(step_.prefix + name)) {
      used_.insert(own->name);
      return own;
    }
  }
  const FileTensor* shared = file_.find(name);
  if (shared != nullptr) used_.insert(shared->name);
  return shared;
}

const FileTensor* StepLoader::plain_tensor(const char* name, std::initializer_list<FileDType> dtypes,
                                           std::initializer_list<std::int64_t> shape, const char* rule,
                                           Need need) {
  if (failed()) return nullptr;
  const FileTensor* tensor = find(name);
  if (tensor == nullptr) {
    if (need == Need::required) fail(kCompleteRule, name, "no tensor of this name");
    return nullptr;
  }
  bool fits = std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end() &&
              tensor->shape.size() == shape.size();
  for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) {
    const std::int64_t wanted = shape.begin()[axis];
    fits = wanted < 0 || wanted == tensor->shape[axis];
  }
  if (fits) return tensor;
  fail(rule, name, "%s", tensor->describe().c_str());
  return nullptr;
}

const FileTensor* StepLoader::row_tensor(const char* name, std::initializer_list<FileDType> dtypes,
                                         std::initializer_list<std::int64_t> tail, const char* rule,
                                         Need need) {
  if (failed()) return nullptr;
  const FileTensor* tensor = find(name);
  if (tensor == nullptr) {
    if (need == Need::required) fail(kCompleteRule, name, "no tensor of this name");
    return nullptr;
  }
  const std::size_t rank = tensor->shape.size();
  // One leading axis of rows, or two: requests and draft rows.
  bool fits = std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end() &&
              (rank == tail.size() + 1 || rank == tail.size() + 2) &&
              extents_product(tensor->shape, rank - tail.size()) == step_.rows;
  for (std::size_t axis = 0; fits && axis < tail.size(); ++axis) {
    const std::int64_t wanted = tail.begin()[axis];
    fits = wanted < 0 || wanted == tensor->shape[rank - tail.size() + axis];
  }
  if (fits) return tensor;
  fail(rule, name, "%s for %" PRId64 " rows", tensor->describe().c_str(), step_.rows);
  return nullptr;
}

std::vector<std::int64_t> StepLoader::starts(const char* name, std::int64_t last) {
  const FileTensor* tensor =
      plain_tensor(name, kIntegers, {step_.requests + 1}, "STP-03 starts are I32 or I64 [requests + 1]");
  if (tensor == nullptr) return {};
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i <= step_.requests; ++i) {
    const std::int64_t value = integer_at(*tensor, i);
    if (i == 0 ? value != 0 : value < values.back()) {
      fail(kStartsRule, name, "%" PRId64 " at [%" PRId64 "]", value, i);
      return {};
    }
    values.push_back(value);
  }
  if (values.back() > last) fail(kStartsRule, name, "the end %" PRId64 " of %" PRId64, values.back(), last);
  return values;
}

}  // namespace keysieve::io

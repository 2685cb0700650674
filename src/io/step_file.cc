#include "io/step_file.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <set>

#include "io/file_error.hpp"
#include "io/step_loader.hpp"

namespace keysieve::io {
namespace {

constexpr std::string_view kLayer = "layer";

// The number of "layer3.", -1 where a name has no such prefix.
int layer_of(std::string_view name) {
  if (name.substr(0, kLayer.size()) != kLayer) return -1;
  const std::size_t dot = name.find('.');
  const std::string_view digits = name.substr(kLayer.size(), dot - kLayer.size());
  if (dot == std::string_view::npos || digits.empty() || digits.size() > 5) return -1;
  int layer = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return -1;
    layer = layer * 10 + (c - '0');
  }
  return layer;
}

}  // namespace

const char* role_name(Role role) {
  return role == Role::publish ? "publisher" : role == Role::consume ? "consumer" : "none";
}

std::int64_t LatentCache::slot(std::int64_t request, std::int64_t position) const {
  if (form == Form::none || position < 0 || request < 0) return -1;
  if (form == Form::paged) {
    const std::int64_t page_tokens = pool.shape[1];
    const std::int64_t column = position / page_tokens;
    if (request >= page_table.shape[0] || column >= page_table.shape[1]) return -1;
    const std::int64_t page =
        static_cast<const std::int32_t*>(page_table.data)[request * page_table.stride[0] + column];
    return page < 0 || page >= pool.shape[0] ? -1 : page * page_tokens + position % page_tokens;
  }
  const auto b = static_cast<std::size_t>(request);
  if (b + 1 >= start.size()) return -1;
  if (form == Form::full) return position < start[b + 1] - start[b] ? start[b] + position : -1;
  const auto last = positions.begin() + start[b + 1];
  const auto found = std::lower_bound(positions.begin() + start[b], last, position,
                                      [](const auto& entry, std::int64_t p) { return entry.first < p; });
  return found != last && found->first == position ? found->second : -1;
}

bool LatentCache::complete(std::int64_t request, std::int64_t count) const {
  if (count <= 0) return true;
  if (form == Form::full) return slot(request, count - 1) >= 0;
  if (form == Form::compact) {
    const auto b = static_cast<std::size_t>(request);
    // Sorted without repeats, so position count - 1 in place count - 1 means that none is missing.
    return start[b + 1] - start[b] >= count && positions[static_cast<std::size_t>(start[b])].first == 0 &&
           positions[static_cast<std::size_t>(start[b] + count - 1)].first == count - 1;
  }
  for (std::int64_t position = 0; form == Form::paged && position < count; position += pool.shape[1]) {
    if (slot(request, position) < 0) return false;
  }
  return form == Form::paged;
}

Tensor view(const FileTensor& tensor, int rank) {
  Tensor out;
  // The arguments of the library have one type for what it reads and what it writes.
  out.data = const_cast<std::byte*>(tensor.data);
  out.dtype = tensor_dtype(tensor.dtype);
  out.rank = rank;
  const int folded = static_cast<int>(tensor.shape.size()) - rank;
  std::int64_t step = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    std::int64_t extent = tensor.shape[static_cast<std::size_t>(axis + folded)];
    for (int lead = 0; axis == 0 && lead < folded; ++lead)
      extent *= tensor.shape[static_cast<std::size_t>(lead)];
    out.shape[axis] = extent;
    out.stride[axis] = step;
    step *= extent;
  }
  return out;
}

Status StepFile::open(const std::string& path, StepFile& out) {
  out = StepFile();
  const Status status = SafetensorsFile::open(path, *out.file_);
  return status.ok() ? load(out) : status;
}

Status StepFile::parse(const void* data, std::size_t bytes, StepFile& out) {
  out = StepFile();
  const Status status = SafetensorsFile::parse(data, bytes, *out.file_);
  return status.ok() ? load(out) : status;
}

Status StepFile::load(StepFile& out) try {
  const SafetensorsFile& file = *out.file_;
  std::map<int, bool> layers;  // layer -> has index tensors
  for (const FileTensor& tensor : file.tensors()) {
    const int layer = layer_of(tensor.name);
    if (layer < 0) continue;
    const std::string prefix = tensor.name.substr(0, tensor.name.find('.') + 1);
    if (prefix != "layer" + std::to_string(layer) + ".") {
      return file_error(Code::bad_file, "step_file", "STP-04 layers are written without leading zeros",
                        "layer", "%.60s", prefix.c_str());
    }
    layers[layer] = layers[layer] || tensor.name == prefix + "index_q";
  }
  const auto with_index = std::count_if(layers.begin(), layers.end(), [](const auto& l) { return l.second; });
  std::set<std::string> used, known_metadata;
  bool first_index = true;
  std::int64_t rows = 0;
  const auto add = [&](std::string prefix, std::string name, bool publishes) {
    Step step;
    step.name = std::move(name);
    StepLoader loader(file, std::move(prefix), publishes, step);
    Status status = loader.load();
    rows += step.rows;
    // Layers may share their tensors, but each takes memory for its rows.
    if (rows > Limits::kMaxRows) {
      status = file_error(Code::bad_file, "step_file", "STP-08 a size below the program's limit", "layer",
                          "%lld rows in all layers", static_cast<long long>(rows));
    }
    used.insert(loader.used().begin(), loader.used().end());
    known_metadata.insert(loader.known_metadata().begin(), loader.known_metadata().end());
    if (status.ok()) out.steps_.push_back(std::move(step));
    return status;
  };
  Status status;
  if (layers.empty()) {
    const auto layer = file.metadata().find("layer");
    status = add("", layer == file.metadata().end() ? "step" : "layer " + layer->second.substr(0, 20), false);
  }
  for (const auto& [layer, has_index] : layers) {
    // Of several index layers that share one candidate list, the first is the one that made it.
    status = add("layer" + std::to_string(layer) + ".", "layer " + std::to_string(layer),
                 has_index && first_index && with_index > 1);
    first_index = first_index && !has_index;
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    out.steps_.clear();
    return status;
  }
  for (const FileTensor& tensor : file.tensors()) {
    if (!used.contains(tensor.name)) out.unused_.push_back(tensor.name);
  }
  for (const auto& [key, value] : file.metadata()) {
    if (!known_metadata.contains(key)) out.unused_metadata_.push_back(key);
  }
  return {};
} catch (const std::exception& error) {
  out.steps_.clear();
  return file_error(Code::bad_file, "step_file", "STP-08 a size below the program's limit", "file", "%.120s",
                    error.what());
}

}  // namespace keysieve::io

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/file_error.hpp"
#include "io/output_file.hpp"
#include "io/safetensors_header.hpp"

namespace keysieve::io {

void SafetensorsWriter::add(std::string name, FileDType dtype, std::vector<std::int64_t> shape,
                            const void* data) {
  FileTensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.bytes = shape_elements(shape) * file_dtype_bytes(dtype);
  tensor.shape = std::move(shape);
  tensor.data = static_cast<const std::byte*>(data);
  tensors_[std::move(name)] = std::move(tensor);
}

Status SafetensorsWriter::write(const std::string& path) const try {
  std::vector<const FileTensor*> order;
  for (const auto& [name, tensor] : tensors_) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const FileTensor* a, const FileTensor* b) {
    return file_dtype_bytes(a->dtype) > file_dtype_bytes(b->dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  std::int64_t offset = 0;
  for (const FileTensor* tensor : order) {
    header[tensor->name] = {{"dtype", file_dtype_name(tensor->dtype)},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, offset + tensor->bytes}}};
    offset += tensor->bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  if (text.size() > std::size_t{SafetensorsFile::kMaxHeaderBytes}) {
    return file_error(Code::invalid_argument, kOperation, kRule02, "header", "%zu bytes", text.size());
  }
  const std::uint64_t header_bytes = text.size();
  OutputFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(text.data(), text.size());
  for (const FileTensor* tensor : order) file.write(tensor->data, static_cast<std::size_t>(tensor->bytes));
  return file.commit();
} catch (const std::exception& error) {
  return file_error(Code::io_error, kOperation, "SFT-01 the file can be written", "path", "%.120s",
                    error.what());
}

}  // namespace keysieve::io

// learned: tensors of a model whose indexer was trained, read from the files in KEYSIEVE_TEST_DATA/tinydsa.
// Tests that need them skip without that variable. A reader for files that the tests trust; the library's own
// is in src/io.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keysieve/tensor.hpp"

namespace keysieve::test {

inline constexpr const char* kLearnedDataMissing = "KEYSIEVE_TEST_DATA names no folder with tinydsa files";

class LearnedFile {
 public:
  explicit LearnedFile(const std::string& name) {
    const char* folder = std::getenv("KEYSIEVE_TEST_DATA");
    if (folder == nullptr) return;
    std::ifstream in(std::string(folder) + "/tinydsa/" + name + ".safetensors", std::ios::binary);
    std::uint64_t header_bytes = 0;
    if (!in.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes))) return;
    std::string header(header_bytes, ' ');
    in.read(header.data(), static_cast<std::streamsize>(header_bytes));
    header_ = nlohmann::json::parse(header);
    const std::streamoff begin = in.tellg();
    in.seekg(0, std::ios::end);
    bytes_.resize(static_cast<std::size_t>(in.tellg() - begin));
    in.seekg(begin);
    in.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  }

  [[nodiscard]] bool found() const { return !bytes_.empty(); }

  template <class T>
  [[nodiscard]] const T* data(const std::string& name) const {
    return reinterpret_cast<const T*>(bytes_.data() +
                                      header_.at(name).at("data_offsets").at(0).get<std::size_t>());
  }

  // F32, BF16, I32 and U8 tensors of at most four axes; not to be written to.
  [[nodiscard]] Tensor operator[](const std::string& name) const {
    const auto& entry = header_.at(name);
    const auto type = entry.at("dtype").get<std::string>();
    Tensor t;
    t.dtype = type == "F32"    ? DType::f32
              : type == "BF16" ? DType::bf16
              : type == "I32"  ? DType::i32
                               : DType::u8;
    t.data = const_cast<char*>(data<char>(name));
    t.rank = static_cast<std::int32_t>(entry.at("shape").size());
    std::int64_t step = 1;
    for (int axis = t.rank - 1; axis >= 0; --axis) {
      t.shape[axis] = entry.at("shape").at(static_cast<std::size_t>(axis)).get<std::int64_t>();
      t.stride[axis] = step;
      step *= t.shape[axis];
    }
    return t;
  }

 private:
  nlohmann::json header_;
  std::vector<char> bytes_;
};

// Entries [first, first + count) along the first axis.
inline Tensor slice(Tensor t, std::int64_t first, std::int64_t count) {
  t.data = static_cast<char*>(t.data) + first * t.stride[0] * dtype_bytes(t.dtype);
  t.shape[0] = count;
  return t;
}

// Without the first axis, whose size is one.
inline Tensor squeeze(Tensor t) {
  for (int axis = 1; axis < t.rank; ++axis) {
    t.shape[axis - 1] = t.shape[axis];
    t.stride[axis - 1] = t.stride[axis];
  }
  --t.rank;
  return t;
}

}  // namespace keysieve::test

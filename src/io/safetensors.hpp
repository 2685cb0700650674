// safetensors: a file of named, dense, little-endian arrays.
//
//   8 bytes   n, u64: length of the header
//   n bytes   JSON: {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, "__metadata__":
//   {..}} the rest  the arrays; offsets count from here and cover every byte exactly once
//
// The reader maps the file and hands out views into the mapping, so opening costs the header only. Nothing
// that a file says is trusted: whatever breaks a rule below is Code::bad_file with the tensor and the value,
// and memory use is bounded by kMaxHeaderBytes and by the file's own size. (A file that another process
// truncates while it is mapped still raises SIGBUS, as with every mapped file.)
//
//   SFT-01 the file holds its 8 length bytes and its header      SFT-06 a dtype that the format knows
//   SFT-02 the header takes at most kMaxHeaderBytes              SFT-07 rank at most kMaxRank, extents >= 0
//   SFT-03 the header is one JSON object of the shape above      SFT-08 element and byte counts fit 63 bits
//   SFT-04 no name twice, at most kMaxTensors                    SFT-09 end - begin is the size of the shape
//   SFT-05 the data lies inside the file, without gap, overlap or rest
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keysieve/status.hpp"
#include "keysieve/tensor.hpp"

namespace keysieve::io {

enum class FileDType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2
};

[[nodiscard]] const char* file_dtype_name(FileDType dtype);  // "BF16", as in the header
[[nodiscard]] int file_dtype_bytes(FileDType dtype);
[[nodiscard]] bool find_file_dtype(std::string_view name, FileDType& out);
// The library's dtype for the same bytes (f8 -> u8), none where it has no use for them (f64, f16, ...).
[[nodiscard]] DType tensor_dtype(FileDType dtype);

struct FileTensor {
  std::string name;
  FileDType dtype = FileDType::u8;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  // aligned for its elements; null when bytes is 0
  std::int64_t bytes = 0;

  [[nodiscard]] std::int64_t elements() const { return bytes / file_dtype_bytes(dtype); }
  [[nodiscard]] std::string describe() const;  // "BF16 [8, 32, 128]"
  // Elements as T, which the caller has matched with dtype.
  template <class T>
  [[nodiscard]] const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

// Elements of a shape, or -1 when their count does not fit.
[[nodiscard]] std::int64_t shape_elements(const std::vector<std::int64_t>& shape);

class SafetensorsFile {
 public:
  static constexpr std::int64_t kMaxHeaderBytes = 16 << 20;
  static constexpr std::size_t kMaxTensors = 100'000;
  static constexpr std::size_t kMaxRank = 8;

  SafetensorsFile();
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  // Maps the file. On any error `out` is left empty.
  [[nodiscard]] static Status open(const std::string& path, SafetensorsFile& out);
  // The same over memory that outlives `out`.
  [[nodiscard]] static Status parse(const void* data, std::size_t bytes, SafetensorsFile& out);

  [[nodiscard]] const std::vector<FileTensor>& tensors() const { return tensors_; }  // in order of their data
  [[nodiscard]] const FileTensor* find(std::string_view name) const;
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  [[nodiscard]] std::int64_t file_bytes() const { return file_bytes_; }

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  // of arrays that start at an unaligned address
  std::vector<FileTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::int64_t file_bytes_ = 0;
};

// Collects views of arrays and writes them. The arrays must outlive write().
class SafetensorsWriter {
 public:
  void set_metadata(std::string key, std::string value) { metadata_[std::move(key)] = std::move(value); }
  // A name given twice keeps the last array.
  void add(std::string name, FileDType dtype, std::vector<std::int64_t> shape, const void* data);
  void add(const FileTensor& tensor) { add(tensor.name, tensor.dtype, tensor.shape, tensor.data); }

  // Writes `path` whole or not at all: a temporary file beside it is renamed over it at the end. Larger
  // elements come first and the header is padded to 64 bytes, so every array starts at a multiple of its
  // element size.
  [[nodiscard]] Status write(const std::string& path) const;

 private:
  std::map<std::string, FileTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace keysieve::io

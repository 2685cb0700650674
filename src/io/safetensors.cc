// Reader: 1 map, 2 header length, 3 header JSON through a SAX handler (no tree is ever built), 4 each
// tensor's shape against its offsets, 5 the offsets against the file and each other, 6 copies of unaligned
// arrays.
#include "io/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/file_error.hpp"

namespace keysieve::io {
namespace {

struct DTypeRow {
  const char* name;
  int bytes;
  DType tensor;
};
// In the order of FileDType.
constexpr std::array<DTypeRow, 15> kDTypes = {{{"F64", 8, DType::none},
                                               {"F32", 4, DType::f32},
                                               {"F16", 2, DType::none},
                                               {"BF16", 2, DType::bf16},
                                               {"I64", 8, DType::i64},
                                               {"I32", 4, DType::i32},
                                               {"I16", 2, DType::none},
                                               {"I8", 1, DType::none},
                                               {"U64", 8, DType::none},
                                               {"U32", 4, DType::u32},
                                               {"U16", 2, DType::none},
                                               {"U8", 1, DType::u8},
                                               {"BOOL", 1, DType::u8},
                                               {"F8_E4M3", 1, DType::u8},
                                               {"F8_E5M2", 1, DType::none}}};

constexpr const char* kOperation = "safetensors";
constexpr const char* kRule01 = "SFT-01 the file holds its 8 length bytes and its header";
constexpr const char* kRule02 = "SFT-02 the header takes at most 16 MiB";
constexpr const char* kRule03 =
    "SFT-03 the header is a JSON object of tensors {dtype, shape, data_offsets} and text metadata";
constexpr const char* kRule04 = "SFT-04 no name stands twice and at most 100000 tensors";
constexpr const char* kRule05 = "SFT-05 the arrays cover the data section without gap, overlap or rest";
constexpr const char* kRule06 = "SFT-06 a dtype of the format (F64, F32, BF16, I64, I32, U32, U8, ...)";
constexpr const char* kRule07 = "SFT-07 rank at most 8 and extents >= 0";
constexpr const char* kRule08 = "SFT-08 element and byte counts fit 63 bits";
constexpr const char* kRule09 = "SFT-09 data_offsets span the bytes of the shape";

struct Entry {
  FileTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Depth 1 is the header object, depth 2 a tensor (or the metadata), depth 3 a shape or an offset pair. The
// handler answers false at the first deviation, which stops the parser; so memory is bounded by the header's
// own bytes.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string, std::less<>> metadata;
  std::map<std::string, std::size_t, std::less<>> index;
  Status status;

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_float(double, const std::string& text) override { return wrong(text.c_str()); }
  bool number_integer(std::int64_t value) override {
    if (depth_ == 3 && list_ == List::shape) return fail(kRule07, "extent %" PRId64, value);
    return fail(kRule03, "%" PRId64, value);
  }
  bool number_unsigned(std::uint64_t value) override {
    if (depth_ != 3 || list_ == List::none) return fail(kRule03, "the number %" PRIu64, value);
    if (list_ == List::offsets) {
      if (offset_count_ == 2) return wrong("more than two data_offsets");
      (offset_count_++ == 0 ? entries.back().begin : entries.back().end) = value;
      return true;
    }
    auto& shape = entries.back().tensor.shape;
    if (shape.size() == SafetensorsFile::kMaxRank) return fail(kRule07, "rank above %zu", shape.size());
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      return fail(kRule08, "extent %" PRIu64, value);
    shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) {
      metadata[key_] = std::move(value);
      return true;
    }
    if (depth_ != 2 || key_ != "dtype") return fail(kRule03, "the text \"%.60s\"", value.c_str());
    const auto* row =
        std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeRow& r) { return value == r.name; });
    if (row == kDTypes.end()) return fail(kRule06, "dtype \"%.60s\"", value.c_str());
    entries.back().tensor.dtype = static_cast<FileDType>(row - kDTypes.begin());
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return wrong("binary data"); }

  bool start_object(std::size_t) override {
    if (depth_ == 2 || depth_ == 3) return wrong("an object inside a tensor");
    if (++depth_ == 1) return true;
    in_metadata_ = key_ == "__metadata__";
    keys_seen_ = 0;
    offset_count_ = 0;
    if (in_metadata_) return true;
    entries.emplace_back();
    entries.back().tensor.name = key_;
    return true;
  }
  bool key(std::string& value) override {
    key_ = std::move(value);
    if (depth_ == 1) {
      // A NUL byte would hide the rest of a name from every message and C string.
      if (key_.find('\0') != std::string::npos) return wrong("a name with a NUL byte");
      if (key_ == "__metadata__") return once_metadata();
      if (index.size() == SafetensorsFile::kMaxTensors) return fail(kRule04, "more tensors");
      return index.emplace(key_, index.size()).second || fail(kRule04, "'%.100s' twice", key_.c_str());
    }
    if (in_metadata_)
      return metadata.emplace(key_, "").second || fail(kRule04, "metadata '%.100s' twice", key_.c_str());
    const int bit = key_ == "dtype" ? 1 : key_ == "shape" ? 2 : key_ == "data_offsets" ? 4 : 0;
    if (bit == 0) return fail(kRule03, "the key \"%.60s\"", key_.c_str());
    if (keys_seen_ & bit) return fail(kRule04, "the key \"%s\" twice", key_.c_str());
    keys_seen_ |= bit;
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_ && (keys_seen_ != 7 || offset_count_ != 2)) {
      return wrong("a tensor without dtype, shape or two data_offsets");
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || (key_ != "shape" && key_ != "data_offsets")) return wrong("a list");
    list_ = key_ == "shape" ? List::shape : List::offsets;
    depth_ = 3;
    return true;
  }
  bool end_array() override {
    list_ = List::none;
    depth_ = 2;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail(kRule03, "no JSON at header byte %zu", position);
  }

 private:
  enum class List { none, shape, offsets };

  bool once_metadata() {
    if (metadata_seen_) return fail(kRule04, "'__metadata__' twice");
    return metadata_seen_ = true;
  }
  bool wrong(const char* what) { return fail(kRule03, "%.60s", what); }
  template <class... Values>
  bool fail(const char* rule, const char* format, const Values&... values) {
    char text[Status::kSeenCapacity];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::snprintf(text, sizeof text, format, values...);
#pragma GCC diagnostic pop
    const char* where =
        depth_ >= 2 ? (in_metadata_ ? "__metadata__" : entries.back().tensor.name.c_str()) : "";
    status = *where == '\0'
                 ? file_error(Code::bad_file, kOperation, rule, "header", "%s", text)
                 : file_error(Code::bad_file, kOperation, rule, "header", "'%.100s': %s", where, text);
    return false;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  int keys_seen_ = 0;
  int offset_count_ = 0;
  List list_ = List::none;
  std::string key_;
};

// Elements of a shape, or -1 when their count does not fit. Extents of 0 are left out of that judgement, so
// that no product of some of the axes overflows either.
std::int64_t shape_elements(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(extent, 1), &count)) return -1;
  }
  if (count > std::numeric_limits<std::int64_t>::max() / 8) return -1;
  return std::find(shape.begin(), shape.end(), 0) != shape.end() ? 0 : count;
}

}  // namespace

const char* file_dtype_name(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
int file_dtype_bytes(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bytes; }
DType tensor_dtype(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].tensor; }

std::string FileTensor::describe() const {
  std::string text = std::string(file_dtype_name(dtype)) + " [";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

struct SafetensorsFile::Mapping {
  void* data = MAP_FAILED;
  std::size_t bytes = 0;
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data != MAP_FAILED) ::munmap(data, bytes);
  }
};

SafetensorsFile::SafetensorsFile() = default;
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status SafetensorsFile::open(const std::string& path, SafetensorsFile& out) try {
  out = SafetensorsFile();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto io_error = [&](const char* what) {
    return file_error(Code::io_error, kOperation, "SFT-01 the file can be read", "path", "%s '%.120s': %s",
                      what, path.c_str(), std::strerror(errno));
  };
  if (file < 0) return io_error("open");
  struct stat info {};
  const bool described = ::fstat(file, &info) == 0;
  auto mapping = std::make_unique<Mapping>();
  if (!described || !S_ISREG(info.st_mode)) {
    if (described) errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    ::close(file);
    return io_error("not a regular file:");
  }
  if (info.st_size == 0) {
    ::close(file);
    return file_error(Code::bad_file, kOperation, kRule01, "file", "0 bytes");
  }
  mapping->bytes = static_cast<std::size_t>(info.st_size);
  mapping->data = ::mmap(nullptr, mapping->bytes, PROT_READ, MAP_PRIVATE, file, 0);
  const int map_errno = errno;
  ::close(file);
  errno = map_errno;
  if (mapping->data == MAP_FAILED) return io_error("mmap");
  const Status status = parse(mapping->data, mapping->bytes, out);
  if (status.ok()) out.mapping_ = std::move(mapping);
  return status;
} catch (const std::exception& error) {
  return file_error(Code::io_error, kOperation, "SFT-02 memory for the header", "file", "%s", error.what());
}

Status SafetensorsFile::parse(const void* data, std::size_t bytes, SafetensorsFile& out) try {
  out = SafetensorsFile();
  const auto* const begin = static_cast<const std::byte*>(data);
  std::uint64_t header_bytes = 0;
  if (bytes < sizeof header_bytes)
    return file_error(Code::bad_file, kOperation, kRule01, "file", "%zu bytes", bytes);
  std::memcpy(&header_bytes, begin, sizeof header_bytes);
  if (header_bytes > std::uint64_t{kMaxHeaderBytes}) {
    return file_error(Code::bad_file, kOperation, kRule02, "header", "%" PRIu64 " bytes", header_bytes);
  }
  if (header_bytes > bytes - sizeof header_bytes) {
    return file_error(Code::bad_file, kOperation, kRule01, "header",
                      "a header of %" PRIu64 " bytes in a file of %zu", header_bytes, bytes);
  }
  const char* const text = reinterpret_cast<const char*>(begin) + sizeof header_bytes;
  if (header_bytes == 0 || text[0] != '{') {
    return file_error(Code::bad_file, kOperation, kRule03, "header", "no '{' at its first byte");
  }
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(text, text + header_bytes, &handler)) {
    if (handler.status.ok())
      handler.status = file_error(Code::bad_file, kOperation, kRule03, "header", "no JSON");
    return handler.status;
  }

  const std::byte* const section = begin + sizeof header_bytes + header_bytes;
  const std::uint64_t section_bytes = bytes - sizeof header_bytes - header_bytes;
  for (Entry& entry : handler.entries) {
    FileTensor& tensor = entry.tensor;
    const char* const name = tensor.name.c_str();
    const std::int64_t count = shape_elements(tensor.shape);
    std::int64_t size = 0;
    if (count < 0 || __builtin_mul_overflow(count, file_dtype_bytes(tensor.dtype), &size)) {
      return file_error(Code::bad_file, kOperation, kRule08, "header", "'%.100s': %s", name,
                        tensor.describe().c_str());
    }
    if (entry.begin > entry.end || entry.end > section_bytes) {
      return file_error(Code::bad_file, kOperation, kRule05, "header",
                        "'%.100s': data_offsets [%" PRIu64 ", %" PRIu64 "] in %" PRIu64 " bytes of data",
                        name, entry.begin, entry.end, section_bytes);
    }
    if (entry.end - entry.begin != static_cast<std::uint64_t>(size)) {
      return file_error(Code::bad_file, kOperation, kRule09, "header",
                        "'%.100s': %s takes %" PRId64 " bytes, data_offsets [%" PRIu64 ", %" PRIu64 "]", name,
                        tensor.describe().c_str(), size, entry.begin, entry.end);
    }
    tensor.bytes = size;
  }

  auto& entries = handler.entries;
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered) {
      return file_error(Code::bad_file, kOperation, kRule05, "header",
                        "'%.100s' starts at %" PRIu64 " where the arrays before it end at %" PRIu64,
                        entry.tensor.name.c_str(), entry.begin, covered);
    }
    covered = entry.end;
  }
  if (covered != section_bytes) {
    return file_error(Code::bad_file, kOperation, kRule05, "header",
                      "the arrays end at %" PRIu64 " of %" PRIu64 " bytes of data", covered, section_bytes);
  }

  for (Entry& entry : entries) {
    FileTensor& tensor = entry.tensor;
    if (tensor.bytes > 0) {
      tensor.data = section + entry.begin;
      if (reinterpret_cast<std::uintptr_t>(tensor.data) %
          static_cast<std::size_t>(file_dtype_bytes(tensor.dtype))) {
        out.copies_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(tensor.bytes)));
        std::memcpy(out.copies_.back().get(), tensor.data, static_cast<std::size_t>(tensor.bytes));
        tensor.data = out.copies_.back().get();
      }
    }
    out.index_[tensor.name] = out.tensors_.size();
    out.tensors_.push_back(std::move(tensor));
  }
  out.metadata_ = std::move(handler.metadata);
  out.file_bytes_ = static_cast<std::int64_t>(bytes);
  return {};
} catch (const std::exception& error) {
  out = SafetensorsFile();
  return file_error(Code::bad_file, kOperation, kRule03, "header", "%.120s", error.what());
}

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

namespace {

// A temporary file beside `path`; commit() renames it over `path`, any other end removes it. Links are followed; a
// pipe or a device is written to as it is, since another file in its place would not be what its readers wait for.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path) : path_(path) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
    if (!error) path_ = target.string();
    struct stat there;
    if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
      file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    } else {
      temporary_ = path_ + "." + std::to_string(::getpid()) + ".part";
      file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    failed_ = file_ < 0;
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (file_ < 0) return;
    ::close(file_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  void write(const void* data, std::size_t bytes) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0 && !failed_) {
      const ssize_t written = ::write(file_, next, std::min<std::size_t>(bytes, 1 << 30));
      if (written < 0 && errno == EINTR) continue;
      failed_ = written <= 0;
      if (!failed_) next += written, bytes -= static_cast<std::size_t>(written);
    }
  }
  Status commit() {
    if (!failed_ && !temporary_.empty())
      failed_ = ::fsync(file_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0;
    if (failed_) {
      return file_error(Code::io_error, kOperation, "SFT-01 the file can be written", "path", "'%.120s': %s",
                        path_.c_str(), std::strerror(errno));
    }
    ::close(file_);
    file_ = -1;
    return {};
  }

 private:
  std::string path_;
  std::string temporary_;  // empty: `path_` is written to as it is
  int file_ = -1;
  bool failed_ = false;
};

}  // namespace

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
  PendingFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(text.data(), text.size());
  for (const FileTensor* tensor : order) file.write(tensor->data, static_cast<std::size_t>(tensor->bytes));
  return file.commit();
} catch (const std::exception& error) {
  return file_error(Code::io_error, kOperation, "SFT-01 the file can be written", "path", "%.120s",
                    error.what());
}

Status write_text_file(const std::string& path, std::string_view text) {
  PendingFile file(path);
  file.write(text.data(), text.size());
  return file.commit();
}

}  // namespace keysieve::io

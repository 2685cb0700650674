// Reader: 1 map, 2 header length, 3 header (safetensors_header.cc), 4 each tensor's shape against its offsets, 5 the
// offsets against the file and each other, 6 copies of unaligned arrays.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "io/file_error.hpp"
#include "io/safetensors_header.hpp"

namespace keysieve::io {

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
  Header header;
  const Status status = read_header(text, text + header_bytes, header);
  if (!status.ok()) return status;

  const std::byte* const section = begin + sizeof header_bytes + header_bytes;
  const std::uint64_t section_bytes = bytes - sizeof header_bytes - header_bytes;
  for (HeaderEntry& entry : header.entries) {
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

  auto& entries = header.entries;
  std::stable_sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t covered = 0;
  for (const HeaderEntry& entry : entries) {
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

  for (HeaderEntry& entry : entries) {
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
  out.metadata_ = std::move(header.metadata);
  out.file_bytes_ = static_cast<std::int64_t>(bytes);
  return {};
} catch (const std::exception& error) {
  out = SafetensorsFile();
  return file_error(Code::bad_file, kOperation, kRule03, "header", "%.120s", error.what());
}

}  // namespace keysieve::io

#include "io/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "io/file_error.hpp"

namespace keysieve::io {
namespace {

Status cannot_write(const std::string& path) {
  return file_error(Code::io_error, "safetensors", "SFT-01 the file can be written", "path", "'%.120s': %s",
                    path.c_str(), std::strerror(errno));
}

// Links are followed.
std::string target_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target.string();
}

// A pipe, a device or a folder.
bool is_special(const std::string& path) {
  struct stat there;
  return ::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode);
}

std::string temporary_name(const std::string& path) {
  return path + "." + std::to_string(::getpid()) + ".part";
}

int create(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(target_of(path)) {
  if (is_special(path_)) {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary_ = temporary_name(path_);
    file_ = create(temporary_);
  }
  failed_ = file_ < 0;
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0 && !failed_) {
    const ssize_t written = ::write(file_, next, std::min<std::size_t>(bytes, 1 << 30));
    if (written < 0 && errno == EINTR) continue;
    failed_ = written <= 0;
    if (!failed_) next += written, bytes -= static_cast<std::size_t>(written);
  }
}

Status OutputFile::commit() {
  if (!failed_ && !temporary_.empty())
    failed_ = ::fsync(file_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0;
  if (failed_) return cannot_write(path_);
  ::close(file_);
  file_ = -1;
  return {};
}

Status judge_output(const std::string& path) {
  const std::string target = target_of(path);
  if (is_special(target)) {
    if (std::filesystem::is_directory(target)) {
      errno = EISDIR;
      return cannot_write(target);
    }
    return ::access(target.c_str(), W_OK) == 0 ? Status{} : cannot_write(target);
  }
  const std::string temporary = temporary_name(target);
  const int file = create(temporary);
  if (file < 0) return cannot_write(target);
  ::close(file);
  ::unlink(temporary.c_str());
  return {};
}

Status write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  return file.commit();
}

}  // namespace keysieve::io

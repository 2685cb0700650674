// output_file: a file that is written whole or not at all. Internal to src/io, but for the two functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "keysieve/status.hpp"

namespace keysieve::io {

// A temporary file beside `path`; commit() renames it over `path`, any other end removes it. Links are followed; a
// pipe or a device is written to as it is, since another file in its place would not be what its readers wait for.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();
  void write(const void* data, std::size_t bytes);
  [[nodiscard]] Status commit();

 private:
  std::string path_;
  std::string temporary_;  // empty: `path_` is written to as it is
  int file_ = -1;
  bool failed_ = false;
};

// Whether `path` can be written to, asked before the work whose results it shall hold. Nothing is left behind; a full
// disk is noticed only when it is written to. Pipes are not opened: that would wait for a reader.
[[nodiscard]] Status judge_output(const std::string& path);

// Writes text to `path` as OutputFile does.
[[nodiscard]] Status write_text_file(const std::string& path, std::string_view text);

}  // namespace keysieve::io

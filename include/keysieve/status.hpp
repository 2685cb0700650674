// status: what every call returns. Trivially copyable; making one allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace [[gnu::visibility("default")]] keysieve {

enum class Code : std::int32_t {
  ok = 0,
  invalid_argument = 1,     // an argument breaks a rule of docs/contracts/<operation>.md
  unsupported = 2,          // legal, but no enabled kernel takes it; `seen` names the refusals
  workspace_too_small = 3,  // nothing was written
  bad_file = 4,             // a file is truncated, malformed or contradicts itself
  io_error = 5,             // the operating system refused a read or a write
  device_error = 6,         // a device or its driver refused a launch
  out_of_memory = 7,        // an allocator had nothing to give
  internal_error = 8,       // a callback threw, or a defect of keysieve
};

struct Status {
  static constexpr int kSeenCapacity = 256;

  Code code = Code::ok;
  const char* operation = "";      // "topk"
  const char* rule = "";           // "TOP-02 scores is [rows, width]": the id, then what was expected
  const char* argument = "";       // "scores"
  char seen[kSeenCapacity] = {0};  // "[3, 7] f32"

  [[nodiscard]] constexpr bool ok() const { return code == Code::ok; }

  // "topk: scores: expected scores is [rows, width] (TOP-02), got [3, 7] f32". Allocates.
  [[nodiscard]] std::string message() const;
  // The same, cut to `capacity` and ended with 0, like snprintf; returns the length of the whole. Allocates
  // nothing.
  std::size_t message(char* text, std::size_t capacity) const;
};

// One sentence for each code, for callers that have only the number.
[[nodiscard]] const char* sentence(Code code);

}  // namespace keysieve

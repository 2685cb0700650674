#include "keysieve/status.hpp"

#include <string_view>

namespace keysieve {

std::size_t Status::message(char* text, std::size_t capacity) const {
  std::size_t length = 0;
  const auto append = [&](std::string_view words) {
    for (const char letter : words) {
      if (length + 1 < capacity) text[length] = letter;
      ++length;
    }
  };
  if (ok()) {
    append("ok");
  } else {
    const std::string_view broken = rule;
    const std::size_t space = broken.find(' ');
    append(operation);
    append(": ");
    if (argument[0] != 0) {
      append(argument);
      append(": ");
    }
    if (space != std::string_view::npos) {
      append("expected ");
      append(broken.substr(space + 1));
      append(" (");
      append(broken.substr(0, space));
      append(")");
    } else {
      append(sentence(code));
    }
    if (seen[0] != 0) {
      append(", got ");
      append(seen);
    }
  }
  if (capacity > 0) text[length < capacity ? length : capacity - 1] = 0;
  return length;
}

std::string Status::message() const {
  std::string text(message(nullptr, 0), ' ');
  message(text.data(), text.size() + 1);
  return text;
}

const char* sentence(Code code) {
  switch (code) {
    case Code::ok:
      return "the call succeeded";
    case Code::invalid_argument:
      return "an argument breaks a rule of the operation";
    case Code::unsupported:
      return "no enabled kernel takes these arguments";
    case Code::workspace_too_small:
      return "the workspace is smaller than the plan needs";
    case Code::bad_file:
      return "the file is truncated, malformed or contradicts itself";
    case Code::io_error:
      return "the operating system refused a read or a write";
    case Code::device_error:
      return "the device or its driver refused the work";
    case Code::out_of_memory:
      return "an allocator had nothing to give";
    case Code::internal_error:
      return "a callback threw, or keysieve has a defect";
  }
  return "an unknown code";
}

}  // namespace keysieve

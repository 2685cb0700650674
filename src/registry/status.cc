#include "keysieve/status.hpp"

#include <cstring>

namespace keysieve {

std::string Status::message() const {
  if (ok()) return "ok";
  std::string text = std::string(operation) + ": ";
  if (argument[0] != 0) text += std::string(argument) + ": ";
  const char* space = std::strchr(rule, ' ');
  if (space != nullptr)
    text += "expected " + std::string(space + 1) + " (" + std::string(rule, space) + ")";
  else
    text += sentence(code);
  if (seen[0] != 0) text += ", got " + std::string(seen);
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
  }
  return "an unknown code";
}

}  // namespace keysieve

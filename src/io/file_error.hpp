// Status values of the file readers: the rule names what was expected, `seen` carries tensor and value.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "keysieve/status.hpp"

namespace keysieve::io {

// seen keeps the text before its own last byte, so a long tensor name shortens the message and nothing else.
[[gnu::format(printf, 5, 6)]] inline Status file_error(Code code, const char* operation, const char* rule,
                                                       const char* argument, const char* format, ...) {
  Status status;
  status.code = code;
  status.operation = operation;
  status.rule = rule;
  status.argument = argument;
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(status.seen, sizeof status.seen, format, values);
  va_end(values);
  return status;
}

}  // namespace keysieve::io

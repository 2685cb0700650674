// text: numbers as people read them, and a table with columns as wide as they must be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keysieve::cli {

[[nodiscard]] std::string grouped(std::int64_t value);                   // 1,048,576
[[nodiscard]] std::string duration(double seconds);                      // 12.3 us
[[nodiscard]] std::string bytes(double count);                           // 1.25 MB
[[nodiscard]] std::string percent(double share);                         // 12.3 %
[[nodiscard]] std::string plural(std::int64_t count, const char* noun);  // 1 row, 8 rows
[[nodiscard]] std::string printed(const char* format, ...) __attribute__((format(printf, 1, 2)));

class Table {
 public:
  // `left` columns are aligned left, the others right.
  Table(std::vector<std::string> header, std::vector<bool> left) : left_(std::move(left)) {
    if (!header.empty()) add(std::move(header));
  }
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // The last cell of a row with fewer cells than columns runs on over the columns behind it.
  [[nodiscard]] std::string text(const std::string& indent) const;

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace keysieve::cli

#include "text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace keysieve::cli {

std::string printed(const char* format, ...) {
  char text[512];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

namespace {

struct Unit {
  double size;
  const char* name;
};

// Three digits that count, in the greatest unit that leaves at least one before the point.
std::string in_unit(double value, const std::vector<Unit>& units) {
  const auto fits =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return std::fabs(value) >= u.size; });
  const Unit& unit = fits == units.end() ? units.back() : *fits;
  const double scaled = value / unit.size;
  const int digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return printed("%.*f %s", digits, scaled, unit.name);
}

}  // namespace

std::string duration(double seconds) { return in_unit(seconds, {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}}); }
std::string bytes(double count) { return in_unit(count, {{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}}); }
std::string percent(double share) { return printed("%.*f %%", share < 0.9995 ? 1 : 0, 100 * share); }
std::string plural(std::int64_t count, const char* noun) {
  return grouped(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Table::text(const std::string& indent) const {
  const std::size_t columns = left_.size();
  std::vector<std::size_t> width(columns, 0);
  for (const auto& row : rows_) {
    // The last cell of a short row runs on and widens nothing.
    const std::size_t counted = row.size() == columns ? columns : row.size() - 1;
    for (std::size_t c = 0; c < counted; ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line = indent;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string pad(row[c].size() < width[c] ? width[c] - row[c].size() : 0, ' ');
      line += (c > 0 ? "  " : "") + (left_[c] ? row[c] + pad : pad + row[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace keysieve::cli

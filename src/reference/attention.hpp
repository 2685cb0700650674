// attention: what the three attention operations share by definition, in float64: a softmax-weighted mean
// over a list of keys, its LSE, the sink, and the forms in which an LSE is written.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "keysieve/lse.hpp"
#include "reference/access.hpp"

namespace keysieve::reference {

inline constexpr double kNoKeys = -std::numeric_limits<double>::infinity();

struct Attended {
  std::vector<double> mean;
  double lse = kNoKeys;
};

// score[i] belongs to the key whose values value(i, column) gives.
template <class Value>
Attended attend(const std::vector<double>& score, std::int64_t columns, Value&& value) {
  Attended result{std::vector<double>(static_cast<std::size_t>(columns), 0.0), kNoKeys};
  double largest = kNoKeys;
  for (const double s : score) {
    if (s > largest) largest = s;
    if (std::isnan(s)) {  // wherever it stands in the list
      largest = s;
      break;
    }
  }
  if (largest == kNoKeys) return result;
  double sum = 0;
  std::vector<double> weight(score.size());
  for (std::size_t i = 0; i < score.size(); ++i) sum += weight[i] = std::exp(score[i] - largest);
  for (std::int64_t c = 0; c < columns; ++c) {
    double& mean = result.mean[static_cast<std::size_t>(c)];
    for (std::size_t i = 0; i < score.size(); ++i) mean += weight[i] / sum * value(i, c);
  }
  result.lse = largest + std::log(sum);
  return result;
}

// How much of the mean is left when `sink` joins the softmax as a key with value 0.
inline double sink_share(double lse, double sink) { return 1.0 / (1.0 + std::exp(sink - lse)); }

inline float written_lse(double lse, const LseForm& form, double sink) {
  if (form.with_sink && lse != kNoKeys)
    lse = std::log1p(std::exp(-std::abs(lse - sink))) + std::fmax(lse, sink);
  if (form.with_sink && lse == kNoKeys) lse = sink;
  if (lse == kNoKeys && form.empty == LseEmpty::plus_infinity) return -kMinusInfinity;
  return static_cast<float>(form.base == LseBase::two ? lse / std::log(2.0) : lse);
}

}  // namespace keysieve::reference

// mqa_logits, as defined: exact dot products, the sum over heads in double, one rounding to f32 at the end.
// bf16 products and their sum are taken in double. e4m3fn codes are whole numbers of 2^-9, so their products
// are summed as integers in units of 2^-18: at most 128 * (448 * 512)^2 < 2^43.
#include "keysieve/mqa_logits.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "reference/access.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

// In units of 2^-9. The two NaN codes are the caller's business.
constexpr std::int64_t e4m3_units(int code) {
  const int exponent = (code >> 3) & 15;
  const std::int64_t fraction = code & 7;
  const std::int64_t magnitude = exponent == 0 ? fraction : (8 + fraction) << (exponent - 1);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}
constexpr bool e4m3_is_nan(int code) { return (code & 0x7f) == 0x7f; }

// Where one key lies.
struct Key {
  const void* elements = nullptr;  // null: no key stands behind this column
  float scale = 1;
};

Key find_key(const MqaLogitsArgs& a, std::int64_t row, std::int64_t column) {
  if (a.keys.given()) {
    const std::int64_t offset = column * a.keys.stride[0] * dtype_bytes(a.keys.dtype);
    return {static_cast<const char*>(a.keys.data) + offset,
            a.key_scales.given() ? at<float>(a.key_scales, column) : 1.0F};
  }
  const std::int64_t rows_per_request = a.q.shape[0] / a.page_table.shape[0];
  const std::int64_t table_column = column / a.page_tokens;
  const std::int64_t token = column % a.page_tokens;
  if (table_column >= a.page_table.shape[1]) return {};
  const std::int64_t page = at<std::int32_t>(a.page_table, row / rows_per_request, table_column);
  if (page < 0 || page >= a.cache.shape[0]) return {};
  const char* start =
      static_cast<const char*>(a.cache.data) + page * a.cache.stride[0] * dtype_bytes(a.cache.dtype);
  if (a.cache.dtype == DType::bf16) return {start + token * a.cache.stride[1] * 2, 1.0F};
  const std::int64_t dim = a.q.shape[2];
  Key key{start + token * dim, 0};
  std::memcpy(&key.scale, start + a.page_tokens * dim + token * 4, sizeof(float));
  return key;
}

double dot(const MqaLogitsArgs& a, std::int64_t row, std::int64_t head, const Key& key) {
  const std::int64_t dim = a.q.shape[2];
  if (a.q.dtype == DType::bf16) {
    const auto* k = static_cast<const std::uint16_t*>(key.elements);
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d)
      sum += static_cast<double>(real_at(a.q, row, head, d)) * static_cast<double>(bf16_to_float(k[d]));
    return sum;
  }
  const auto* k = static_cast<const std::uint8_t*>(key.elements);
  std::int64_t units = 0;
  bool nan = false;
  for (std::int64_t d = 0; d < dim; ++d) {
    const std::uint8_t code = at<std::uint8_t>(a.q, row, head, d);
    nan = nan || e4m3_is_nan(code) || e4m3_is_nan(k[d]);
    units += e4m3_units(code) * e4m3_units(k[d]);
  }
  return nan ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(static_cast<double>(units), -18);
}

float score(const MqaLogitsArgs& a, std::int64_t row, std::int64_t column) {
  const Key key = find_key(a, row, column);
  if (key.elements == nullptr) return kMinusInfinity;
  double sum = 0;
  for (std::int64_t head = 0; head < a.q.shape[1]; ++head) {
    const double product = dot(a, row, head, key);
    const double positive = product < 0 ? 0 : product;  // MQA-32: NaN stays
    sum += static_cast<double>(real_at(a.weights, row, head)) * positive;
  }
  return static_cast<float>(sum * static_cast<double>(key.scale));
}

Status run(const MqaLogitsArgs& a, const Launch&) {
  const std::int64_t width = a.scores.shape[1];
  for (std::int64_t row = 0; row < a.scores.shape[0]; ++row) {
    const Range visible = visible_columns(a.bounds, row, width);
    for (std::int64_t column = visible.start; column < visible.end; ++column)
      set_real(a.scores, score(a, row, column), row, column);
    if (a.tail == Tail::untouched) continue;
    for (std::int64_t column = 0; column < visible.start; ++column)
      set_real(a.scores, kMinusInfinity, row, column);
    for (std::int64_t column = visible.end; column < width; ++column)
      set_real(a.scores, kMinusInfinity, row, column);
  }
  return {};
}

}  // namespace

extern const Kernel<MqaLogitsArgs> kMqaLogitsKernels[] = {
    {"reference.mqa_logits", [](const MqaLogitsArgs&) -> const char* { return nullptr; },
     [](const MqaLogitsArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

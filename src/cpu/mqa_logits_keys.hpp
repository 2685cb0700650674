// mqa_logits_keys: which rows are scored together and where the keys of a tile of columns lie. Plain code,
// shared by every instruction set of the tile kernel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "contract/mutant.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/mqa_logits.hpp"

namespace keysieve::cpu {

// Rows that are scored together, so that each key is decoded once for all of them. Eight takes every draft
// row of a request, makes decoding under 2 % of a prefill's time, and keeps 64 widened heads of each in 256
// KiB of L2.
inline constexpr std::int64_t kGroupRows = 8;

// Columns of one task: 0.2 ms of work per row at 64 heads, so one long row feeds every thread, while widening
// the queries again for each task costs under 1 %. A multiple of every instruction set's tile.
inline constexpr std::int64_t kChunkColumns = 960;

struct RowGroup {
  std::int64_t first;
  std::int64_t count;
  std::int64_t request;  // of the page table; 0 without one
};

struct RowGroups {
  std::int64_t rows_per_request;  // without a page table all rows share the keys
  std::int64_t per_request;
  std::int64_t total;

  explicit RowGroups(const MqaLogitsArgs& a) {
    const std::int64_t rows = a.q.shape[0], requests = a.page_table.given() ? a.page_table.shape[0] : 1;
    rows_per_request = rows == 0 ? 1 : rows / requests;
    per_request = (rows_per_request + kGroupRows - 1) / kGroupRows;
    total = rows == 0 ? 0 : requests * per_request;
  }
  [[nodiscard]] RowGroup operator[](std::int64_t group) const {
    const std::int64_t request = group / per_request, first = group % per_request * kGroupRows;
    return {request * rows_per_request + first, std::min(kGroupRows, rows_per_request - first), request};
  }
};

// What each row of the group sees of `columns`; {0, 0} where nothing. Returns the hull of it all.
inline RowRange visible_parts(const MqaLogitsArgs& a, const RowGroup& group, RowRange columns,
                              RowRange* rows) {
  RowRange all{columns.end, columns.start};
  for (std::int64_t i = 0; i < group.count; ++i) {
    RowRange r = row_range(a.bounds, group.first + i, a.scores.shape[1]);
    if (mutant("mqa_logits.draft_sees_later"))
      r.end = row_range(a.bounds, group.first + group.count - 1, a.scores.shape[1]).end;
    r = {std::max(r.start, columns.start), std::min(r.end, columns.end)};
    rows[i] = r.size() > 0 ? r : RowRange{0, 0};
    if (r.size() > 0) all = {std::min(all.start, r.start), std::max(all.end, r.end)};
  }
  return all.size() > 0 ? all : RowRange{0, 0};
}

// The columns that tasks of the group must look at.
inline RowRange owned_columns(const MqaLogitsArgs& a, const RowGroup& group) {
  const RowRange all{0, a.scores.shape[1]};
  RowRange rows[kGroupRows];
  return a.tail == Tail::neg_inf ? all : visible_parts(a, group, all, rows);
}

inline float load_weight(const Tensor& weights, std::int64_t row, std::int64_t head) {
  const std::int64_t at = row * weights.stride[0] + head * weights.stride[1];
  if (weights.dtype == DType::f32) return static_cast<const float*>(weights.data)[at];
  return std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(weights.data)[at]} << 16);
}

// Keys of consecutive columns. Lanes past the last column, and columns without a key (MQA-35), read zeros.
struct TileKeys {
  static constexpr int kMost = 48;
  const std::uint8_t* codes[kMost];
  alignas(64) float scale[kMost];
  bool hidden[kMost];
  bool any_hidden;
};

alignas(64) inline constexpr std::uint8_t kZeroKey[256] = {};

// The keys of one request as a sequence of pages; gathered keys are a single page.
class KeyPages {
 public:
  KeyPages(const MqaLogitsArgs& a, std::int64_t request) : args_(a), request_(request) {
    const std::int64_t element = dtype_bytes(a.q.dtype), key_bytes = a.q.shape[2] * element;
    fp8_ = a.q.dtype == DType::u8;
    if (a.keys.given()) {
      page_tokens_ = a.keys.shape[0];
      token_bytes_ = a.keys.stride[0] * element;
      scale_bytes_ = fp8_ ? a.key_scales.stride[0] * 4 : 0;
      return;
    }
    page_tokens_ = a.page_tokens;
    page_bytes_ =
        mutant("mqa_logits.page_stride") ? page_tokens_ * (key_bytes + 4) : a.cache.stride[0] * element;
    token_bytes_ = fp8_ ? key_bytes : a.cache.stride[1] * element;
    scale_bytes_ = mutant("mqa_logits.scale_per_token") ? key_bytes + 4 : 4;
  }

  // Finds keys [first, first + count) and fills up to `lanes` with zero keys. MQA-39: pages that only later
  // columns need are not looked up.
  void find(std::int64_t first, int count, int lanes, TileKeys& tile) const {
    tile.any_hidden = false;
    std::int64_t column = first / page_tokens_, token = first % page_tokens_;
    Page page = page_at(column);
    for (int i = 0; i < lanes; ++i, ++token) {
      tile.codes[i] = kZeroKey;
      tile.scale[i] = 1;
      tile.hidden[i] = false;
      if (i >= count) continue;
      if (token == page_tokens_) page = page_at(++column), token = 0;
      if (page.codes == nullptr) {
        tile.hidden[i] = tile.any_hidden = true;
        continue;
      }
      tile.codes[i] = page.codes + token * token_bytes_;
      // A page stride need not be a multiple of four, so neither is the address of a scale.
      if (fp8_ && !mutant("mqa_logits.no_key_scale"))
        std::memcpy(&tile.scale[i], page.scales + token * scale_bytes_, sizeof(float));
    }
  }

 private:
  struct Page {
    const std::uint8_t* codes = nullptr;
    const std::uint8_t* scales = nullptr;
  };

  [[nodiscard]] Page page_at(std::int64_t column) const {
    if (args_.keys.given())
      return {static_cast<const std::uint8_t*>(args_.keys.data),
              static_cast<const std::uint8_t*>(args_.key_scales.data)};
    if (column >= args_.page_table.shape[1]) return {};
    const std::int64_t id = load_int(args_.page_table, request_, column);
    if (id < 0 || id >= args_.cache.shape[0]) return {};
    const auto* codes = static_cast<const std::uint8_t*>(args_.cache.data) + id * page_bytes_;
    // MQA-33: scales lie behind the codes of the whole page.
    return {codes, codes + page_tokens_ * token_bytes_};
  }

  const MqaLogitsArgs& args_;
  std::int64_t request_;
  std::int64_t page_tokens_, page_bytes_ = 0, token_bytes_, scale_bytes_;
  bool fp8_;
};

// MQA-34: bf16 is the f32 result rounded once, to nearest even.
inline std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value)
    return static_cast<std::uint16_t>(bits >> 16 | 0x40);  // rounding could make it infinite
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline void write_scores(const MqaLogitsArgs& a, std::int64_t row, RowRange columns, const float* scores) {
  const std::int64_t at = row * a.scores.stride[0] + columns.start;
  if (a.scores.dtype == DType::f32)
    std::copy_n(scores, columns.size(), static_cast<float*>(a.scores.data) + at);
  else
    std::transform(scores, scores + columns.size(), static_cast<std::uint16_t*>(a.scores.data) + at,
                   round_to_bf16);
}

// MQA-38: -inf to what lies in `columns` but outside each row's own range.
inline void fill_tail(const MqaLogitsArgs& a, const RowGroup& group, RowRange columns) {
  const auto fill = [&](std::int64_t row, std::int64_t start, std::int64_t end) {
    if (start >= end) return;
    const std::int64_t at = row * a.scores.stride[0];
    if (a.scores.dtype == DType::f32)
      std::fill(static_cast<float*>(a.scores.data) + at + start,
                static_cast<float*>(a.scores.data) + at + end, -std::numeric_limits<float>::infinity());
    else
      std::fill(static_cast<std::uint16_t*>(a.scores.data) + at + start,
                static_cast<std::uint16_t*>(a.scores.data) + at + end, std::uint16_t{0xff80});
  };
  for (std::int64_t row = group.first; row < group.first + group.count; ++row) {
    const RowRange visible = row_range(a.bounds, row, a.scores.shape[1]);
    fill(row, columns.start, std::min(columns.end, visible.start));
    fill(row, std::max(columns.start, visible.end), columns.end);
  }
}

}  // namespace keysieve::cpu

// mask_rows: which query row of which request a thread block works on, and which keys its bits stand for.
// Everything comes from device memory and is checked there.
#pragma once

#include "gpu/row_range.hpp"
#include "keysieve/packed_mask.hpp"

namespace keysieve::gpu {

struct MaskRequests {
  IntList q_start;
  IntList key_first;  // data is null: 0
  IntList key_count;
  std::int64_t requests, rows, words;
  std::int64_t tokens;
};

template <class Args>
MaskRequests mask_requests(const Args& a, std::int64_t tokens) {
  MaskRequests m{};
  m.q_start = int_list(a.q_start);
  if (a.key_first.given()) m.key_first = int_list(a.key_first);
  m.key_count = int_list(a.key_count);
  m.requests = a.mask.shape[0];
  m.rows = a.mask.shape[1];
  m.words = a.mask.shape[2];
  m.tokens = tokens;
  return m;
}

#if defined(__CUDACC__) || defined(__HIPCC__)

// A request's first token; clamped so that adding or taking a row does not wrap.
__device__ inline std::int64_t first_token(const MaskRequests& m, std::int64_t request) {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  return clamp_int(load_int(m.q_start, request * m.q_start.stride), -kFar, kFar);
}

// The token of a request's row, or -1: the row is padding.
__device__ inline std::int64_t row_token(const MaskRequests& m, std::int64_t request, std::int64_t row) {
  const std::int64_t token = first_token(m, request) + row;
  return token >= 0 && token < first_token(m, request + 1) && token < m.tokens ? token : -1;
}

struct KeyRange {
  std::int64_t first;
  std::int64_t count;
};

// Keys are 31-bit numbers, so a first key far outside them means the same wherever it is, and sums do not
// wrap.
__device__ inline KeyRange key_range(const MaskRequests& m, std::int64_t request) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  const std::int64_t first =
      m.key_first.data == nullptr ? 0 : load_int(m.key_first, request * m.key_first.stride);
  const std::int64_t count = load_int(m.key_count, request * m.key_count.stride);
  return {clamp_int(first, -kFar, kFar), clamp_int(count, 0, m.words * 32)};
}

#endif

}  // namespace keysieve::gpu

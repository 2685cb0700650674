// cpu.prepare_queries.heads: a task a row; each head stays in 512 bytes of stack from load to codes.
#include <bit>
#include <cstdint>

#include "contract/mutant.hpp"
#include "cpu/denormals.hpp"
#include "cpu/parallel.hpp"
#include "cpu/quantise_key.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/prepare_queries.hpp"

namespace keysieve::cpu {
namespace {

constexpr std::int64_t kRotated = 64, kPairs = 32;

// To the nearest bf16, ties to even; NaN stays NaN.
float rounded_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return std::bit_cast<float>((bits | 0x400000u) & 0xffff0000u);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

void round_to_bf16(float* x, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) x[d] = rounded_to_bf16(x[d]);
}

// `angles`: 32 cosines, then 32 sines.
void rotate(float* x, const float* angles, bool halves) {
  const std::int64_t step = halves ? 1 : 2, other = halves ? kPairs : 1;
  for (std::int64_t i = 0; i < kPairs; ++i) {
    float* pair = x + i * step;
    const float a = pair[0], b = pair[other], cosine = angles[i], sine = angles[i + kPairs];
    const float left = a * cosine, right = b * sine, below = b * cosine, above = a * sine;
    pair[0] = left - right;
    pair[other] = below + above;
  }
}

void transform(float* x, std::int64_t dim) {
  for (std::int64_t distance = 1; distance < dim; distance *= 2)
    for (std::int64_t from = 0; from < dim; from += 2 * distance)
      for (std::int64_t d = from; d < from + distance; ++d) {
        const float a = x[d], b = x[d + distance];
        x[d] = a + b;
        x[d + distance] = a - b;
      }
  for (std::int64_t d = 0; d < dim; ++d) x[d] *= 0.08838834764831845f;  // 128^-0.5
}

float weight_at(const Tensor& weights, std::int64_t row, std::int64_t head) {
  const std::int64_t at = row * weights.stride[0] + head * weights.stride[1];
  if (weights.dtype == DType::f32) return static_cast<const float*>(weights.data)[at];
  return std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(weights.data)[at]} << 16);
}

void prepare_row(const PrepareQueriesArgs& a, std::int64_t row) {
  const std::int64_t heads = a.q.shape[1], dim = a.q.shape[2];
  const float* angles = nullptr;
  if (a.cos_sin.given()) {
    const std::int64_t position = load_int(a.positions, row);  // PRQ-20: outside the table: not rotated
    if (position >= 0 && position < a.cos_sin.shape[0])
      angles = static_cast<const float*>(a.cos_sin.data) + position * a.cos_sin.stride[0];
  }
  const bool first = (a.place == RopePlace::first) != mutant("prepare_queries.place");
  const bool halves = (a.pairing == RopePairing::halves) != mutant("prepare_queries.pairing");
  for (std::int64_t head = 0; head < heads; ++head) {
    float x[kMostKeyDim];
    load_floats(a.q, row * a.q.stride[0] + head * a.q.stride[1], dim, x);
    if (angles != nullptr) rotate(first ? x : x + dim - kRotated, angles, halves);
    round_to_bf16(x, dim);
    if (a.hadamard) {
      transform(x, dim);
      if (!mutant("prepare_queries.rounding")) round_to_bf16(x, dim);
    }
    float weight = weight_at(a.weights, row, head);
    auto* codes =
        static_cast<unsigned char*>(a.codes.data) + row * a.codes.stride[0] + head * a.codes.stride[1];
    if (a.format == KeyFormat::fp8) {
      const float floor = a.tiny_floor && !mutant("prepare_queries.floor") ? 1e-10f : 1e-4f;
      const float scale = quantise_fp8(x, dim, floor, a.scale == KeyScale::ue8m0, a.reciprocal, codes);
      if (!mutant("prepare_queries.scale")) weight *= scale;
    } else {
      quantise_mxfp4(
          x, dim, a.ties_down, codes,
          static_cast<unsigned char*>(a.scales.data) + row * a.scales.stride[0] + head * a.scales.stride[1]);
    }
    weight *= a.softmax_scale;
    weight *= a.head_scale;
    static_cast<float*>(a.folded.data)[row * a.folded.stride[0] + head * a.folded.stride[1]] = weight;
  }
}

const char* refuses(const PrepareQueriesArgs&) { return nullptr; }

std::size_t workspace_bytes(const PrepareQueriesArgs&, std::int32_t) { return 0; }

Status run(const PrepareQueriesArgs& a, const Launch& launch) {
  for_each_task(launch, a.q.shape[0], [&](std::int64_t row, int) {
    const KeepDenormals keep_denormals;
    prepare_row(a, row);
  });
  return {};
}

}  // namespace

extern const Kernel<PrepareQueriesArgs> kPrepareQueriesKernels[] = {
    {"cpu.prepare_queries.heads", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu

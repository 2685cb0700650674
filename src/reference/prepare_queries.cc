// prepare_queries, as defined: head by head, step by step.
#include "keysieve/prepare_queries.hpp"

#include "reference/access.hpp"
#include "reference/quantise.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

void round_to_bf16(std::vector<float>& x) {
  for (float& value : x) value = bf16_to_float(float_to_bf16(value));
}

void rotate(const PrepareQueriesArgs& a, std::int64_t row, std::vector<float>& x) {
  const std::int64_t position = integer_at(a.positions, row);
  if (position < 0 || position >= a.cos_sin.shape[0]) return;
  const std::size_t first = a.place == RopePlace::first ? 0 : x.size() - 64;
  for (std::size_t i = 0; i < 32; ++i) {
    float& u = x[first + (a.pairing == RopePairing::halves ? i : 2 * i)];
    float& v = x[first + (a.pairing == RopePairing::halves ? i + 32 : 2 * i + 1)];
    const float cosine = at<float>(a.cos_sin, position, i), sine = at<float>(a.cos_sin, position, i + 32);
    const float left = u * cosine, right = v * sine, below = v * cosine, above = u * sine;
    u = left - right;
    v = below + above;
  }
}

void transform(std::vector<float>& x) {
  for (std::size_t distance = 1; distance < x.size(); distance *= 2) {
    std::vector<float> next(x.size());
    for (std::size_t d = 0; d < x.size(); ++d)
      next[d] = (d & distance) == 0 ? x[d] + x[d + distance] : x[d - distance] - x[d];
    x = next;
  }
  for (float& value : x) value *= 0.08838834764831845F;
}

void prepare(const PrepareQueriesArgs& a, std::int64_t row, std::int64_t head) {
  std::vector<float> x;
  for (std::int64_t d = 0; d < a.q.shape[2]; ++d) x.push_back(real_at(a.q, row, head, d));
  if (a.cos_sin.given()) rotate(a, row, x);
  round_to_bf16(x);
  if (a.hadamard) {
    transform(x);
    round_to_bf16(x);
  }
  float weight = real_at(a.weights, row, head);
  if (a.format == KeyFormat::fp8) {
    const Fp8Key key =
        quantise_fp8(x, a.tiny_floor ? 1e-10F : 1e-4F, a.scale == KeyScale::ue8m0, a.reciprocal);
    for (std::size_t d = 0; d < x.size(); ++d)
      at<unsigned char>(a.codes, row, head, d) = static_cast<unsigned char>(key.codes[d]);
    weight *= key.scale;
  } else {
    const Mxfp4Key key = quantise_mxfp4(x, a.ties_down);
    for (std::size_t d = 0; d < x.size(); d += 2)
      at<unsigned char>(a.codes, row, head, d / 2) =
          static_cast<unsigned char>(key.codes[d] | key.codes[d + 1] << 4);
    for (std::size_t g = 0; g < key.scales.size(); ++g)
      at<unsigned char>(a.scales, row, head, g) = static_cast<unsigned char>(key.scales[g]);
  }
  weight *= a.softmax_scale;
  weight *= a.head_scale;
  set_real(a.folded, weight, row, head);
}

Status run(const PrepareQueriesArgs& a, const Launch&) {
  for (std::int64_t row = 0; row < a.q.shape[0]; ++row)
    for (std::int64_t head = 0; head < a.q.shape[1]; ++head) prepare(a, row, head);
  return {};
}

}  // namespace

extern const Kernel<PrepareQueriesArgs> kPrepareQueriesKernels[] = {
    {"reference.prepare_queries", [](const PrepareQueriesArgs&) -> const char* { return nullptr; },
     [](const PrepareQueriesArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

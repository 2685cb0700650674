// prepare_queries against its definition, to the byte.
#include "keysieve/prepare_queries.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "support/parity.hpp"

namespace keysieve::test {
namespace {

struct PrepareCall {
  TensorBox q, weights, cos_sin, positions, codes, scales, folded;
  PrepareQueriesArgs extra;
  bool rotates = true;

  PrepareQueriesArgs args() {
    PrepareQueriesArgs a = extra;
    a.q = q.tensor();
    a.weights = weights.tensor();
    if (rotates) {
      a.cos_sin = cos_sin.tensor();
      a.positions = positions.tensor();
    }
    a.codes = codes.tensor();
    if (a.format == KeyFormat::mxfp4) a.scales = scales.tensor();
    a.folded = folded.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&q, &weights, &cos_sin, &positions, &codes, &scales, &folded}; }
};

// Boxes of three axes are filled through their bytes' order: element (row, head * dim + d).
template <class Value>
PrepareCall make_call(const PrepareQueriesArgs& extra, DType dtype, std::int64_t heads, std::int64_t dim,
                      bool rotates, Value&& value) {
  constexpr std::int64_t kRows = 5;
  PrepareCall c;
  c.extra = extra;
  c.rotates = rotates;
  const bool fp8 = extra.format == KeyFormat::fp8;
  c.q = TensorBox(dtype, {kRows, heads, dim}, 8);
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < dim; ++d) c.q.set(value(r, h * dim + d), r, h, d);
  c.weights = TensorBox(dtype, {kRows, heads}, 3, 2);
  c.weights.fill([](auto i, auto j) { return static_cast<float>((i * 7 + j * 3) % 11) * 0.37f - 1.f; });
  c.cos_sin = TensorBox(DType::f32, {40, 64}, 1);
  c.cos_sin.fill([](auto i, auto j) {
    const double angle = static_cast<double>(i) / std::pow(10000.0, static_cast<double>(j % 32) / 32.0);
    return static_cast<float>(j < 32 ? std::cos(angle) : std::sin(angle));
  });
  c.positions = TensorBox::of(
      DType::i64, std::vector<std::int64_t>{0, 39, -1, std::numeric_limits<std::int64_t>::max(), 17});
  c.codes = TensorBox(DType::u8, {kRows, heads, fp8 ? dim : dim / 2}, 5);
  c.scales = TensorBox(DType::u8, {kRows, heads, dim / 32}, 1);
  c.folded = TensorBox(DType::f32, {kRows, heads}, 2, 2);
  return c;
}

std::vector<PrepareQueriesArgs> variants(std::int64_t dim) {
  std::vector<PrepareQueriesArgs> all;
  for (const bool fp8 : {true, false})
    for (int bits = 0; bits < 32; ++bits) {
      PrepareQueriesArgs a;
      a.format = fp8 ? KeyFormat::fp8 : KeyFormat::mxfp4;
      a.pairing = (bits & 1) != 0 ? RopePairing::adjacent : RopePairing::halves;
      a.place = (bits & 2) != 0 ? RopePlace::last : RopePlace::first;
      a.hadamard = dim == 128 && (bits & 4) != 0;
      a.scale = fp8 && (bits & 8) != 0 ? KeyScale::ue8m0 : KeyScale::exact;
      a.reciprocal = fp8 && (bits & 16) != 0;
      a.ties_down = !fp8 && (bits & 8) != 0;
      a.softmax_scale = 0.08838835f;
      a.head_scale = 0.1767767f;
      all.push_back(a);
    }
  return all;
}

// PRQ-20: two of the five positions are not in the table.
TEST(PrepareQueries, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t dim : {32, 64, 128})
      for (const std::int64_t heads : {1, 3, 64})
        for (const PrepareQueriesArgs& extra : variants(dim)) {
          if (heads == 64 && (dim != 128 || !extra.hadamard || extra.pairing == RopePairing::adjacent))
            continue;
          std::mt19937_64 random(static_cast<std::uint64_t>(dim + heads));
          std::normal_distribution<float> normal;
          std::vector<float> values(static_cast<std::size_t>(5 * heads * dim));
          for (float& x : values) x = normal(random) * std::exp2(static_cast<float>(random() % 8) - 4.f);
          expect_parity([&] {
            return make_call(extra, dtype, heads, dim, dim >= 64, [&](auto r, auto i) {
              return values[static_cast<std::size_t>(r * heads * dim + i)];
            });
          });
        }
}

// Floors: zeros, and magnitudes between and below 1e-4 and 1e-10.
TEST(PrepareQueries, SmallQueries) {
  for (const bool tiny_floor : {false, true})
    for (const float size : {0.f, 1e-3f, 3e-6f, 1e-11f, 1e-39f})
      for (PrepareQueriesArgs extra : variants(128)) {
        extra.tiny_floor = tiny_floor && extra.format == KeyFormat::fp8;
        expect_parity([&] {
          return make_call(extra, DType::f32, 2, 128, true,
                           [&](auto r, auto i) { return size * static_cast<float>((r * 5 + i) % 9 - 4); });
        });
      }
}

TEST(PrepareQueries, NanAndInfinitiesStayInTheirHead) {
  const float unusual[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(), 3e38f, -0.f};
  for (const PrepareQueriesArgs& extra : variants(128))
    for (const float x : unusual)
      expect_parity([&] {
        return make_call(extra, DType::f32, 3, 128, true, [&](auto r, auto i) {
          return r == 1 && i / 128 == 1 && i % 128 == 70 ? x : static_cast<float>((r + i) % 7) - 3.f;
        });
      });
}

// The transform of a single one is flat, and applying it twice gives back what came.
TEST(PrepareQueries, HadamardOfASingleOne) {
  PrepareQueriesArgs extra;
  extra.hadamard = true;
  PrepareCall c =
      make_call(extra, DType::f32, 1, 128, false, [](auto, auto i) { return i == 5 ? 128.f : 0.f; });
  ASSERT_TRUE(run_with(c.args(), "cpu").ok());
  for (std::int64_t d = 0; d < 128; ++d)
    EXPECT_EQ(static_cast<int>(c.codes.get(0, 0, d)),
              __builtin_popcountll(static_cast<unsigned>(d) & 5u) % 2 == 0 ? 0x7e : 0xfe);
}

}  // namespace
}  // namespace keysieve::test

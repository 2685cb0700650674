// index_store against its definition, to the byte.
#include "keysieve/index_store.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "cpu/key_codes.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct StoreCall {
  TensorBox keys, slots, cache;
  IndexStoreArgs extra;

  IndexStoreArgs args() {
    IndexStoreArgs a = extra;
    a.keys = keys.tensor();
    a.slots = slots.tensor();
    a.cache = cache.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&keys, &slots, &cache}; }
};

struct Variant {
  KeyFormat format;
  KeyScale scale = KeyScale::exact;
  bool reciprocal = false, ties_down = false;
};
constexpr Variant kVariants[] = {{KeyFormat::fp8},
                                 {KeyFormat::fp8, KeyScale::ue8m0},
                                 {KeyFormat::fp8, KeyScale::exact, true},
                                 {KeyFormat::mxfp4},
                                 {KeyFormat::mxfp4, KeyScale::exact, false, true}};

template <class Value>
StoreCall make_call(const Variant& v, DType dtype, std::int64_t dim, std::int64_t page_tokens,
                    const std::vector<std::int64_t>& slots, Value&& value, std::int64_t spare_bytes = 0) {
  StoreCall c;
  c.extra.format = v.format;
  c.extra.scale = v.scale;
  c.extra.reciprocal = v.reciprocal;
  c.extra.ties_down = v.ties_down;
  c.extra.page_tokens = page_tokens;
  const std::int64_t bytes = page_tokens * (v.format == KeyFormat::fp8 ? dim + 4 : dim / 2 + dim / 32);
  c.keys = TensorBox(dtype, {static_cast<std::int64_t>(slots.size()), dim}, 3);
  c.keys.fill(value);
  c.slots = TensorBox::of(DType::i64, slots);
  c.cache = TensorBox(DType::u8, {4, bytes + spare_bytes}, 5);
  c.cache.fill([](auto i, auto j) { return (i * 31 + j * 7) % 256; });
  return c;
}

// IXS-15: only named slots change. IXS-16: of tokens that name one slot the last stays. IXS-17: slots that do not
// exist are skipped.
TEST(IndexStore, MatchesReferenceForEveryFormat) {
  for (const Variant& v : kVariants)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t dim : {32, 64, 128})
        for (const std::int64_t page_tokens : {1, 7, 16, 64, 128}) {
          std::mt19937_64 random(static_cast<std::uint64_t>(dim * page_tokens));
          std::normal_distribution<float> normal;
          std::vector<std::int64_t> slots;
          for (int i = 0; i < 70; ++i)
            slots.push_back(
                static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(5 * page_tokens + 3)) - 2);
          slots.push_back(std::numeric_limits<std::int64_t>::max());
          slots.push_back(std::numeric_limits<std::int64_t>::min());
          std::vector<float> values(slots.size() * static_cast<std::size_t>(dim));
          for (float& x : values) x = normal(random) * std::exp2(static_cast<float>(random() % 24) - 12.f);
          expect_parity([&] {
            return make_call(
                v, dtype, dim, page_tokens, slots,
                [&](auto i, auto j) { return values[static_cast<std::size_t>(i * dim + j)]; }, 24);
          });
        }
}

// IXS-18: NaN becomes NaN and takes no part in scales; infinities saturate; zeros, subnormals and the greatest floats.
TEST(IndexStore, UnusualKeys) {
  const float unusual[] = {0.f,   -0.f, kNan,   -kNan, kInfinity, -kInfinity, 1e-45f, -1e-40f, 0x1p-126f,
                           1e-5f, 3.f,  -448.f, 1e38f, -3.4e38f,  6.f,        5.f,    2.5f,    0.25f};
  for (const Variant& v : kVariants)
    for (int family = 0; family < 20; ++family)
      expect_parity([&] {
        return make_call(v, DType::f32, 64, 4, {0, 5, 2, 11}, [&](auto i, auto j) -> float {
          if (family == 19) return kNan;
          if (family == 18) return unusual[static_cast<std::size_t>(i * 7 + j * 3) % 18];
          return j % 9 == i ? unusual[family] : static_cast<float>(j % 5) * 0.5f;
        });
      });
}

// Sixteenths cover every code of both formats, every midpoint between two codes, and what lies beside it.
TEST(IndexStore, EveryCodeAndEveryMidpoint) {
  for (const Variant& v : kVariants)
    for (int block = 0; block < 120; ++block)
      expect_parity([&] {
        return make_call(v, DType::f32, 128, 2, {1, 3, 0}, [&](auto i, auto j) -> float {
          if (j == 0) return 448.f;  // so that the scale is 1
          const auto step = static_cast<float>(block * 127 + static_cast<int>(j) - 1);
          const float x = i == 0   ? step / 32.f
                          : i == 1 ? std::ldexp(step, -12)
                                   : std::ldexp(1.f + step / 65536.f, block % 20 - 11);
          return j % 2 == 0 ? -x : x;
        });
      });
}

// What cpu/key_codes.hpp computes on bits, against what codes mean.
TEST(IndexStore, CodesReadBackAsThemselves) {
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code >> 3, fraction = code & 7;
    const float value = static_cast<float>(exponent == 0 ? std::ldexp(fraction, -9)
                                                         : std::ldexp(8 + fraction, exponent - 10));
    EXPECT_EQ(cpu::to_e4m3(value), code);
    EXPECT_EQ(cpu::to_e4m3(-value), code | 0x80);
  }
  EXPECT_EQ(cpu::to_e4m3(kNan), 0x7f);
  EXPECT_EQ(cpu::to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(cpu::to_e4m3(-kInfinity), 0xfe);
}

// One layer's pages lie in blocks of nine; what is between them, and every other page, stays.
TEST(IndexStoreCases, H34_pages_of_padded_pools) {
  constexpr std::int64_t kPage = 32 * 132, kBlock = 9 * kPage;
  const auto make = [] {
    std::vector<std::int64_t> slots;
    for (std::int64_t place = 0; place < 32; ++place) slots.push_back(7 * 32 + place);
    StoreCall c =
        make_call(kVariants[0], DType::bf16, 128, 32, slots, [](auto i, auto j) { return (i + j) % 13 - 6; });
    c.cache = TensorBox(DType::u8, {12, kPage}, kBlock - kPage);
    c.cache.fill([](auto i, auto j) { return (i * 31 + j * 7) % 256; });
    return c;
  };
  expect_parity(make);  // gaps and guards are compared too
  StoreCall before = make(), after = make();
  ASSERT_TRUE(run_with(after.args(), "cpu").ok());
  for (std::int64_t page = 0; page < 12; ++page) {
    bool same = true;
    for (std::int64_t byte = 0; byte < kPage; ++byte)
      same = same && before.cache.get(page, byte) == after.cache.get(page, byte);
    EXPECT_EQ(same, page != 7) << page;
  }
}

// 4,352 bytes a page are no multiple of 512, 8,704 are: both hold the same tokens.
TEST(IndexStoreCases, H60_mxfp4_pages_of_any_stride) {
  const auto make = [](std::int64_t page_tokens) {
    std::vector<std::int64_t> slots;
    for (std::int64_t token = 0; token < 100; ++token) slots.push_back(token * 5 % 128);
    return make_call(kVariants[3], DType::f32, 128, page_tokens, slots,
                     [](auto i, auto j) { return static_cast<float>((i * 37 + j * 11) % 201) - 100.f; });
  };
  expect_parity([&] { return make(64); });
  expect_parity([&] { return make(128); });
  StoreCall narrow = make(64), wide = make(128);
  ASSERT_TRUE(run_with(narrow.args(), "cpu").ok() && run_with(wide.args(), "cpu").ok());
  for (std::int64_t token = 0; token < 100; ++token) {
    const std::int64_t slot = token * 5 % 128, page = slot / 64, place = slot % 64;
    for (std::int64_t byte = 0; byte < 64; ++byte)
      ASSERT_EQ(narrow.cache.get(page, place * 64 + byte), wide.cache.get(0, slot * 64 + byte));
    for (std::int64_t group = 0; group < 4; ++group)
      ASSERT_EQ(narrow.cache.get(page, 64 * 64 + place * 4 + group),
                wide.cache.get(0, 128 * 64 + slot * 4 + group));
  }
}

TEST(IndexStore, EmptyShapes) {
  for (const Variant& v : kVariants) {
    expect_parity([&] { return make_call(v, DType::bf16, 32, 1, {}, [](auto, auto) { return 0.f; }); });
    expect_parity([&] { return make_call(v, DType::bf16, 32, 1, {-1, -5}, [](auto, auto) { return 1.f; }); });
  }
}

}  // namespace
}  // namespace keysieve::test

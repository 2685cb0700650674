#include "keysieve/mqa_logits.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <random>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "support/learned.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

// integers: every product and partial sum is exact in f32, so kernels must match bit for bit.
enum class Data { integers, normal, zeros, negative };

constexpr std::uint8_t kNanCode = 0x7f;

// Numbers that depend on what they stand for and on nothing else, so that a row or a request is the same in
// any batch and in any memory layout.
struct Source {
  Data data = Data::integers;
  bool fp8 = true;
  std::uint64_t seed = 1;

  [[nodiscard]] static std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  [[nodiscard]] std::uint64_t bits(std::uint64_t what, std::int64_t i, std::int64_t j, std::int64_t k) const {
    return mix(
        mix(mix(mix(seed * 8 + what) + static_cast<std::uint64_t>(i)) + static_cast<std::uint64_t>(j)) +
        static_cast<std::uint64_t>(k));
  }
  [[nodiscard]] static double integer(std::uint64_t b, int most) {
    return static_cast<double>(b % static_cast<std::uint64_t>(2 * most + 1)) - most;
  }
  // Near enough to a normal distribution: the sum of four uniform ones.
  [[nodiscard]] static double normal(std::uint64_t b) {
    return (static_cast<double>(b & 0xffff) + static_cast<double>(b >> 16 & 0xffff) +
            static_cast<double>(b >> 32 & 0xffff) + static_cast<double>(b >> 48)) /
               37837.0 -
           3.4641;
  }
  // What TensorBox::set takes: a value for bf16, a code for u8.
  [[nodiscard]] double element(std::uint64_t what, std::int64_t i, std::int64_t j, std::int64_t k) const {
    const std::uint64_t b = bits(what, i, j, k);
    if (data == Data::zeros) return 0;
    if (data == Data::normal && fp8) return (b & 0x7f) == kNanCode ? 0 : static_cast<double>(b & 0xff);
    if (data == Data::normal) return normal(b);
    const double value = data == Data::negative ? integer(b, 1) + 2 : integer(b, 3);
    return fp8 ? code(value) : value;
  }
  [[nodiscard]] static std::uint8_t code(double small_integer) {
    constexpr std::uint8_t kCodes[] = {0, 0x38, 0x40, 0x44};
    return static_cast<std::uint8_t>(kCodes[static_cast<int>(std::abs(small_integer))] |
                                     (small_integer < 0 ? 0x80 : 0));
  }
  [[nodiscard]] double q(std::int64_t row, std::int64_t head, std::int64_t d) const {
    return element(1, row, head, d);
  }
  [[nodiscard]] double k(std::int64_t request, std::int64_t position, std::int64_t d) const {
    return element(2, request, position, d);
  }
  [[nodiscard]] double weight(std::int64_t row, std::int64_t head) const {
    const std::uint64_t b = bits(3, row, head, 0);
    if (data == Data::negative) return -1 - static_cast<double>(b % 3);
    return data == Data::integers ? integer(b, 4) : normal(b) * 0.125;
  }
  [[nodiscard]] double scale(std::int64_t request, std::int64_t position) const {
    const std::uint64_t b = bits(4, request, position, 0);
    return data == Data::integers ? std::ldexp(1.0, -static_cast<int>(b % 3)) : std::exp2(normal(b) * 2);
  }
};

struct Shape {
  Source source;
  bool paged = true;
  std::int64_t heads = 4, dim = 128, width = 70, requests = 2, next_n = 1, page_tokens = 64;
  std::vector<std::int64_t> ends;    // one a row
  std::vector<std::int64_t> starts;  // one a row, or none
  DType weight_dtype = DType::f32, score_dtype = DType::f32;
  Tail tail = Tail::untouched;
  std::int64_t padding = 0;        // elements between rows of scores, heads of q, pages, ...
  std::int64_t first_request = 0;  // the identity of request 0 and of its rows: see Source

  [[nodiscard]] std::int64_t rows() const { return requests * next_n; }
  [[nodiscard]] std::int64_t table_columns() const { return (width + page_tokens - 1) / page_tokens; }
  [[nodiscard]] std::int64_t pages() const { return requests * table_columns() + 3; }
  // Pages are handed out from the last to the first, so no two requests' pages are in order.
  [[nodiscard]] std::int64_t page_of(std::int64_t request, std::int64_t column) const {
    return pages() - 2 - (column * requests + request);
  }
};

struct Call {
  TensorBox q, weights, keys, key_scales, cache, page_table, start, end, scores;
  MqaLogitsArgs extra;
  std::int64_t head_step = 1;  // heads of q that the call sees: every so many

  MqaLogitsArgs args() {
    MqaLogitsArgs a = extra;
    a.q = q.tensor();
    a.q.shape[1] /= head_step;
    a.q.stride[1] *= head_step;
    a.weights = weights.tensor();
    a.keys = keys.tensor();
    a.key_scales = key_scales.tensor();
    a.cache = cache.tensor();
    a.page_table = page_table.tensor();
    a.bounds.start = start.tensor();
    a.bounds.end = end.tensor();
    a.scores = scores.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&q, &weights, &keys, &key_scales, &cache, &page_table, &start, &end, &scores};
  }
};

// The e4m3fn code nearest to a number of at most 448, by trying them all.
std::uint8_t nearest_e4m3(float value) {
  int best = 0;
  double least = 1e9;
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code >> 3, fraction = code & 7;
    const double size = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    const double distance = std::abs(size - std::abs(static_cast<double>(value)));
    if (distance < least || (distance == least && fraction % 2 == 0)) best = code, least = distance;
  }
  return static_cast<std::uint8_t>(best | (value < 0 ? 0x80 : 0));
}

void set_scale(TensorBox& cache, const Shape& s, std::int64_t page, std::int64_t token, double scale) {
  const auto value = static_cast<float>(scale);
  std::memcpy(&cache.at<std::uint8_t>(page, s.page_tokens * s.dim + token * 4), &value, sizeof(value));
}

// MQA-39: everything that no row sees is NaN: unused pages, keys past every end of the request, their scales.
// Table entries past a request's last page would send a reader far away.
Call make_call(const Shape& s) {
  const DType element = s.source.fp8 ? DType::u8 : DType::bf16;
  Call call;
  const std::int64_t rows = s.rows(), first_row = s.first_request * s.next_n;
  call.q = TensorBox(element, {rows, s.heads, s.dim}, s.padding);
  call.weights = TensorBox(s.weight_dtype, {rows, s.heads}, s.padding, s.padding == 0 ? 1 : 2);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      call.weights.set(s.source.weight(first_row + r, h), r, h);
      for (std::int64_t d = 0; d < s.dim; ++d) call.q.set(s.source.q(first_row + r, h, d), r, h, d);
    }
  const double nan = s.source.fp8 ? kNanCode : std::numeric_limits<double>::quiet_NaN();
  if (s.paged) {
    const std::int64_t page_bytes = s.page_tokens * (s.dim + 4);
    if (s.source.fp8)
      call.cache = TensorBox(element, {s.pages(), page_bytes + s.padding});
    else
      call.cache = TensorBox(element, {s.pages(), s.page_tokens, s.dim}, s.padding);
    call.extra.page_tokens = s.page_tokens;
    call.page_table =
        TensorBox(DType::i32, {s.requests, s.table_columns() + 2}, s.padding, s.padding == 0 ? 1 : 2);
    call.page_table.fill([](auto, auto) { return 0x7fffffff; });
    for (std::int64_t p = 0; p < s.pages(); ++p)
      for (std::int64_t t = 0; t < s.page_tokens; ++t) {
        for (std::int64_t d = 0; d < s.dim; ++d) {
          if (s.source.fp8)
            call.cache.set(nan, p, t * s.dim + d);
          else
            call.cache.set(nan, p, t, d);
        }
        if (s.source.fp8) set_scale(call.cache, s, p, t, std::numeric_limits<double>::quiet_NaN());
      }
    for (std::int64_t b = 0; b < s.requests; ++b) {
      const auto* ends = s.ends.data() + b * s.next_n;
      const std::int64_t most =
          std::clamp<std::int64_t>(*std::max_element(ends, ends + s.next_n), 0, s.width);
      for (std::int64_t c = 0; c < most; ++c) {
        const std::int64_t page = s.page_of(b, c / s.page_tokens), t = c % s.page_tokens;
        call.page_table.set(static_cast<double>(page), b, c / s.page_tokens);
        for (std::int64_t d = 0; d < s.dim; ++d) {
          const double k = s.source.k(s.first_request + b, c, d);
          if (s.source.fp8)
            call.cache.set(k, page, t * s.dim + d);
          else
            call.cache.set(k, page, t, d);
        }
        if (s.source.fp8) set_scale(call.cache, s, page, t, s.source.scale(s.first_request + b, c));
      }
    }
  } else {
    call.keys = TensorBox(element, {s.width + 5, s.dim}, s.padding);
    if (s.source.fp8) call.key_scales = TensorBox(DType::f32, {s.width + 5}, 0, s.padding == 0 ? 1 : 2);
    for (std::int64_t c = 0; c < s.width + 5; ++c) {
      bool seen = false;
      for (std::int64_t r = 0; r < rows; ++r)
        seen = seen || (c < s.ends[static_cast<std::size_t>(r)] &&
                        c >= (s.starts.empty() ? 0 : s.starts[static_cast<std::size_t>(r)]));
      for (std::int64_t d = 0; d < s.dim; ++d)
        call.keys.set(seen ? s.source.k(s.first_request, c, d) : nan, c, d);
      if (s.source.fp8)
        call.key_scales.set(
            seen ? s.source.scale(s.first_request, c) : std::numeric_limits<double>::quiet_NaN(), c);
    }
  }
  call.end = TensorBox::of(DType::i64, s.ends);
  if (!s.starts.empty()) call.start = TensorBox::of(DType::i32, s.starts);
  call.extra.tail = s.tail;
  call.scores = TensorBox(s.score_dtype, {rows, s.width}, s.padding);
  return call;
}

// Rows of scores agree to 1e-12; everything else, guards and gaps and untouched columns too, byte for byte.
struct Close {
  double tolerance = 1e-12;

  void operator()(const std::string& what, std::vector<TensorBox*> expected,
                  std::vector<TensorBox*> got) const {
    const Tensor want = expected.back()->tensor();
    for (std::int64_t r = 0; r < want.shape[0]; ++r) {
      double product = 0, squares = 0;
      for (std::int64_t c = 0; c < want.shape[1]; ++c) {
        const double x = expected.back()->get(r, c), y = got.back()->get(r, c);
        // Judged as a row; from here on equal, so that the bytes can be compared.
        if (want.dtype == DType::f32)
          got.back()->at<float>(r, c) = expected.back()->at<float>(r, c);
        else
          got.back()->at<std::uint16_t>(r, c) = expected.back()->at<std::uint16_t>(r, c);
        if (!std::isfinite(x) || !std::isfinite(y)) {
          ASSERT_TRUE(std::isnan(x) ? std::isnan(y) : x == y) << what << ": row " << r << " column " << c;
          continue;
        }
        product += x * y;
        squares += x * x + y * y;
      }
      if (squares > 0) {
        ASSERT_LE(1 - 2 * product / squares, tolerance) << what << ": row " << r;
      }
    }
    SameBytes()(what, expected, got);
  }
};

std::vector<Shape> layouts() {
  std::vector<Shape> shapes;
  for (const bool fp8 : {false, true})
    for (const bool paged : {false, true}) {
      Shape s;
      s.source.fp8 = fp8;
      s.paged = paged;
      shapes.push_back(s);
    }
  return shapes;
}

// The lengths at which tiles and pages begin and end, and nonsense.
std::vector<std::int64_t> edge_lengths() {
  return {0, 1, 63, 64, 65, 255, 256, 257, 2, -1, 300, 1 << 30, std::numeric_limits<std::int64_t>::min()};
}

// MQA-38: boxes are poisoned, so a write outside the range shows.
TEST(MqaLogits, ExactOnIntegersAtEveryLength) {
  for (Shape s : layouts()) {
    s.ends = edge_lengths();
    s.requests = static_cast<std::int64_t>(s.ends.size());
    s.width = 260;
    for (const Tail tail : {Tail::untouched, Tail::neg_inf})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        s.tail = tail;
        s.score_dtype = dtype;
        expect_parity([&] { return make_call(s); });
      }
  }
}

TEST(MqaLogits, ExactOnIntegersForAnyHeadsAndDims) {
  for (Shape s : layouts()) {
    s.ends = {70, 33};
    for (const std::int64_t dim : {32, 64, 128})
      for (const std::int64_t heads : {1, 2, 3, 4, 5, 7, 8, 11, 16, 32, 33, 64, 128}) {
        s.dim = dim;
        s.heads = heads;
        s.weight_dtype = heads % 2 == 0 ? DType::f32 : DType::bf16;
        expect_parity([&] { return make_call(s); });
      }
  }
}

TEST(MqaLogits, ExactForEveryPageSize) {
  for (const bool fp8 : {false, true})
    for (const std::int64_t page_tokens : {1, 5, 16, 32, 64, 128})
      for (const std::int64_t padding : {0, 132, 3}) {
        Shape s;
        s.source.fp8 = fp8;
        s.page_tokens = page_tokens;
        s.padding = padding;
        s.width = 200;
        s.requests = 3;
        s.ends = {200, 0, 131};
        expect_parity([&] { return make_call(s); });
      }
}

TEST(MqaLogits, ExactForDraftRows) {
  for (const bool fp8 : {false, true})
    for (std::int64_t next_n = 1; next_n <= 11; ++next_n) {
      Shape s;
      s.source.fp8 = fp8;
      s.next_n = next_n;
      s.tail = next_n % 2 == 0 ? Tail::neg_inf : Tail::untouched;
      for (const std::int64_t length : {70, 5})
        for (std::int64_t j = 0; j < next_n; ++j) s.ends.push_back(length - next_n + j + 1);
      expect_parity([&] { return make_call(s); });
    }
}

// Windows with gaps between them, overlapping windows, and a row far from its neighbours.
TEST(MqaLogits, ExactForWindows) {
  for (Shape s : layouts()) {
    s.requests = 12;
    s.width = 2100;
    s.starts = {0, 0, 10, 100, 2000, -5, 900, 1000, 2099, 50, 40, 3000};
    s.ends = {0, 9, 20, 164, 2100, 3, 990, 2000, 2100, 40, 41, 9000};
    for (const Tail tail : {Tail::untouched, Tail::neg_inf}) {
      s.tail = tail;
      expect_parity([&] { return make_call(s); });
    }
  }
}

TEST(MqaLogits, ExactForShapesDrawnAtRandom) {
  std::mt19937 random(2024);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return from.begin()[random() % from.size()];
  };
  for (int i = 0; i < 60; ++i) {
    Shape s;
    s.source = {Data::integers, random() % 2 == 0, random()};
    s.paged = random() % 2 == 0;
    s.heads = 1 + random() % 20;
    s.dim = pick({32, 64, 128});
    s.width = 1 + random() % pick({40, 130, 2000});
    s.next_n = 1 + random() % 8;
    s.requests = 1 + random() % 3;
    s.page_tokens = pick({1, 16, 32, 64, 128, 7});
    s.padding = pick({0, 8, 12});
    s.tail = random() % 2 == 0 ? Tail::neg_inf : Tail::untouched;
    s.weight_dtype = random() % 2 == 0 ? DType::f32 : DType::bf16;
    s.score_dtype = random() % 2 == 0 ? DType::f32 : DType::bf16;
    for (std::int64_t r = 0; r < s.rows(); ++r) {
      s.ends.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(s.width + 20)) - 10);
      if (!s.paged)
        s.starts.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(s.width)) - 5);
    }
    SCOPED_TRACE(i);
    expect_parity([&] { return make_call(s); });
  }
}

TEST(MqaLogits, LengthsInEveryForm) {
  for (const bool per_row : {false, true})
    for (const LengthUnit unit : {LengthUnit::tokens, LengthUnit::compressed})
      for (const std::int64_t ratio : {1, 2, 4}) {
        if (!per_row && ratio > 1 && unit == LengthUnit::compressed) continue;  // BND-15
        Shape s;
        s.requests = 3;
        s.next_n = 3;
        s.ends.assign(9, s.width);
        const auto make = [&] {
          Call call = make_call(s);
          call.extra.bounds.form = BoundsForm::lengths;
          call.extra.bounds.next_n = 3;
          call.extra.bounds.ratio = ratio;
          call.extra.bounds.unit = unit;
          call.end = per_row ? TensorBox(DType::i32, {3, 3}, 4, 2) : TensorBox(DType::i64, {3}, 0, 3);
          call.end.fill([](auto i, auto j) { return i == 1 ? j - 1 : 61 + 7 * i + j; });
          return call;
        };
        expect_parity(make);
      }
}

TEST(MqaLogits, MeetsToleranceOnRealNumbers) {
  for (Shape s : layouts())
    for (const std::int64_t heads : {1, 6, 64})
      for (const std::int64_t dim : {32, 128}) {
        s.source.data = Data::normal;
        s.heads = heads;
        s.dim = dim;
        s.width = 300;
        s.requests = 3;
        s.ends = {300, 0, 217};
        expect_parity([&] { return make_call(s); }, Close{});  // MQA-36
        s.score_dtype = DType::bf16;
        expect_parity([&] { return make_call(s); }, Close{1.0 / 65536});
        s.score_dtype = DType::f32;
      }
}

TEST(MqaLogits, ZeroAndNegativeData) {
  for (const Data data : {Data::zeros, Data::negative})
    for (Shape s : layouts()) {
      s.source.data = data;
      s.ends = {70, 66};
      expect_parity([&] { return make_call(s); }, Close{});
    }
}

// MQA-34.
TEST(MqaLogits, MQA_34_bf16_is_the_f32_result_rounded_once) {
  for (Shape s : layouts()) {
    s.source.data = Data::normal;
    s.ends = {70, 44};
    Call wide = make_call(s);
    ASSERT_TRUE(run_with(wide.args(), "cpu").ok());
    s.score_dtype = DType::bf16;
    Call narrow = make_call(s);
    ASSERT_TRUE(run_with(narrow.args(), "cpu").ok());
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t c = 0; c < s.ends[static_cast<std::size_t>(r)]; ++c)
        ASSERT_EQ(narrow.scores.at<std::uint16_t>(r, c), to_bf16(wide.scores.at<float>(r, c)));
  }
}

// MQA-37: every code against a query that picks one dimension: the score is the code's own value, NaN for
// 0x7f and 0xff.
TEST(MqaLogits, MQA_37_every_e4m3_code_is_exact) {
  Shape s;
  s.heads = 2;
  s.width = 256;
  s.requests = 1;
  s.ends = {256};
  const auto make = [&](bool swap) {
    Call call = make_call(s);
    for (std::int64_t d = 0; d < 128; ++d) {
      call.q.set(d == 77 ? (swap ? 0x01 : 0x38) : 0, 0, 0, d);
      call.q.set(d == 77 ? (swap ? 0x81 : 0xb8) : 0, 0, 1, d);
    }
    call.weights.set(1, 0, 0);
    call.weights.set(-1, 0, 1);
    for (std::int64_t c = 0; c < 256; ++c) {
      const std::int64_t page = s.page_of(0, c / 64), t = c % 64;
      for (std::int64_t d = 0; d < 128; ++d)
        call.cache.set(d == 77 ? static_cast<double>(c) : 0, page, t * 128 + d);
      set_scale(call.cache, s, page, t, 1);
    }
    return call;
  };
  expect_parity([&] { return make(true); }, Close{0});
  expect_parity([&] { return make(false); }, Close{0});
  Call call = make(false);
  ASSERT_TRUE(run_with(call.args(), "cpu").ok());
  for (int c = 0; c < 256; ++c) {
    const int exponent = c >> 3 & 15, fraction = c & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    const double score = call.scores.get(0, c);
    if ((c & 0x7f) == kNanCode) {
      EXPECT_TRUE(std::isnan(score)) << c;
    } else {
      EXPECT_EQ(score, c >= 128 ? -magnitude : magnitude) << c;
    }
  }
}

#if defined(__SSE2__)
// An engine may have told its threads to treat subnormal floats as zero; no code is one.
TEST(MqaLogits, MQA_37_holds_while_subnormal_floats_count_as_zero) {
  Shape s;
  s.source.data = Data::normal;
  s.ends = {70, 70};
  const auto subnormal_codes = [&] {
    Call call = make_call(s);
    for (std::int64_t t = 0; t < 64; ++t)
      for (std::int64_t d = 0; d < 128; ++d)
        call.cache.set(static_cast<double>((t * 5 + d * 3) % 8 + (d % 2) * 0x80), s.page_of(0, 0),
                       t * 128 + d);
    return call;
  };
  Call usual = subnormal_codes(), flushed = subnormal_codes();
  for_each_host_run(usual.args(),
                    [&](const std::string& kernel, const std::string& label, const Executor* executor) {
                      if (executor != nullptr) return;  // the mode belongs to this thread
                      ASSERT_TRUE(run_with(usual.args(), "cpu", kernel.c_str()).ok());
                      const unsigned mode = _mm_getcsr();
                      _mm_setcsr(mode | 0x8040);
                      const Status status = run_with(flushed.args(), "cpu", kernel.c_str());
                      _mm_setcsr(mode);
                      ASSERT_TRUE(status.ok());
                      EXPECT_EQ(usual.scores.bytes(), flushed.scores.bytes()) << label;
                    });
}
#endif

// MQA-32: a NaN anywhere in a key, in its scale or in a query reaches exactly the scores that use it.
TEST(MqaLogits, MQA_32_nan_stays_nan) {
  for (Shape s : layouts())
    for (const std::int64_t spoilt : {0, 23, 24, 47, 69})
      for (const bool negative : {false, true}) {
        s.ends = {70, 70};
        const auto make = [&] {
          Call call = make_call(s);
          const double nan = !s.source.fp8 ? std::numeric_limits<double>::quiet_NaN()
                             : negative    ? 0xff
                                           : 0x7f;
          const std::int64_t page = s.page_of(0, spoilt / 64), t = spoilt % 64;
          if (!s.paged) {
            call.keys.set(nan, spoilt, 127);
            if (s.source.fp8)
              call.key_scales.set(std::numeric_limits<double>::quiet_NaN(), (spoilt + 1) % 70);
          } else if (s.source.fp8) {
            call.cache.set(nan, page, t * 128 + 127);
          } else {
            call.cache.set(nan, page, t, 127);
            if (negative) call.cache.at<std::uint16_t>(page, t, 127) = 0xffc1;
          }
          call.q.set(nan, 1, 2, 5);
          return call;
        };
        expect_parity(make, Close{});
        Call call = make();
        ASSERT_TRUE(run_with(call.args(), "cpu").ok());
        EXPECT_TRUE(std::isnan(call.scores.get(0, spoilt)));
        EXPECT_TRUE(std::isnan(call.scores.get(1, 0)));
        EXPECT_FALSE(std::isnan(call.scores.get(0, (spoilt + 2) % 70)));
      }
}

TEST(MqaLogits, InfiniteKeysAndWeights) {
  Shape s;
  s.source.fp8 = false;
  s.heads = 3;
  s.ends = {70, 70};
  expect_parity(
      [&] {
        Call call = make_call(s);
        for (const std::int64_t t : {3, 29, 63})
          call.cache.set(t == 29 ? -INFINITY : INFINITY, s.page_of(0, 0), t, t);
        call.weights.set(-INFINITY, 1, 1);
        return call;
      },
      Close{});
}

// MQA-35: pages outside the cache hide their keys and nothing else; so does the end of the table.
TEST(MqaLogits, MQA_35_unknown_pages_are_invisible) {
  for (const bool fp8 : {false, true})
    for (const std::int64_t page_tokens : {1, 16, 64}) {
      Shape s;
      s.source.fp8 = fp8;
      s.page_tokens = page_tokens;
      s.width = 200;
      s.ends = {200, 150};
      const auto make = [&] {
        Call call = make_call(s);
        call.page_table.set(-1, 0, 0);
        call.page_table.set(static_cast<double>(s.pages()), 0, 2);
        call.page_table.set(-2147483648.0, 1, 1);
        return call;
      };
      expect_parity(make);
      Call call = make();
      ASSERT_TRUE(run_with(call.args(), "cpu").ok());
      EXPECT_EQ(call.scores.get(0, 0), -INFINITY);
      EXPECT_EQ(call.scores.get(0, 2 * page_tokens), -INFINITY);
      EXPECT_TRUE(std::isfinite(call.scores.get(0, page_tokens)));
      // A table that is too narrow for a row's length.
      expect_parity([&] {
        Call narrow = make();
        narrow.page_table = TensorBox(DType::i32, {2, 1});
        narrow.page_table.fill([](auto, auto) { return 0; });
        for (std::int64_t t = 0; t < page_tokens; ++t) {
          for (std::int64_t d = 0; d < 128; ++d) {
            if (fp8)
              narrow.cache.set(0x38, 0, t * 128 + d);
            else
              narrow.cache.set(1, 0, t, d);
          }
          if (fp8) set_scale(narrow.cache, s, 0, t, 0.5);
        }
        return narrow;
      });
    }
}

// MQA-31: a score depends on its own query, key, weights and scale alone, to the last bit.
TEST(MqaLogits, MQA_31_batch_layout_and_threads_change_no_bit) {
  for (const bool fp8 : {false, true}) {
    Shape whole;
    whole.source = {Data::normal, fp8, 7};
    whole.heads = 21;
    whole.width = 1100;
    whole.requests = 3;
    whole.next_n = 2;
    whole.ends = {1099, 1100, 0, 1, 516, 517};
    Call once = make_call(whole);
    for_each_host_run(
        once.args(), [&](const std::string& kernel, const std::string& label, const Executor* threads) {
          Call together = make_call(whole);
          ASSERT_TRUE(run_with(together.args(), "cpu", kernel.c_str(), threads).ok());
          Call again = make_call(whole);
          ASSERT_TRUE(run_with(again.args(), "cpu", kernel.c_str(), threads).ok());
          EXPECT_EQ(together.scores.bytes(), again.scores.bytes()) << label << ": a repeat differs";
          for (std::int64_t b = 0; b < 3; ++b)
            for (std::int64_t j = 0; j < 2; ++j) {
              Shape alone = whole;  // one row of one request, in other pages, in another part of the tile
              alone.requests = alone.next_n = 1;
              alone.page_tokens = 16;
              alone.first_request = b;
              const std::int64_t end = whole.ends[static_cast<std::size_t>(b * 2 + j)];
              for (const bool paged : {false, true}) {
                alone.paged = paged;
                alone.starts = {end / 3};
                alone.ends = {end};
                Call single = make_call(alone);
                for (std::int64_t h = 0; h < 21; ++h) {
                  single.weights.set(whole.source.weight(b * 2 + j, h), 0, h);
                  for (std::int64_t d = 0; d < 128; ++d)
                    single.q.set(whole.source.q(b * 2 + j, h, d), 0, h, d);
                }
                ASSERT_TRUE(run_with(single.args(), "cpu", kernel.c_str()).ok());
                for (std::int64_t c = end / 3; c < end; ++c)
                  ASSERT_EQ(single.scores.at<std::uint32_t>(0, c),
                            together.scores.at<std::uint32_t>(b * 2 + j, c))
                      << label << ": request " << b << " draft " << j << " column " << c
                      << (paged ? "" : " ragged");
              }
            }
        });
  }
}

TEST(MqaLogits, StridedQueriesAndWeights) {
  for (Shape s : layouts()) {
    s.ends = {70, 35};
    s.padding = 24;
    expect_parity([&] { return make_call(s); });
    // Heads of q that do not follow one another.
    expect_parity([&] {
      Call call = make_call(s);
      call.head_step = 2;
      call.q = TensorBox(s.source.fp8 ? DType::u8 : DType::bf16, {2, 2 * s.heads, s.dim});
      for (std::int64_t r = 0; r < 2; ++r)
        for (std::int64_t h = 0; h < s.heads; ++h)
          for (std::int64_t d = 0; d < s.dim; ++d) call.q.set(s.source.q(r, h, d), r, 2 * h, d);
      return call;
    });
  }
}

TEST(MqaLogits, EmptyShapes) {
  for (Shape s : layouts()) {
    s.requests = 0;
    expect_parity([&] { return make_call(s); });
    s.requests = 2;
    s.width = 0;
    s.ends = {5, 0};
    expect_parity([&] { return make_call(s); });
    s.width = 40;
    s.ends = {0, -4};
    for (const Tail tail : {Tail::untouched, Tail::neg_inf}) {
      s.tail = tail;
      expect_parity([&] { return make_call(s); });
    }
  }
}

// Address space without memory behind it, except where something is written.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes) : bytes_(bytes) {
    void* at =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(at);
  }
  ~SparseMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  [[nodiscard]] std::uint8_t* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::uint8_t* data_;
};

// Pages, keys and score rows beyond 2^31 and 2^32 bytes and elements.
TEST(MqaLogits, AddressesBeyond32Bits) {
  constexpr std::int64_t kPages = 1 << 20, kPageBytes = 64 * 132 + 128;
  const SparseMemory pool(kPages * kPageBytes), rows(std::size_t{3} << 32);
  if (pool.data() == nullptr || rows.data() == nullptr)
    GTEST_SKIP() << "this machine grants no 22 GiB of addresses";
  for (const std::int64_t page : {std::int64_t{260000}, std::int64_t{520000}, kPages - 1}) {
    std::memset(pool.data() + page * kPageBytes, 0x38, 64 * 128);
    for (std::int64_t t = 0; t < 64; ++t) {
      const float scale = std::ldexp(1.0F, static_cast<int>(t % 8));
      std::memcpy(pool.data() + page * kPageBytes + 64 * 128 + 4 * t, &scale, 4);
    }
    TensorBox q(DType::u8, {2, 1, 128}), weights(DType::f32, {2, 1}), table(DType::i32, {2, 1}),
        end(DType::i32, {2});
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t d = 0; d < 128; ++d) q.set(0x38, r, 0, d);
    weights.fill([](auto r, auto) { return r + 1; });
    table.fill([&](auto, auto) { return page; });
    end.fill([](auto, auto) { return 64; });
    MqaLogitsArgs a;
    a.q = q.tensor();
    a.weights = weights.tensor();
    a.cache = Tensor::dense(pool.data(), DType::u8, {kPages, kPageBytes});
    a.page_table = table.tensor();
    a.bounds.end = end.tensor();
    a.scores = Tensor::dense(rows.data(), DType::f32, {2, 64});
    a.scores.stride[0] = (std::int64_t{1} << 31) + 7;
    for (const char* backend : {"reference", "cpu"}) {
      ASSERT_TRUE(run_with(a, backend).ok());
      for (std::int64_t r = 0; r < 2; ++r)
        for (std::int64_t t = 0; t < 64; ++t) {
          float& score = reinterpret_cast<float*>(rows.data())[r * a.scores.stride[0] + t];
          ASSERT_EQ(score, std::ldexp(128.0F * static_cast<float>(r + 1), static_cast<int>(t % 8)))
              << backend;
          score = 0;
        }
    }
    // The same memory as gathered keys, a page apart: key 1 << 20 less one lies far beyond 2^32 bytes.
    TensorBox scales(DType::f32, {kPages});
    scales.set(3, page);
    std::int32_t window[2] = {static_cast<std::int32_t>(page), static_cast<std::int32_t>(page + 1)};
    a.cache = {};
    a.page_table = {};
    a.keys = Tensor::dense(pool.data(), DType::u8, {kPages, 128});
    a.keys.stride[0] = kPageBytes;
    a.key_scales = scales.tensor();
    a.q.shape[0] = a.weights.shape[0] = 1;
    a.bounds.start = Tensor::dense(window, DType::i32, {1});
    a.bounds.end = Tensor::dense(window + 1, DType::i32, {1});
    a.scores = Tensor::dense(rows.data(), DType::f32, {1, kPages});
    for (const char* backend : {"reference", "cpu"}) {
      ASSERT_TRUE(run_with(a, backend).ok());
      float& score = reinterpret_cast<float*>(rows.data())[page];
      EXPECT_EQ(score, 3 * 128.0F) << backend;
      score = 0;
    }
  }
}

// --- Scores of a model that uses them: float64 expectations made by other code from the same bf16 tensors.

// Rows of one request; row r sees the keys before ends[r].
void expect_scores(const char* what, const Tensor& q, const Tensor& weights, const Tensor& keys,
                   const std::vector<std::int64_t>& ends, const std::vector<const double*>& expected) {
  const std::int64_t rows = q.shape[0], width = keys.shape[0];
  MqaLogitsArgs a;
  a.q = q;
  a.weights = weights;
  TensorBox end = TensorBox::of(DType::i64, ends);
  a.bounds.end = end.tensor();
  const auto judge_scores = [&](const std::string& label, TensorBox& scores) {
    for (std::int64_t r = 0; r < rows; ++r) {
      double product = 0, squares = 0;
      const auto i = static_cast<std::size_t>(r);
      for (std::int64_t c = 0; c < ends[i]; ++c) {
        const double x = expected[i][c], y = scores.get(r, c);
        product += x * y;
        squares += x * x + y * y;
      }
      EXPECT_LE(1 - 2 * product / squares, 1e-12) << what << ", " << label << ": row " << r;
    }
  };
  // The same keys, gathered and in pages of 64 in reverse order.
  const std::int64_t pages = (width + 63) / 64, dim = keys.shape[1];
  TensorBox cache(DType::bf16, {pages, 64, dim}), table(DType::i32, {1, pages});
  for (std::int64_t c = 0; c < width; ++c)
    std::memcpy(&cache.at<std::uint16_t>(pages - 1 - c / 64, c % 64, 0),
                static_cast<const std::uint16_t*>(keys.data) + c * dim, static_cast<std::size_t>(dim) * 2);
  table.fill([&](auto, auto column) { return pages - 1 - column; });
  for (const bool paged : {false, true}) {
    a.keys = paged ? Tensor{} : keys;
    a.cache = paged ? cache.tensor() : Tensor{};
    a.page_table = paged ? table.tensor() : Tensor{};
    TensorBox scores(DType::f32, {rows, width});
    a.scores = scores.tensor();
    if (!paged) {
      ASSERT_TRUE(run_with(a, "reference").ok());
      judge_scores("reference", scores);
    }
    for_each_host_run(a, [&](const std::string& kernel, const std::string& label, const Executor* executor) {
      ASSERT_TRUE(run_with(a, "cpu", kernel.c_str(), executor).ok());
      judge_scores(label, scores);
    });
  }
}

TEST(MqaLogitsLearned, DecodeStep) {
  const LearnedFile file("decode8_layer3_index");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  const Tensor q = file["index_q"], weights = file["index_w"], keys = file["index_k"];
  const auto* starts = file.data<std::int32_t>("k_start");
  for (std::int64_t r = 0; r < 8; ++r) {
    const std::int64_t length = starts[r + 1] - starts[r];
    if (length > 6000) continue;  // a sixth of the keys suffices
    expect_scores("decode8_layer3_index", slice(q, r, 1), slice(weights, r, 1),
                  slice(keys, starts[r], length), {length},
                  {file.data<double>("expected_scores") + starts[r]});
  }
  // All of it in one packed call.
  TensorBox start(DType::i32, {8}), end(DType::i32, {8});
  start.fill([&](auto r, auto) { return starts[r]; });
  end.fill([&](auto r, auto) { return starts[r + 1]; });
  TensorBox scores(DType::f32, {8, keys.shape[0]});
  MqaLogitsArgs a;
  a.q = q;
  a.weights = weights;
  a.keys = keys;
  a.bounds.start = start.tensor();
  a.bounds.end = end.tensor();
  a.scores = scores.tensor();
  ASSERT_TRUE(run_with(a, "cpu", "", &two_threads()).ok());
  for (std::int64_t r = 0; r < 8; ++r) {
    double product = 0, squares = 0;
    for (std::int64_t c = starts[r]; c < starts[r + 1]; ++c) {
      const double x = file.data<double>("expected_scores")[c], y = scores.get(r, c);
      product += x * y;
      squares += x * x + y * y;
    }
    EXPECT_LE(1 - 2 * product / squares, 1e-12) << "row " << r;
  }
}

TEST(MqaLogitsLearned, DraftRows) {
  const LearnedFile file("spec_next2");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  const auto* starts = file.data<std::int32_t>("k_start");
  const auto* positions = file.data<std::int32_t>("query_pos");
  for (std::int64_t b = 0; b < 4; ++b) {
    const std::int64_t length = starts[b + 1] - starts[b];
    const double* expected = file.data<double>("layer3.expected_scores") + 2 * starts[b];
    expect_scores("spec_next2", squeeze(slice(file["layer3.index_q"], b, 1)),
                  squeeze(slice(file["layer3.index_w"], b, 1)),
                  slice(file["layer3.index_k"], starts[b], length),
                  {positions[2 * b] + 1, positions[2 * b + 1] + 1}, {expected, expected + length});
  }
}

TEST(MqaLogitsLearned, PrefillRows) {
  const LearnedFile file("prefill64_ctx12345");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  const auto* checked = file.data<std::int32_t>("checked_rows");
  for (const std::string layer : {"layer2.", "layer3."})
    for (std::int64_t i = 0; i < 4; i += 3) {
      const std::int64_t row = checked[i], end = file.data<std::int32_t>("query_pos")[row] + 1;
      expect_scores("prefill64_ctx12345", slice(file[layer + "index_q"], row, 1),
                    slice(file[layer + "index_w"], row, 1), file[layer + "index_k"], {end},
                    {file.data<double>(layer + "expected_scores") + i * 12345});
    }
}

// The oracle of fp8 scores on data with learned structure: keys and queries encoded here.
TEST(MqaLogitsLearned, EncodedToE4m3) {
  const LearnedFile file("spec_next2");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  const Tensor q = file["layer3.index_q"], keys = file["layer3.index_k"];
  const auto encode = [](const Tensor& t, std::int64_t first, TensorBox& codes, auto&& keep_scale) {
    const auto* values = static_cast<const std::uint16_t*>(t.data) + first * 128;
    const Tensor out = codes.tensor();
    for (std::int64_t i = 0; i < out.elements() / 128; ++i) {
      float most = 1e-4F;
      for (std::int64_t d = 0; d < 128; ++d) most = std::max(most, std::abs(from_bf16(values[i * 128 + d])));
      keep_scale(i, most / 448);
      for (std::int64_t d = 0; d < 128; ++d)
        static_cast<std::uint8_t*>(out.data)[i * 128 + d] =
            nearest_e4m3(from_bf16(values[i * 128 + d]) / (most / 448));
    }
  };
  const auto make = [&] {
    Call call;
    call.q = TensorBox(DType::u8, {2, 32, 128});
    call.keys = TensorBox(DType::u8, {700, 128});
    call.key_scales = TensorBox(DType::f32, {700});
    call.weights = TensorBox(DType::f32, {2, 32});
    call.end = TensorBox::of<std::int64_t>(DType::i32, {699, 700});
    call.scores = TensorBox(DType::f32, {2, 700});
    encode(q, 0, call.q, [&](std::int64_t i, float scale) {
      call.weights.set(file.data<float>("layer3.index_w")[i] * scale, i / 32, i % 32);
    });
    encode(keys, 0, call.keys, [&](std::int64_t i, float scale) { call.key_scales.set(scale, i); });
    return call;
  };
  expect_parity(make, Close{});
}

// --- Failures seen in the field, by their number in the collection of public failures.

TEST(MqaLogitsCases, H07_all_lengths_zero) {
  for (const std::int64_t rows : {1, 32, 256})
    for (int kind = 0; kind < 3; ++kind)
      for (const bool paged : {false, true}) {
        Shape s;
        s.paged = paged;
        s.requests = rows;
        s.width = 9;
        s.ends.assign(static_cast<std::size_t>(rows), 0);
        if (kind == 1) s.ends.back() = 1;
        if (kind == 2)
          for (std::size_t i = 0; i < s.ends.size(); ++i) s.ends[i] = std::array{0, 5, 0, 0, 7, 0}[i % 6];
        expect_parity([&] { return make_call(s); });
      }
}

TEST(MqaLogitsCases, H09_packed_requests_with_cached_prefixes) {
  const std::vector<std::int64_t> starts = {0, 0, 0, 10, 10}, ends = {8, 9, 10, 16, 17};
  const auto make = [&] {
    Shape s;
    s.paged = false;
    s.source.fp8 = false;
    s.heads = 1;
    s.requests = 5;
    s.width = 17;
    s.starts = starts;
    s.ends = ends;
    s.tail = Tail::neg_inf;
    Call call = make_call(s);
    // Keys and queries such that the score is the key's ordinal within its request, from one.
    for (std::int64_t r = 0; r < 5; ++r) {
      call.weights.set(1, r, 0);
      for (std::int64_t d = 0; d < 128; ++d) call.q.set(d == 0 ? 1 : 0, r, 0, d);
    }
    for (std::int64_t c = 0; c < 17; ++c)
      for (std::int64_t d = 0; d < 128; ++d)
        call.keys.set(d == 0 ? static_cast<double>(c < 10 ? c + 1 : c - 9) : 0, c, d);
    return call;
  };
  expect_parity(make);
  Call call = make();
  ASSERT_TRUE(run_with(call.args(), "cpu").ok());
  const std::vector<std::int64_t> best = {7, 8, 9, 5, 6};
  for (std::int64_t r = 0; r < 5; ++r)
    for (std::int64_t c = 0; c < 17; ++c) {
      const auto i = static_cast<std::size_t>(r);
      const bool visible = c >= starts[i] && c < ends[i];
      EXPECT_EQ(call.scores.get(r, c), visible ? static_cast<double>(c - starts[i] + 1) : -INFINITY);
      if (visible) {
        EXPECT_LE(call.scores.get(r, c), call.scores.get(r, starts[i] + best[i]));
      }
    }
}

TEST(MqaLogitsCases, H12_paged_and_gathered_readers_agree_on_the_page_layout) {
  for (const std::int64_t picked : {0, 16, 127}) {
    Shape s;
    s.heads = 1;
    s.requests = 1;
    s.width = 130;
    s.ends = {130};
    std::vector<std::vector<unsigned char>> both;
    for (const bool paged : {true, false}) {
      s.paged = paged;
      const auto make = [&] {
        Call call = make_call(s);
        call.weights.set(1, 0, 0);
        for (std::int64_t d = 0; d < 128; ++d) call.q.set(d == picked ? 0x38 : 0, 0, 0, d);
        for (std::int64_t t = 0; t < 130; ++t)
          for (std::int64_t d = 0; d < 128; ++d) {
            const double code = static_cast<double>(0x30 + t % 7),
                         scale = std::ldexp(1.0, -static_cast<int>(t % 3));
            if (paged) {
              call.cache.set(code, s.page_of(0, t / 64), t % 64 * 128 + d);
              set_scale(call.cache, s, s.page_of(0, t / 64), t % 64, scale);
            } else {
              call.keys.set(code, t, d);
              call.key_scales.set(scale, t);
            }
          }
        return call;
      };
      expect_parity(make);
      Call call = make();
      ASSERT_TRUE(run_with(call.args(), "cpu").ok());
      for (std::int64_t t = 0; t < 130; ++t)
        EXPECT_EQ(call.scores.get(0, t),
                  std::ldexp(8 + t % 7, -4) * std::ldexp(1.0, -static_cast<int>(t % 3)));
      both.push_back(call.scores.bytes());
    }
    EXPECT_EQ(both[0], both[1]);
  }
}

TEST(MqaLogitsCases, H22_padded_queries_with_unpadded_lengths_are_refused) {
  Shape s;
  s.requests = 8;
  s.next_n = 2;
  s.ends.assign(16, 70);
  Call call = make_call(s);
  MqaLogitsArgs a = call.args();
  a.bounds = {};
  a.bounds.form = BoundsForm::lengths;
  a.bounds.next_n = 2;
  TensorBox lengths = TensorBox::of<std::int64_t>(DType::i32, {70, 70, 70, 70, 70});
  a.bounds.end = lengths.tensor();
  MqaLogitsPlan planned;
  EXPECT_EQ(std::string(plan(a, {}, planned).message()),
            "mqa_logits: end: expected lengths are [B] or [B, next_n] (BND-14), got [5] where [8] would fit "
            "(-1: any)");
  a.bounds.end.shape[0] = 8;
  a.page_table.shape[0] = 5;
  EXPECT_EQ(plan(a, {}, planned).code, Code::invalid_argument);
  a.page_table.shape[0] = 4;
  EXPECT_EQ(std::string(plan(a, {}, planned).rule), "MQA-30 rows is requests * next_n");
}

TEST(MqaLogitsCases, H23_small_dims_over_growing_windows) {
  for (const bool fp8 : {false, true})
    for (const std::int64_t dim : {32, 64, 128})
      for (const std::int64_t heads : {16, 32, 64}) {
        Shape s;
        s.paged = false;
        s.source.fp8 = fp8;
        s.dim = dim;
        s.heads = heads;
        s.requests = heads == 16 ? 128 : 20;
        s.width = 640;
        for (std::int64_t i = 0; i < s.requests; ++i) s.ends.push_back(5 * (i + 1));
        expect_parity([&] { return make_call(s); });
      }
}

TEST(MqaLogitsCases, H27_relu_is_per_head_and_before_the_weight) {
  for (const double first_weight : {1.0, -1.0}) {
    const auto make = [&] {
      Shape s;
      s.paged = false;
      s.source = {Data::zeros, false, 1};
      s.heads = 2;
      s.requests = 1;
      s.width = 1;
      s.ends = {1};
      Call call = make_call(s);
      call.q.set(1, 0, 0, 0);
      call.q.set(1, 0, 1, 1);
      call.keys.set(2, 0, 0);
      call.keys.set(-3, 0, 1);
      call.weights.set(first_weight, 0, 0);
      call.weights.set(1, 0, 1);
      return call;
    };
    expect_parity(make);
    Call call = make();
    ASSERT_TRUE(run_with(call.args(), "cpu").ok());
    EXPECT_EQ(call.scores.get(0, 0), 2 * first_weight);
  }
}

// MQA-33.
TEST(MqaLogitsCases, H31_scales_lie_at_the_end_of_the_page) {
  for (const std::int64_t next_n : {1, 2}) {
    const auto make = [&] {
      Shape s;
      s.heads = 1;
      s.requests = 1;
      s.next_n = next_n;
      s.width = 64;
      s.ends.assign(static_cast<std::size_t>(next_n), 64);
      Call call = make_call(s);
      for (std::int64_t r = 0; r < next_n; ++r) {
        call.weights.set(1, r, 0);
        for (std::int64_t d = 0; d < 128; ++d) call.q.set(0x38, r, 0, d);
      }
      for (std::int64_t t = 0; t < 64; ++t) {
        for (std::int64_t d = 0; d < 128; ++d) call.cache.set(0x38, s.page_of(0, 0), t * 128 + d);
        set_scale(call.cache, s, s.page_of(0, 0), t, std::exp2(t % 8));
      }
      return call;
    };
    expect_parity(make);
    Call call = make();
    ASSERT_TRUE(run_with(call.args(), "cpu").ok());
    for (std::int64_t r = 0; r < next_n; ++r)
      for (std::int64_t t = 0; t < 64; ++t) EXPECT_EQ(call.scores.get(r, t), 128 * std::exp2(t % 8));
    EXPECT_EQ(call.scores.get(0, 63), 16384);
  }
}

TEST(MqaLogitsCases, H37_workspace_follows_rows_and_not_width) {
  MqaLogitsArgs a;
  a.q = Tensor::dense(nullptr, DType::u8, {640, 64, 128});
  a.weights = Tensor::dense(nullptr, DType::f32, {640, 64});
  a.cache = Tensor::dense(nullptr, DType::u8, {8192, 64 * 132});
  a.page_table = Tensor::dense(nullptr, DType::i32, {160, 4096});
  a.bounds.form = BoundsForm::lengths;
  a.bounds.next_n = 4;
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {160});
  a.scores = Tensor::dense(nullptr, DType::f32, {640, 262144});
  MqaLogitsPlan planned;
  ASSERT_TRUE(plan(a, {}, planned).ok());
  EXPECT_LE(planned.workspace_bytes, 256u << 10);
}

// No schedule is made beforehand; what remains is that any number of threads gives the same scores.
TEST(MqaLogitsCases, H42_four_draft_rows) {
  for (const std::int64_t page_tokens : {32, 64}) {
    Shape s;
    s.requests = 3;
    s.next_n = 4;
    s.page_tokens = page_tokens;
    s.width = 1000;
    for (const std::int64_t length : {4, 33, 1000})
      for (std::int64_t j = 0; j < 4; ++j) s.ends.push_back(length - 3 + j);
    expect_parity([&] { return make_call(s); });
  }
}

TEST(MqaLogitsCases, H45_lengths_are_a_slice_of_a_padded_buffer) {
  Shape s;
  s.requests = 5;
  s.next_n = 2;
  s.ends.assign(10, s.width);
  TensorBox buffer(DType::i32, {8, 6});
  buffer.fill([](auto, auto) { return 0x7fffffff; });
  TensorBox copy(DType::i32, {5, 2});
  for (std::int64_t b = 0; b < 5; ++b)
    for (std::int64_t j = 0; j < 2; ++j) {
      buffer.set(static_cast<double>(11 * b + 3 + j), b, j);
      copy.set(static_cast<double>(11 * b + 3 + j), b, j);
    }
  Call sliced = make_call(s), copied = make_call(s);
  MqaLogitsArgs a = sliced.args(), b = copied.args();
  for (MqaLogitsArgs* args : {&a, &b}) {
    args->bounds = {};
    args->bounds.form = BoundsForm::lengths;
    args->bounds.next_n = 2;
  }
  a.bounds.end = buffer.tensor();
  a.bounds.end.shape[0] = 5;
  a.bounds.end.shape[1] = 2;
  b.bounds.end = copy.tensor();
  for (const char* backend : {"reference", "cpu"}) {
    ASSERT_TRUE(run_with(a, backend).ok());
    ASSERT_TRUE(run_with(b, backend).ok());
    EXPECT_EQ(sliced.scores.bytes(), copied.scores.bytes()) << backend;
  }
}

TEST(MqaLogitsCases, H48_every_length_and_odd_row_strides) {
  for (Shape s : layouts())
    for (const std::int64_t padding : {0, 1}) {
      s.heads = 2;
      s.dim = 32;
      s.width = 4099;
      s.padding = padding;
      s.ends.clear();
      for (std::int64_t n = 1; n <= 17; ++n) s.ends.push_back(n);
      for (std::int64_t n = 4093; n <= 4099; ++n) s.ends.push_back(n);
      s.requests = static_cast<std::int64_t>(s.ends.size());
      expect_parity([&] { return make_call(s); });
    }
}

// The factor 0.75 = 0.25 + 0.5 is all there is: no other scale is applied to q (MQA-40).
TEST(MqaLogitsCases, H53_codes_mean_e4m3fn) {
  const auto make = [](std::uint8_t q, std::uint8_t k) {
    Shape s;
    s.heads = 2;
    s.requests = 1;
    s.width = 1;
    s.ends = {1};
    Call call = make_call(s);
    for (std::int64_t d = 0; d < 128; ++d) {
      call.q.set(q, 0, 0, d);
      call.q.set(q, 0, 1, d);
      call.cache.set(k, s.page_of(0, 0), d);
    }
    call.weights.set(0.25, 0, 0);
    call.weights.set(0.5, 0, 1);
    set_scale(call.cache, s, s.page_of(0, 0), 0, 0.5);
    return call;
  };
  Call call = make(0x40, 0x38);
  ASSERT_TRUE(run_with(call.args(), "cpu").ok());
  EXPECT_EQ(call.scores.get(0, 0), 96);
  for (const auto& [q, k] : {std::pair{0x80, 0x38}, std::pair{0x40, 0x80}}) {
    expect_parity([&] { return make(static_cast<std::uint8_t>(q), static_cast<std::uint8_t>(k)); });
    Call zero = make(static_cast<std::uint8_t>(q), static_cast<std::uint8_t>(k));
    ASSERT_TRUE(run_with(zero.args(), "cpu").ok());
    EXPECT_EQ(zero.scores.get(0, 0), 0);
  }
}

}  // namespace
}  // namespace keysieve::test

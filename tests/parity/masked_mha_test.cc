#include "keysieve/masked_mha.hpp"

#include <gtest/gtest.h>

#include "support/attention.hpp"

namespace keysieve::test {
namespace {

struct Shape {
  std::vector<std::int64_t> queries = {40, 0, 3}, keys = {300, 9, 70};
  std::int64_t heads = 2, dqk = 192, dv = 128;
  bool mask = true, causal = false, sink = false, lse = true, offsets = false;
  double kept = 0.1;  // share of the mask's bits
  DType out = DType::bf16, starts = DType::i32;
  std::int64_t padding = 0;
  LseForm form{};
  bool mask_stride_zero = false;
};

struct MhaCall {
  TensorBox q, k, v, q_start, k_start, mask, key_offset, q_offset, sink, out, lse;
  Shape shape;
  float scale = 0.0722f;

  MaskedMhaArgs args() {
    MaskedMhaArgs a;
    a.q = q.tensor();
    a.k = k.tensor();
    a.v = v.tensor();
    a.q_start = q_start.tensor();
    a.k_start = k_start.tensor();
    if (shape.mask) a.mask = mask.tensor();
    if (shape.mask_stride_zero)
      a.mask.shape[0] = static_cast<std::int64_t>(shape.queries.size()), a.mask.stride[0] = 0;
    if (shape.offsets) a.key_offset = key_offset.tensor();
    if (shape.offsets || shape.causal) a.q_offset = q_offset.tensor();
    a.causal = shape.causal;
    a.softmax_scale = scale;
    if (shape.sink) a.sink = sink.tensor();
    a.out = out.tensor();
    if (shape.lse) a.lse = lse.tensor();
    a.lse_form = shape.form;
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&q, &k, &v, &q_start, &k_start, &mask, &key_offset, &q_offset, &sink, &out, &lse};
  }
};

void set_bit(MhaCall& call, std::int64_t request, std::int64_t row, std::int64_t key, bool on = true) {
  auto& word = call.mask.at<std::uint32_t>(request, row, key / 32);
  word = on ? word | 1u << (key % 32) : word & ~(1u << (key % 32));
}

// Everything random; two spare tokens and keys in front of the first request and behind the last. The mask's
// padding bits and rows are ones.
MhaCall make_call(const Shape& s) {
  Numbers numbers(static_cast<std::uint64_t>(s.dqk + s.heads * 7 + s.keys[0] * 31));
  const auto requests = static_cast<std::int64_t>(s.queries.size());
  std::vector<std::int64_t> q_start = {2}, k_start = {2};
  std::int64_t most_queries = 0, most_keys = 0;
  for (std::size_t b = 0; b < s.queries.size(); ++b) {
    q_start.push_back(q_start.back() + s.queries[b]);
    k_start.push_back(k_start.back() + s.keys[b]);
    most_queries = std::max(most_queries, s.queries[b]);
    most_keys = std::max(most_keys, s.keys[b]);
  }
  const std::int64_t tokens = q_start.back() + 2, keys = k_start.back() + 2;
  const std::int64_t rows = most_queries + 20, words = (most_keys + 31 + 100) / 32;
  MhaCall call{TensorBox(DType::bf16, {tokens, s.heads, s.dqk}, s.padding, 1, s.padding % 2),
               TensorBox(DType::bf16, {keys, s.heads, s.dqk}, s.padding),
               TensorBox(DType::bf16, {keys, s.heads, s.dv}, s.padding),
               TensorBox::of(s.starts, q_start),
               TensorBox::of(s.starts, k_start),
               TensorBox(DType::u32, {requests, rows, words}, s.padding),
               TensorBox(DType::i64, {requests}),
               TensorBox(DType::i32, {requests}),
               TensorBox(DType::f32, {s.heads}),
               TensorBox(s.out, {tokens, s.heads, s.dv}, s.padding, 1, s.padding % 2),
               TensorBox(DType::f32, {tokens, s.heads}, s.padding),
               s};
  for (TensorBox* box : {&call.q, &call.k, &call.v})
    fill_box(*box, [&](auto, auto, auto) { return numbers.normal(); });
  call.sink.fill([&](auto i, auto) { return i == 1 ? -kInfinity : numbers.normal(); });
  fill_box(call.mask, [](auto, auto, auto) { return 4294967295.0; });
  call.key_offset.fill([](auto i, auto) { return i == 0 ? 45 : i == 1 ? -3 : 64; });
  call.q_offset.fill([&](auto i, auto) { return !s.offsets ? 0 : i == 0 ? 9 : 18; });
  for (std::int64_t b = 0; b < requests; ++b)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t key = 0; key < s.keys[static_cast<std::size_t>(b)] + (s.offsets ? 64 : 0); ++key)
        set_bit(call, b, row, key, row % 11 != 5 && static_cast<double>(numbers.below(1000)) < 1000 * s.kept);
  return call;
}

void expect_near(const Shape& s) {
  expect_parity([&] { return make_call(s); }, NearAttention{});
}

std::vector<unsigned char> token_bytes(MhaCall& call, std::int64_t token) {
  std::vector<unsigned char> bytes;
  const auto add = [&](const void* data, std::size_t size) {
    const auto* first = static_cast<const unsigned char*>(data);
    bytes.insert(bytes.end(), first, first + size);
  };
  const auto size = static_cast<std::size_t>(dtype_bytes(call.shape.out));
  for (std::int64_t h = 0; h < call.shape.heads; ++h) {
    const Tensor out = call.out.tensor();
    add(static_cast<const char*>(out.data) + static_cast<std::size_t>(call.out.offset(token, h, 0)) * size,
        size * static_cast<std::size_t>(call.shape.dv));
    add(&call.lse.at<float>(token, h), 4);
  }
  return bytes;
}

TEST(MaskedMha, MatchesReferenceForEveryHeadShape) {
  for (const auto& [dqk, dv] : {std::pair{192, 128}, std::pair{128, 128}, std::pair{256, 256}})
    for (const DType out : {DType::bf16, DType::f32})
      for (const bool mask : {false, true}) expect_near({.dqk = dqk, .dv = dv, .mask = mask, .out = out});
}

TEST(MaskedMha, MatchesReferenceForEveryTileRemainder) {
  for (const std::int64_t queries : {1, 2, 3, 5, 31, 32, 33, 63, 66})
    expect_near({.queries = {queries}, .keys = {100}, .heads = 1, .kept = 0.3});
  for (const std::int64_t keys : {0, 1, 2, 31, 32, 33, 64, 255, 256, 257, 600})
    expect_near({.queries = {5}, .keys = {keys}, .heads = 1, .kept = 0.5});
}

TEST(MaskedMha, MatchesReferenceForEveryOption) {
  for (const bool causal : {false, true})
    for (const bool offsets : {false, true})
      for (const bool mask : {false, true})
        expect_near({.mask = mask,
                     .causal = causal,
                     .sink = offsets,
                     .lse = mask,
                     .offsets = offsets,
                     .starts = mask ? DType::i64 : DType::i32,
                     .padding = 3});
  expect_near({.sink = true, .form = {LseBase::two, LseEmpty::plus_infinity, true}});
}

TEST(MaskedMha, MatchesReferenceForEveryDensity) {
  for (const double kept : {0.0, 0.003, 0.03, 0.5, 1.0})
    expect_near({.queries = {70}, .keys = {700}, .heads = 1, .kept = kept, .out = DType::f32});
}

TEST(MaskedMha, EmptyShapes) {
  expect_near({.queries = {0}, .keys = {0}});
  expect_near({.queries = {}, .keys = {50}, .mask = false});
  expect_near({.queries = {4}, .keys = {0}, .causal = true});
}

// MHA-22, MHA-23: any starts, any offsets.
TEST(MaskedMha, StartsAndOffsetsAreData) {
  const std::vector<std::vector<std::int64_t>> starts = {
      {-5, 10, 4, 900}, {30, 20, 10, 0}, {0, 47, 47, 47}, {-2147483648, 2147483647, 7, 9}};
  for (const auto& start : starts) {
    for (const std::int64_t offset :
         {std::int64_t{0}, std::int64_t{-40}, std::int64_t{1000}, std::numeric_limits<std::int64_t>::max(),
          std::numeric_limits<std::int64_t>::min()}) {
      for (const bool causal : {false, true}) {
        expect_parity(
            [&] {
              MhaCall call = make_call({.causal = causal, .offsets = true, .starts = DType::i64});
              call.q_start = TensorBox::of(DType::i64, start);
              call.k_start = TensorBox::of(DType::i64, start);
              for (std::int64_t b = 0; b < 3; ++b) call.key_offset.at<std::int64_t>(b) = offset;
              return call;
            },
            NearAttention{});
      }
    }
  }
}

// MHA-25.
TEST(MaskedMha, MaskOfOnesGivesTheBytesOfNoMask) {
  on_every_set([](const std::string& label, const Executor* executor) {
    for (const bool causal : {false, true}) {
      MhaCall ones = make_call({.causal = causal, .kept = 1});
      fill_box(ones.mask, [](auto, auto, auto) { return 4294967295.0; });
      MhaCall none = ones;
      none.shape.mask = false;
      ASSERT_TRUE(run_with(ones.args(), "cpu", "", executor).ok());
      ASSERT_TRUE(run_with(none.args(), "cpu", "", executor).ok());
      EXPECT_EQ(ones.out.bytes(), none.out.bytes()) << label;
      EXPECT_EQ(ones.lse.bytes(), none.lse.bytes()) << label;
    }
  });
}

// MHA-24.
TEST(MaskedMha, PaddingBitsChangeNoByte) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MhaCall ones = make_call({.offsets = false});
    MhaCall zeros = ones;
    const Tensor mask = zeros.mask.tensor();
    for (std::int64_t b = 0; b < mask.shape[0]; ++b)
      for (std::int64_t row = 0; row < mask.shape[1]; ++row)
        for (std::int64_t key = 0; key < mask.shape[2] * 32; ++key)
          if (row >= zeros.shape.queries[static_cast<std::size_t>(b)] ||
              key >= zeros.shape.keys[static_cast<std::size_t>(b)])
            set_bit(zeros, b, row, key, false);
    ASSERT_TRUE(run_with(ones.args(), "cpu", "", executor).ok());
    ASSERT_TRUE(run_with(zeros.args(), "cpu", "", executor).ok());
    EXPECT_EQ(ones.out.bytes(), zeros.out.bytes()) << label;
    EXPECT_EQ(ones.lse.bytes(), zeros.lse.bytes()) << label;
  });
}

// MHA-26: per row, so also where another query of the same tile keeps the key.
TEST(MaskedMha, KeysThatARowDoesNotKeepMayBeAnything) {
  for (const double odd : {kNaN, kInfinity, 1e38}) {
    on_every_set([&](const std::string& label, const Executor* executor) {
      MhaCall clean = make_call({.queries = {40}, .keys = {600}, .kept = 0.2});
      MhaCall dirty = clean;
      // Key 7 is kept by query 3 only, key 300 by none.
      for (MhaCall* call : {&clean, &dirty}) {
        for (std::int64_t row = 0; row < 40; ++row) {
          set_bit(*call, 0, row, 7, row == 3);
          set_bit(*call, 0, row, 300, false);
        }
      }
      for (const std::int64_t key : {7, 300}) {
        for (std::int64_t c = 0; c < 192; c += 5) dirty.k.set(odd, 2 + key, 1, c);
        for (std::int64_t c = 0; c < 128; c += 3) dirty.v.set(odd, 2 + key, 1, c);
      }
      ASSERT_TRUE(run_with(clean.args(), "cpu", "", executor).ok());
      ASSERT_TRUE(run_with(dirty.args(), "cpu", "", executor).ok());
      for (std::int64_t query = 0; query < 40; ++query) {
        if (query == 3) continue;
        EXPECT_EQ(token_bytes(clean, 2 + query), token_bytes(dirty, 2 + query))
            << label << ", query " << query;
      }
    });
  }
}

TEST(MaskedMha, KeptValuesThatAreNotFiniteCount) {
  expect_parity(
      [&] {
        MhaCall call = make_call({.queries = {40}, .keys = {600}, .kept = 0.2, .out = DType::f32});
        for (std::int64_t row = 0; row < 40; ++row) set_bit(call, 0, row, 7, row % 3 == 0);
        call.v.set(kNaN, 2 + 7, 0, 5);
        call.v.set(kInfinity, 2 + 7, 1, 6);
        return call;
      },
      NearAttention{});
}

// MHA-27.
TEST(MaskedMha, BytesDependOnTheRowAlone) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MhaCall whole =
        make_call({.queries = {50, 20}, .keys = {500, 300}, .causal = true, .kept = 0.1, .out = DType::f32});
    ASSERT_TRUE(run_with(whole.args(), "cpu").ok());
    MhaCall again =
        make_call({.queries = {50, 20}, .keys = {500, 300}, .causal = true, .kept = 0.1, .out = DType::f32});
    ASSERT_TRUE(run_with(again.args(), "cpu", "", executor).ok());
    EXPECT_EQ(whole.out.bytes(), again.out.bytes()) << label;
    // Queries 13..20 of the first request alone: the same mask, an offset, the whole request's count.
    MhaCall part = whole;
    part.q_start = TensorBox::of<std::int64_t>(DType::i32, {2 + 13, 2 + 21, 2 + 21});
    part.q_offset = TensorBox::of<std::int64_t>(DType::i32, {13, 0});
    TensorBox q_total = TensorBox::of<std::int64_t>(DType::i64, {50, 0});
    MaskedMhaArgs a = part.args();
    a.q_total = q_total.tensor();
    ASSERT_TRUE(run_with(a, "cpu", "", executor).ok());
    for (std::int64_t token = 15; token < 23; ++token)
      EXPECT_EQ(token_bytes(part, token), token_bytes(whole, token)) << label << ", token " << token;
    // Tokens that no request owns any more.
    EXPECT_EQ(part.out.get(2, 0, 0), 0.0);
    EXPECT_EQ(part.lse.get(60, 1), -kInfinity);
  });
}

// 64 queries go through a span together or in two groups, whichever is cheaper: in 32s they give the same
// bytes.
TEST(MaskedMha, BytesDoNotDependOnTheTile) {
  on_every_set([](const std::string& label, const Executor* executor) {
    for (const double kept : {0.01, 0.1, 0.9}) {
      const Shape shape{.queries = {70}, .keys = {700}, .heads = 1, .kept = kept, .out = DType::f32};
      MhaCall whole = make_call(shape);
      for (std::int64_t row = 40; row < 60; ++row)
        for (std::int64_t key = 200; key < 700; ++key) set_bit(whole, 0, row, key, key % 100 == 7);
      whole.v.set(kNaN, 2 + 307, 0, 4);
      ASSERT_TRUE(run_with(whole.args(), "cpu", "", executor).ok());
      for (std::int64_t first = 0; first < 70; first += 32) {
        const std::int64_t last = std::min<std::int64_t>(first + 32, 70);
        MhaCall part = whole;
        part.q_start = TensorBox::of<std::int64_t>(DType::i32, {2 + first, 2 + last});
        part.q_offset = TensorBox::of<std::int64_t>(DType::i32, {first});
        MaskedMhaArgs a = part.args();
        a.q_offset = part.q_offset.tensor();
        ASSERT_TRUE(run_with(a, "cpu", "", executor).ok());
        for (std::int64_t token = 2 + first; token < 2 + last; ++token)
          EXPECT_EQ(token_bytes(part, token), token_bytes(whole, token)) << label << ", token " << token;
      }
    }
  });
}

// Keys [0, n) and [n, end) with the offset of the second part, merged, are the whole: for every n.
TEST(MaskedMha, KeyOffsetIsExact) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MhaCall whole = make_call({.queries = {6}, .keys = {100}, .heads = 1, .kept = 0.4, .out = DType::f32});
    ASSERT_TRUE(run_with(whole.args(), "cpu", "", executor).ok());
    for (std::int64_t first = 0; first <= 100; ++first) {
      MhaCall parts[2] = {whole, whole};
      parts[0].k_start = TensorBox::of<std::int64_t>(DType::i32, {2, 2 + first});
      parts[1].k_start = TensorBox::of<std::int64_t>(DType::i32, {2 + first, 102});
      parts[1].key_offset = TensorBox::of<std::int64_t>(DType::i64, {first});
      parts[1].q_offset = TensorBox::of<std::int64_t>(DType::i32, {0});
      parts[1].shape.offsets = true;
      for (MhaCall& part : parts) ASSERT_TRUE(run_with(part.args(), "cpu", "", executor).ok());
      for (std::int64_t token = 2; token < 8; ++token) {
        const double lse[2] = {parts[0].lse.get(token, 0), parts[1].lse.get(token, 0)};
        const double sum = std::exp(lse[0]) + std::exp(lse[1]);
        const double expected = whole.lse.get(token, 0);
        EXPECT_TRUE(near_lse(expected, std::log(sum)))
            << label << ", first " << first << ": " << std::log(sum);
        const double mean = (std::exp(lse[0]) * parts[0].out.get(token, 0, 77) +
                             std::exp(lse[1]) * parts[1].out.get(token, 0, 77)) /
                            sum;
        if (sum > 0) {
          EXPECT_NEAR(mean, whole.out.get(token, 0, 77), 1e-5) << label << ", first " << first;
        }
      }
    }
  });
}

// ---- failures seen in the field ----

TEST(MaskedMhaCases, H18_rows_of_any_pitch) {
  // 2 requests, 129 queries, 129 keys: 256 rows of 8 words; then the same mask behind other pitches.
  std::vector<unsigned char> expected;
  for (const std::int64_t words : {8, 5, 7, 12}) {
    MhaCall call = make_call({.queries = {129, 129}, .keys = {129, 129}, .heads = 1});
    call.mask = TensorBox(DType::u32, {2, 256, words}, words == 7 ? 3 : 0, 1, words == 5 ? 1 : 0);
    fill_box(call.mask, [](auto, auto, auto) { return 0.0; });
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t row = 0; row < 129; ++row)
        for (const std::int64_t key : {0, 31, 32, 63, 64, 128}) set_bit(call, b, row, key);
    ASSERT_EQ(call.mask.at<std::uint32_t>(0, 0, 0), 0x80000001u);
    ASSERT_EQ(call.mask.at<std::uint32_t>(1, 128, 4), 1u);
    ASSERT_TRUE(run_with(call.args(), "cpu").ok());
    if (words == 8) {
      MhaCall reference = call;
      ASSERT_TRUE(run_with(reference.args(), "reference").ok());
      MhaCall copy = call;
      NearAttention{}("H18", reference.boxes(), copy.boxes());
      expected = call.out.bytes();
    }
    EXPECT_EQ(call.out.bytes(), expected) << words << " words";
  }
}

TEST(MaskedMhaCases, H29_each_head_has_its_own_keys) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MhaCall call = make_call({.queries = {1}, .keys = {4}, .heads = 4, .out = DType::f32});
    fill_box(call.mask, [](auto, auto, auto) { return 13.0; });  // keys 0, 2, 3
    fill_box(call.v, [](auto, auto h, auto) { return h < 2 ? 1.0 : 5.0; });
    ASSERT_TRUE(run_with(call.args(), "cpu", "", executor).ok());
    for (std::int64_t h = 0; h < 4; ++h)
      EXPECT_NEAR(call.out.get(2, h, 100), h < 2 ? 1.0 : 5.0, 1e-6) << label;
  });
}

TEST(MaskedMhaCases, H30_empty_rows_are_zero) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MhaCall call = make_call({.queries = {3}, .keys = {3}, .heads = 1, .out = DType::f32});
    fill_box(call.q, [](auto, auto, auto) { return 0.0; });
    fill_box(call.v, [](auto key, auto, auto) {
      return key == 2 ? 1.0 : key == 3 ? 2.0 : key == 4 ? 4.0 : kNaN;
    });
    const double words[] = {1, 0, 6};
    fill_box(call.mask, [&](auto, auto row, auto w) { return w == 0 && row < 3 ? words[row] : 0.0; });
    ASSERT_TRUE(run_with(call.args(), "cpu", "", executor).ok());
    const double expected[] = {1, 0, 3}, lse[] = {0, -kInfinity, std::log(2.0)};
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t c = 0; c < 128; ++c)
        ASSERT_NEAR(call.out.get(2 + i, 0, c), expected[i], 1e-6) << label;
      EXPECT_TRUE(near_lse(lse[i], call.lse.get(2 + i, 0))) << label;
    }
  });
}

TEST(MaskedMhaCases, H43_workspace_with_lse) {
  MaskedMhaArgs a;
  a.q = a.k = Tensor::dense(nullptr, DType::bf16, {16384, 64, 192});
  a.v = a.out = Tensor::dense(nullptr, DType::bf16, {16384, 64, 128});
  a.q_start = a.k_start = Tensor::dense(nullptr, DType::i32, {16385});
  a.softmax_scale = 1.f;
  MaskedMhaPlan without, with;
  ASSERT_TRUE(plan(a, {}, without).ok());
  a.lse = Tensor::dense(nullptr, DType::f32, {16384, 64});
  ASSERT_TRUE(plan(a, {}, with).ok());
  EXPECT_GE(with.workspace_bytes, without.workspace_bytes);
  MhaCall call = make_call({});
  MaskedMhaPlan planned;
  ASSERT_TRUE(plan(call.args(), {}, planned).ok());
  GuardedWorkspace workspace(planned.workspace_bytes);
  Workspace small = workspace.view();
  small.bytes -= 64;
  const auto before = call.out.bytes();
  EXPECT_EQ(run(planned, call.args(), small, {}).code, Code::workspace_too_small);
  EXPECT_EQ(call.out.bytes(), before);
}

TEST(MaskedMhaCases, H62_sliced_queries_keep_their_rule) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MhaCall whole = make_call({.queries = {256}, .keys = {256}, .heads = 1, .causal = true, .kept = 0.3});
    ASSERT_TRUE(run_with(whole.args(), "cpu", "", executor).ok());
    MhaCall half = whole;
    half.q_start = TensorBox::of<std::int64_t>(DType::i32, {2 + 128, 2 + 256});
    half.q_offset = TensorBox::of<std::int64_t>(DType::i32, {128});
    ASSERT_TRUE(run_with(half.args(), "cpu", "", executor).ok());
    for (std::int64_t token = 130; token < 258; ++token)
      EXPECT_EQ(token_bytes(half, token), token_bytes(whole, token)) << label << ", token " << token;
    MaskedMhaArgs missing = half.args();
    missing.q_offset = {};
    EXPECT_EQ(std::string(run_with(missing, "cpu").rule).substr(0, 6), "MHA-16");
  });
}

TEST(MaskedMhaCases, H64_one_mask_for_every_request) {
  for (const bool stride_zero : {false, true}) {
    expect_parity(
        [&] {
          MhaCall call = make_call({.queries = {40, 40}, .keys = {130, 130}, .heads = 3});
          TensorBox one(DType::u32, {1, 60, 8});  // guard bytes lie where a second request's mask would be
          fill_box(one, [&](auto, auto row, auto w) { return w < 7 ? call.mask.get(0, row, w) : 0.0; });
          call.mask = one;
          call.shape.mask_stride_zero = stride_zero;
          return call;
        },
        NearAttention{});
  }
}

}  // namespace
}  // namespace keysieve::test

#include "keysieve/sparse_mla.hpp"

#include <gtest/gtest.h>

#include "support/attention.hpp"
#include "support/learned.hpp"

namespace keysieve::test {
namespace {

// What the keys look like: `rising` makes the maximum grow from key to key, `sharp` gives one key nearly all
// weight, `equal` all keys the same.
enum class Keys { random, rising, sharp, equal, huge };

struct Shape {
  std::int64_t rows = 3, heads = 8, k = 100, dim = 576, pages = 5, page_tokens = 64;
  DType out = DType::bf16, indices = DType::i32;
  bool lse = true, sink = false, lengths = false, extra = false;
  std::int64_t padding = 0;
  Keys keys = Keys::random;
  LseForm form{};
};

struct MlaCall {
  TensorBox q, cache, indices, lengths, extra_cache, extra_indices, extra_lengths, sink, out, lse;
  bool has_lengths = false, has_extra = false, has_sink = false, has_lse = true;
  float scale = 0.0722f;
  LseForm form{};

  SparseMlaArgs args() {
    SparseMlaArgs a;
    a.q = q.tensor();
    a.cache = cache.tensor();
    a.indices = indices.tensor();
    if (has_lengths) a.lengths = lengths.tensor();
    if (has_extra) {
      a.extra_cache = extra_cache.tensor();
      a.extra_indices = extra_indices.tensor();
      if (has_lengths) a.extra_lengths = extra_lengths.tensor();
    }
    if (has_sink) a.sink = sink.tensor();
    a.softmax_scale = scale;
    a.out = out.tensor();
    if (has_lse) a.lse = lse.tensor();
    a.lse_form = form;
    return a;
  }
  std::vector<TensorBox*> boxes() {
    return {&q, &cache, &indices, &lengths, &extra_cache, &extra_indices, &extra_lengths, &sink, &out, &lse};
  }
};

// Every cache row that no list names is NaN.
void fill_cache(TensorBox& cache, TensorBox& indices, Keys keys, Numbers& numbers) {
  const Tensor t = cache.tensor();
  fill_box(cache, [](auto, auto, auto) { return kNaN; });
  const Tensor list = indices.tensor();
  const std::int64_t slots = t.shape[0] * t.shape[1];
  std::vector<bool> filled(static_cast<std::size_t>(slots), false);
  for (std::int64_t i = 0; i < list.shape[0]; ++i) {
    for (std::int64_t j = 0; j < list.shape[1]; ++j) {
      const auto slot = static_cast<std::int64_t>(indices.get(i, j));
      if (slot < 0 || slot >= slots || filled[static_cast<std::size_t>(slot)]) continue;
      filled[static_cast<std::size_t>(slot)] = true;
      const double grow = keys == Keys::rising ? 0.02 * static_cast<double>(j) : keys == Keys::huge ? 30 : 0;
      for (std::int64_t c = 0; c < t.shape[2]; ++c) {
        double value = numbers.normal();
        if (keys == Keys::equal) value = 0.5 + static_cast<double>(c % 7);
        if (keys == Keys::rising) value = 0.3 * value + grow;
        if (keys == Keys::sharp && j == 70) value = 3 * std::abs(value);
        if (keys == Keys::huge) value *= grow;
        cache.set(value, slot / t.shape[1], slot % t.shape[1], c);
      }
    }
  }
}

void fill_indices(TensorBox& indices, std::int64_t slots, Numbers& numbers) {
  fill_box(indices, [&](auto i, auto j, auto) -> double {
    if (i % 4 == 3) return -1;  // an empty row
    switch (numbers.below(12)) {
      case 0:
        return -1;
      case 1:
        return static_cast<double>(slots + numbers.below(3));
      case 2:
        return j % 2 == 0 ? -2147483648.0 : 2147483647.0;
      default:
        return static_cast<double>(numbers.below(std::max<std::int64_t>(slots, 1)));
    }
  });
}

MlaCall make_call(const Shape& s) {
  Numbers numbers(static_cast<std::uint64_t>(s.rows * 1000 + s.heads * 10 + s.k));
  MlaCall call{TensorBox(DType::bf16, {s.rows, s.heads, s.dim}, s.padding, 1, s.padding % 2),
               TensorBox(DType::bf16, {s.pages, s.page_tokens, s.dim}, s.padding * 8),
               TensorBox(s.indices, {s.rows, s.k}, s.padding),
               TensorBox(s.indices == DType::i32 ? DType::i64 : DType::i32, {s.rows}),
               TensorBox(DType::bf16, {3, 16, s.dim}, s.padding),
               TensorBox(DType::i32, {s.rows, 37}, s.padding),
               TensorBox(DType::i64, {s.rows}),
               TensorBox(DType::f32, {s.heads}),
               TensorBox(s.out, {s.rows, s.heads, 512}, s.padding, 1, s.padding % 2),
               TensorBox(DType::f32, {s.rows, s.heads}, s.padding)};
  call.has_lengths = s.lengths;
  call.has_extra = s.extra;
  call.has_sink = s.sink;
  call.has_lse = s.lse;
  call.form = s.form;
  fill_box(call.q, [&](auto, auto, auto) {
    return s.keys == Keys::rising ? 0.5 + 0.2 * numbers.normal() : numbers.normal();
  });
  fill_indices(call.indices, s.pages * s.page_tokens, numbers);
  fill_indices(call.extra_indices, 48, numbers);
  fill_cache(call.cache, call.indices, s.keys, numbers);
  fill_cache(call.extra_cache, call.extra_indices, s.keys, numbers);
  call.lengths.fill([&](auto i, auto) { return i % 3 == 0 ? s.k + 5 : i % 3 == 1 ? s.k / 2 : -7; });
  call.extra_lengths.fill([&](auto i, auto) { return i % 2 == 0 ? 20 : 37; });
  call.sink.fill([&](auto i, auto) { return i % 5 == 4 ? -kInfinity : 2 * numbers.normal(); });
  return call;
}

void expect_near(const Shape& s) {
  expect_parity([&] { return make_call(s); }, NearAttention{});
}

TEST(SparseMla, MatchesReferenceForEveryHeadCount) {
  for (const std::int64_t heads : {1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 64, 65, 128})
    expect_near({.rows = 2, .heads = heads, .k = 70});
}

TEST(SparseMla, MatchesReferenceForEveryListLength) {
  for (const std::int64_t k : {0, 1, 2, 5, 63, 64, 65, 127, 129, 300})
    for (const std::int64_t dim : {576, 512}) expect_near({.heads = 5, .k = k, .dim = dim});
}

TEST(SparseMla, MatchesReferenceForEveryKindOfKeys) {
  for (const Keys keys : {Keys::random, Keys::rising, Keys::sharp, Keys::equal, Keys::huge}) {
    for (const DType out : {DType::bf16, DType::f32}) {
      // Scores in the hundreds carry fp32 errors that show in an fp32 output.
      if (keys == Keys::huge && out == DType::f32) continue;
      expect_near({.rows = 2, .heads = 6, .k = 200, .pages = 9, .out = out, .sink = true, .keys = keys});
    }
  }
}

TEST(SparseMla, MatchesReferenceForEveryOption) {
  for (const bool sink : {false, true})
    for (const bool lengths : {false, true})
      for (const bool extra : {false, true})
        for (const DType indices : {DType::i32, DType::i64})
          expect_near({.rows = 5,
                       .heads = 3,
                       .k = 90,
                       .out = DType::f32,
                       .indices = indices,
                       .lse = !extra || sink,
                       .sink = sink,
                       .lengths = lengths,
                       .extra = extra,
                       .padding = 3});
}

TEST(SparseMla, MatchesReferenceForEveryLseForm) {
  for (const LseBase base : {LseBase::natural, LseBase::two})
    for (const LseEmpty empty : {LseEmpty::minus_infinity, LseEmpty::plus_infinity})
      for (const bool with_sink : {false, true})
        expect_near({.rows = 4, .heads = 6, .k = 20, .sink = with_sink, .form = {base, empty, with_sink}});
}

TEST(SparseMla, EmptyShapes) {
  expect_near({.rows = 0});
  expect_near({.k = 0});
  expect_near({.pages = 0});
  expect_near({.pages = 2, .page_tokens = 0});
}

// A kept key with NaN or infinity is the row's own affair; it stays in that row.
TEST(SparseMla, NonFiniteKeysStayInTheirRow) {
  for (const double odd : {kNaN, kInfinity, -kInfinity}) {
    expect_parity(
        [&] {
          MlaCall call = make_call({.rows = 2, .heads = 4, .k = 80});
          const auto slot = static_cast<std::int64_t>(call.indices.get(0, 75));
          call.indices.fill([&](auto i, auto j) { return i == 0 && j == 75 ? 3 : i == 0 ? 4 + j : 100 + j; });
          Numbers numbers(5);
          for (std::int64_t page = 0; page < 5; ++page)
            for (std::int64_t token = 0; token < 64; ++token)
              for (std::int64_t c = 0; c < 576; ++c) call.cache.set(numbers.normal(), page, token, c);
          call.cache.set(odd, 0, 3, 40);
          (void)slot;
          return call;
        },
        NearAttention{});
  }
}

// One score is NaN and another -inf, in both orders of the list: NaN, never "no keys".
TEST(SparseMla, NanAmongInfinities) {
  for (const bool nan_first : {false, true}) {
    const auto make = [&] {
      MlaCall call = make_call({.rows = 1, .heads = 1, .k = 2});
      fill_box(call.q, [](auto, auto, auto) { return 1.0; });
      for (std::int64_t c = 0; c < 576; ++c) {
        call.cache.set(c == 0 ? kNaN : 1.0, 0, 0, c);
        call.cache.set(c == 0 ? -kInfinity : 1.0, 0, 1, c);
      }
      call.indices.fill([&](auto, auto j) { return (j == 0) == nan_first ? 0 : 1; });
      return call;
    };
    MlaCall call = make();
    ASSERT_TRUE(run_with(call.args(), "reference").ok());
    EXPECT_TRUE(std::isnan(call.lse.get(0, 0)));
    expect_parity(make, NearAttention{});
  }
}

// ---- bytes that must not change: MLA-19, MLA-21, MLA-22 ----

std::vector<unsigned char> row_bytes(MlaCall& call, std::int64_t row, std::int64_t heads) {
  std::vector<unsigned char> bytes;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t c = 0; c < 512; ++c) {
      const auto value = call.out.at<std::uint16_t>(row, h, c);
      bytes.insert(bytes.end(), {static_cast<unsigned char>(value), static_cast<unsigned char>(value >> 8)});
    }
    const auto* lse = reinterpret_cast<const unsigned char*>(&call.lse.at<float>(row, h));
    bytes.insert(bytes.end(), lse, lse + 4);
  }
  return bytes;
}

// The call with only these rows, in this order, and the first `heads` heads.
MlaCall part_of(MlaCall& whole, const std::vector<std::int64_t>& rows, std::int64_t heads) {
  const Tensor q = whole.q.tensor(), list = whole.indices.tensor();
  const auto count = static_cast<std::int64_t>(rows.size());
  MlaCall part{TensorBox(DType::bf16, {count, heads, q.shape[2]}),
               whole.cache,
               TensorBox(DType::i32, {count, list.shape[1]}),
               whole.lengths,
               whole.extra_cache,
               whole.extra_indices,
               whole.extra_lengths,
               whole.sink,
               TensorBox(DType::bf16, {count, heads, 512}),
               TensorBox(DType::f32, {count, heads})};
  fill_box(part.q,
           [&](auto i, auto h, auto c) { return whole.q.get(rows[static_cast<std::size_t>(i)], h, c); });
  fill_box(part.indices,
           [&](auto i, auto j, auto) { return whole.indices.get(rows[static_cast<std::size_t>(i)], j); });
  return part;
}

TEST(SparseMla, BytesDependOnTheRowAlone) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MlaCall whole = make_call({.rows = 6, .heads = 37, .k = 150});
    ASSERT_TRUE(run_with(whole.args(), "cpu", "", executor).ok());
    MlaCall again = make_call({.rows = 6, .heads = 37, .k = 150});
    ASSERT_TRUE(run_with(again.args(), "cpu").ok());
    EXPECT_EQ(whole.out.bytes(), again.out.bytes()) << label << ": threads change bytes";
    for (const std::int64_t heads : {37, 17, 16, 8, 7, 3, 2, 1}) {
      MlaCall part = part_of(whole, {4, 1, 1}, heads);
      ASSERT_TRUE(run_with(part.args(), "cpu", "", executor).ok());
      EXPECT_EQ(row_bytes(part, 0, heads), row_bytes(whole, 4, heads)) << label << ", heads " << heads;
      EXPECT_EQ(row_bytes(part, 1, heads), row_bytes(whole, 1, heads)) << label << ", heads " << heads;
      EXPECT_EQ(row_bytes(part, 2, heads), row_bytes(whole, 1, heads)) << label << ", heads " << heads;
    }
  });
}

TEST(SparseMla, IgnoredEntriesChangeNoByte) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MlaCall plain = make_call({.rows = 1, .heads = 5, .k = 200});
    std::int64_t next = 0;
    plain.indices.fill([&](auto, auto j) { return j < 100 ? 300 - j : -1; });
    Numbers numbers(3);
    fill_cache(plain.cache, plain.indices, Keys::random, numbers);
    MlaCall holes = plain;
    holes.indices.fill([&](auto, auto j) {
      return j % 2 == 0 ? static_cast<double>(300 - next++) : j % 4 == 1 ? -9. : 320.;
    });
    ASSERT_TRUE(run_with(plain.args(), "cpu", "", executor).ok());
    ASSERT_TRUE(run_with(holes.args(), "cpu", "", executor).ok());
    EXPECT_TRUE(std::isfinite(plain.lse.get(0, 0))) << label;
    EXPECT_EQ(row_bytes(plain, 0, 5), row_bytes(holes, 0, 5)) << label;
  });
}

// ---- failures seen in the field ----

void set_ones(MlaCall& call) {
  fill_box(call.cache, [](auto, auto, auto) { return 1.0; });
}

// MLA-20.
TEST(SparseMlaCases, H06_entries_past_the_length) {
  for (const std::int64_t rows : {64, 65}) {
    const auto make = [&] {
      MlaCall call = make_call({.rows = rows, .heads = 2, .k = 512, .pages = 2, .lengths = true});
      call.indices.fill([](auto i, auto j) { return j < i % 5 ? 10 + j : 7; });
      call.lengths.fill([](auto i, auto) { return i % 5; });
      fill_box(call.cache, [](auto page, auto token, auto c) {
        return page == 0 && token == 7 ? 1000. : static_cast<double>((token * 31 + c * 7) % 13) / 8;
      });
      return call;
    };
    expect_parity(make, NearAttention{});
    MlaCall call = make();
    ASSERT_TRUE(run_with(call.args(), "cpu").ok());
    EXPECT_EQ(call.out.get(5, 1, 9), 0.0);
    EXPECT_EQ(call.lse.get(5, 1), -kInfinity);
  }
}

TEST(SparseMlaCases, H11_rows_of_one_call_equal_single_calls) {
  on_every_set([](const std::string& label, const Executor* executor) {
    for (const std::int64_t tokens : {3, 6}) {
      MlaCall whole = make_call({.rows = tokens, .heads = 16, .k = 64, .dim = 512});
      ASSERT_TRUE(run_with(whole.args(), "cpu", "", executor).ok());
      for (std::int64_t row = 0; row < tokens; ++row) {
        MlaCall single = part_of(whole, {row}, 16);
        ASSERT_TRUE(run_with(single.args(), "cpu", "", executor).ok());
        EXPECT_EQ(row_bytes(single, 0, 16), row_bytes(whole, row, 16)) << label << ", row " << row;
      }
    }
  });
}

// H15: pages 58,255 and 29,128 of 64 tokens; H41: slot 3,728,271. One key each, V = 1.
void expect_one_far_key(std::int64_t pages, std::int64_t page_tokens, std::int64_t slot) {
  const SparseMemory memory(static_cast<std::size_t>(pages * page_tokens) * 1152);
  if (!memory.there()) GTEST_SKIP() << "no address space";
  for (std::int64_t c = 0; c < 576; ++c) memory.as<std::uint16_t>()[slot * 576 + c] = to_bf16(1.f);
  MlaCall call = make_call({.rows = 1, .heads = 3, .k = 1});
  call.indices.fill([&](auto, auto) { return slot; });
  SparseMlaArgs a = call.args();
  a.cache = Tensor::dense(memory.as<void>(), DType::bf16, {pages, page_tokens, 576});
  on_every_set([&](const std::string& label, const Executor* executor) {
    fill_box(call.out, [](auto, auto, auto) { return -5.; });
    a.out = call.out.tensor();
    a.lse = call.lse.tensor();
    ASSERT_TRUE(run_with(a, "cpu", "", executor).ok());
    for_each_element(a.out, [&](auto i, auto h, auto c) { ASSERT_EQ(call.out.get(i, h, c), 1.0) << label; });
  });
}
TEST(SparseMlaCases, H15_large_page_ids) {
  expect_one_far_key(58256, 64, 58255 * 64 + 63);
  expect_one_far_key(58256, 64, 29128 * 64);
}
TEST(SparseMlaCases, H41_slot_times_stride) { expect_one_far_key(1, 3728272, 3728271); }

TEST(SparseMlaCases, H29_valid_entries_late_in_the_list) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MlaCall call = make_call({.rows = 1, .heads = 2, .k = 128, .out = DType::f32});
    call.indices.fill([](auto, auto j) { return j < 125 ? -1 : j == 125 ? 0 : j - 124; });
    fill_box(call.cache, [](auto, auto token, auto) {
      return token == 0 ? 1. : token == 2 ? 2. : token == 3 ? 6. : 99.;
    });
    fill_box(call.q, [](auto, auto, auto) { return 0.; });
    ASSERT_TRUE(run_with(call.args(), "cpu", "", executor).ok());
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_NEAR(call.out.get(0, h, 500), 3.0, 1e-6) << label;
      EXPECT_NEAR(call.lse.get(0, h), std::log(3.0), 1e-6) << label;
    }
  });
}

TEST(SparseMlaCases, H43_workspace_with_lse) {
  SparseMlaArgs a;
  a.q = Tensor::dense(nullptr, DType::bf16, {16384, 64, 576});
  a.cache = Tensor::dense(nullptr, DType::bf16, {1, 64, 576});
  a.indices = Tensor::dense(nullptr, DType::i32, {16384, 2048});
  a.out = Tensor::dense(nullptr, DType::bf16, {16384, 64, 512});
  a.softmax_scale = 1.f;
  SparseMlaPlan without, with;
  ASSERT_TRUE(plan(a, {}, without).ok());
  a.lse = Tensor::dense(nullptr, DType::f32, {16384, 64});
  ASSERT_TRUE(plan(a, {}, with).ok());
  EXPECT_GE(with.workspace_bytes, without.workspace_bytes);

  // run_with() uses exactly the planned bytes with guards behind them; one byte less is refused before any
  // write.
  MlaCall call = make_call({.rows = 2, .heads = 64, .k = 130});
  ASSERT_TRUE(run_with(call.args(), "cpu", "", &two_threads()).ok());
  MlaCall fresh = make_call({.rows = 2, .heads = 64, .k = 130});
  const auto before = fresh.out.bytes();
  SparseMlaPlan planned;
  ASSERT_TRUE(plan(fresh.args(), {}, planned).ok());
  GuardedWorkspace workspace(planned.workspace_bytes);
  Workspace small = workspace.view();
  small.bytes -= 64;
  EXPECT_EQ(run(planned, fresh.args(), small, {}).code, Code::workspace_too_small);
  EXPECT_EQ(fresh.out.bytes(), before);
}

TEST(SparseMlaCases, H47_every_head_count_and_k) {
  MlaCall widest = make_call({.rows = 1, .heads = 128, .k = 2048, .pages = 40});
  for (const std::int64_t k : {512, 640, 1152, 2048}) {
    MlaCall at_k = part_of(widest, {0}, 128);
    at_k.has_lengths = true;
    at_k.lengths = TensorBox::of<std::int64_t>(DType::i32, {k});
    MlaCall expected = at_k;
    ASSERT_TRUE(run_with(at_k.args(), "cpu").ok());
    if (k == 640) {
      ASSERT_TRUE(run_with(expected.args(), "reference").ok());
      NearAttention{}("k 640", expected.boxes(), MlaCall(at_k).boxes());
    }
    for (const std::int64_t heads : {1, 2, 7, 8, 16, 17, 32, 64, 96}) {
      MlaCall fewer = part_of(widest, {0}, heads);
      fewer.has_lengths = true;
      fewer.lengths = TensorBox::of<std::int64_t>(DType::i32, {k});
      ASSERT_TRUE(run_with(fewer.args(), "cpu").ok());
      EXPECT_EQ(row_bytes(fewer, 0, heads), row_bytes(at_k, 0, heads)) << "heads " << heads << ", k " << k;
    }
  }
}

TEST(SparseMlaCases, H50_scratch_does_not_grow_with_queries) {
  SparseMlaArgs a;
  a.cache = Tensor::dense(nullptr, DType::bf16, {512, 64, 576});
  a.softmax_scale = 1.f;
  std::size_t most = 0;
  for (const std::int64_t queries : {1, 64, 4096, 32768}) {
    a.q = Tensor::dense(nullptr, DType::bf16, {queries, 64, 576});
    a.indices = Tensor::dense(nullptr, DType::i32, {queries, 2048});
    a.out = Tensor::dense(nullptr, DType::f32, {queries, 64, 512});
    SparseMlaPlan p;
    ASSERT_TRUE(plan(a, {.concurrency = 64}, p).ok());
    most = std::max(most, p.workspace_bytes);
  }
  EXPECT_LE(most, std::size_t{64} << 20);
}

TEST(SparseMlaCases, H58_pages_equal_contiguous) {
  on_every_set([](const std::string& label, const Executor* executor) {
    std::vector<unsigned char> contiguous;
    for (const std::int64_t tokens : {127, 128, 129, 300}) {
      for (const std::int64_t page : {512, 1, 16, 64, 96, 128, 256}) {
        MlaCall call = make_call(
            {.rows = 2, .heads = 3, .k = tokens, .pages = 512 / page + 1, .page_tokens = page, .padding = 5});
        call.indices.fill([&](auto, auto j) { return j * 37 % tokens; });
        fill_box(call.cache, [&](auto p, auto t, auto c) {
          return static_cast<double>(((p * page + t) * 131 + c * 17) % 257 - 128) / 64;
        });
        ASSERT_TRUE(run_with(call.args(), "cpu", "", executor).ok());
        if (page == 512) contiguous = row_bytes(call, 1, 3);
        EXPECT_EQ(row_bytes(call, 1, 3), contiguous) << label << ", page " << page << ", tokens " << tokens;
      }
    }
  });
}

TEST(SparseMlaCases, H66_odd_head_count) {
  on_every_set([](const std::string& label, const Executor* executor) {
    MlaCall call = make_call({.rows = 1, .heads = 17, .k = 64});
    call.indices.fill([](auto, auto j) { return j; });
    set_ones(call);
    fill_box(call.out, [](auto, auto, auto) { return -5.; });
    ASSERT_TRUE(run_with(call.args(), "cpu", "", executor).ok());
    for_each_element(call.out.tensor(), [&](auto i, auto h, auto c) {
      ASSERT_EQ(call.out.get(i, h, c), 1.0) << label << ", head " << h;
    });
  });
}

// ---- learned data: expected values are float64 on the stored tensors ----

template <class T>
std::vector<T> values(const LearnedFile& file, const std::string& name) {
  const T* first = file.data<T>(name);
  return {first, first + file[name].elements()};
}

// Positions to slots through kv_pos; slots are shuffled and every other one is NaN.
struct LearnedCall {
  std::vector<std::uint16_t> cache, q, out;
  std::vector<std::int32_t> indices;
  std::vector<float> lse;
  std::int64_t rows = 0;

  void run_and_compare(const std::vector<std::int64_t>& checked, const std::vector<double>& expected_out,
                       const std::vector<double>& expected_lse) {
    const auto slots = static_cast<std::int64_t>(cache.size()) / 576;
    const std::int64_t k = static_cast<std::int64_t>(indices.size()) / rows;
    for (const char* backend : {"reference", "cpu"}) {
      on_every_set([&](const std::string& label, const Executor* executor) {
        if (backend == std::string("reference") && label.find("AVX2,") == std::string::npos) return;
        out.assign(static_cast<std::size_t>(rows) * 8 * 512, 0xffff);
        lse.assign(static_cast<std::size_t>(rows) * 8, -5.f);
        SparseMlaArgs a;
        a.q = Tensor::dense(q.data(), DType::bf16, {rows, 8, 576});
        a.cache = Tensor::dense(cache.data(), DType::bf16, {slots, 1, 576});
        a.indices = Tensor::dense(indices.data(), DType::i32, {rows, k});
        a.softmax_scale = 0.07216878364870322f;
        a.out = Tensor::dense(out.data(), DType::bf16, {rows, 8, 512});
        a.lse = Tensor::dense(lse.data(), DType::f32, {rows, 8});
        ASSERT_TRUE(run_with(a, backend, "", executor).ok());
        double dot = 0, e2 = 0, g2 = 0;
        for (std::size_t i = 0; i < checked.size(); ++i) {
          for (std::size_t h = 0; h < 8; ++h) {
            const std::size_t from = i * 8 + h, at = static_cast<std::size_t>(checked[i]) * 8 + h;
            ASSERT_TRUE(near_lse(expected_lse[from], double{lse[at]}))
                << backend << label << " row " << checked[i];
            for (std::size_t c = 0; c < 512; ++c) {
              const double e = expected_out[from * 512 + c], g = double{from_bf16(out[at * 512 + c])};
              ASSERT_TRUE(near_output(e, g, true))
                  << backend << label << " row " << checked[i] << ": " << g << " for " << e;
              dot += e * g, e2 += e * e, g2 += g * g;
            }
          }
        }
        EXPECT_LE(1 - dot / std::sqrt(e2 * g2), 5e-6) << backend << label;
      });
    }
  }
};

LearnedCall learned_call(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& kv,
                         const std::vector<std::int32_t>& kv_pos, const std::vector<std::int32_t>& kv_start,
                         const std::vector<std::int32_t>& topk, std::int64_t rows) {
  LearnedCall call;
  call.rows = rows;
  call.q = q;
  const auto keys = static_cast<std::int64_t>(kv_pos.size()),
             requests = static_cast<std::int64_t>(kv_start.size()) - 1;
  const auto slot = [&](std::int64_t key) { return (key * 7919 % keys) * 2 + 1; };
  call.cache.assign(static_cast<std::size_t>(2 * keys) * 576,
                    to_bf16(std::numeric_limits<float>::quiet_NaN()));
  for (std::int64_t key = 0; key < keys; ++key)
    std::memcpy(&call.cache[static_cast<std::size_t>(slot(key)) * 576],
                &kv[static_cast<std::size_t>(key) * 576], 1152);
  const std::int64_t k = static_cast<std::int64_t>(topk.size()) / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto request = static_cast<std::size_t>(row * requests / rows);
    const auto* first = kv_pos.data() + kv_start[request];
    const auto* last = kv_pos.data() + kv_start[request + 1];
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t position = topk[static_cast<std::size_t>(row * k + j)];
      const auto* found = std::find(first, last, position);
      call.indices.push_back(
          position < 0 || found == last ? -1 : static_cast<std::int32_t>(slot(found - kv_pos.data())));
    }
  }
  return call;
}

std::vector<std::int64_t> all_rows(std::int64_t rows) {
  std::vector<std::int64_t> all;
  for (std::int64_t row = 0; row < rows; ++row) all.push_back(row);
  return all;
}

TEST(SparseMlaLearned, Decode8) {
  const LearnedFile file("decode8_layer3_attn");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  learned_call(values<std::uint16_t>(file, "layer3.mla_q"), values<std::uint16_t>(file, "layer3.kv"),
               values<std::int32_t>(file, "layer3.kv_pos"), values<std::int32_t>(file, "layer3.kv_start"),
               values<std::int32_t>(file, "layer3.topk"), 8)
      .run_and_compare(all_rows(8), values<double>(file, "layer3.expected_out"),
                       values<double>(file, "layer3.expected_lse"));
}

TEST(SparseMlaLearned, SpecNext2) {
  const LearnedFile file("spec_next2");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  learned_call(values<std::uint16_t>(file, "layer3.mla_q"), values<std::uint16_t>(file, "layer3.kv"),
               values<std::int32_t>(file, "layer3.kv_pos"), values<std::int32_t>(file, "layer3.kv_start"),
               values<std::int32_t>(file, "layer3.expected_topk"), 8)
      .run_and_compare(all_rows(8), values<double>(file, "layer3.expected_out"),
                       values<double>(file, "layer3.expected_lse"));
}

std::vector<std::int64_t> checked_rows(const LearnedFile& file) {
  const auto rows = values<std::int32_t>(file, "checked_rows");
  return {rows.begin(), rows.end()};
}

TEST(SparseMlaLearned, Prefill64) {
  const LearnedFile file("prefill64_ctx12345");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  const auto positions = values<std::int32_t>(file, "layer3.kv_pos");
  learned_call(values<std::uint16_t>(file, "layer3.mla_q"), values<std::uint16_t>(file, "layer3.kv"),
               positions, {0, static_cast<std::int32_t>(positions.size())},
               values<std::int32_t>(file, "layer3.expected_topk"), 64)
      .run_and_compare(checked_rows(file), values<double>(file, "layer3.expected_out"),
                       values<double>(file, "layer3.expected_lse"));
}

TEST(SparseMlaLearned, Prefill40) {
  const LearnedFile file("prefill40_ctx8192_full");
  if (!file.found()) GTEST_SKIP() << kLearnedDataMissing;
  std::vector<std::int32_t> positions;
  for (std::int32_t position = 0; position < 8192; ++position) positions.push_back(position);
  learned_call(values<std::uint16_t>(file, "layer3.mla_q"), values<std::uint16_t>(file, "layer3.kv"),
               positions, {0, 8192}, values<std::int32_t>(file, "layer3.expected_topk"), 40)
      .run_and_compare(checked_rows(file), values<double>(file, "layer3.expected_out"),
                       values<double>(file, "layer3.expected_lse"));
}

}  // namespace
}  // namespace keysieve::test

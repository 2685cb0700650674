// Rules TOP-01 to TOP-24, each broken alone. TOP-25 to TOP-31 and
// TOP-34 hold for any data: tests/parity/topk*_test.cc. TOP-32 and TOP-33 are the caller's duty.
#include "contract/topk.hpp"

#include <gtest/gtest.h>

#include "contract/general.hpp"
#include "keysieve/plan.hpp"

namespace keysieve {
namespace {

constexpr TopkArgs good_args() {
  TopkArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {6, 64});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {6});
  a.k = 5;
  a.out = Tensor::dense(nullptr, DType::i32, {6, 5});
  return a;
}

constexpr TopkArgs good_paged_args() {
  TopkArgs a = good_args();
  a.space = TopkSpace::paged;
  a.out.dtype = DType::i64;
  a.raw = Tensor::dense(nullptr, DType::i32, {6, 5});
  a.pages.page_table = Tensor::dense(nullptr, DType::i32, {3, 4});
  a.pages.next_n = 2;
  a.pages.row_to_request = Tensor::dense(nullptr, DType::i32, {6});
  a.pages.table_start = Tensor::dense(nullptr, DType::i64, {6});
  return a;
}

constexpr TopkArgs good_compact_args() {
  TopkArgs a = good_args();
  a.layout = ScoreLayout::compact;
  a.candidates = Tensor::dense(nullptr, DType::i32, {6, 8});
  return a;
}

constexpr TopkArgs good_offset_args() {
  TopkArgs a = good_args();
  a.space = TopkSpace::offset;
  a.offset = Tensor::dense(nullptr, DType::i64, {6});
  return a;
}

static_assert(judge(good_args()).ok());
static_assert(judge(good_paged_args()).ok());
static_assert(judge(good_compact_args()).ok());
static_assert(judge(good_offset_args()).ok());
static_assert(judge_tensors(good_paged_args(), "topk").ok());

template <class Change>
constexpr bool breaks(const char* id, TopkArgs a, Change change) {
  change(a);
  const Status s = judge(a);
  if (s.ok() || s.code != Code::invalid_argument) return false;
  for (int i = 0; i < 6; ++i)
    if (s.rule[i] != id[i]) return false;
  return true;
}

constexpr Tensor i32_vector(std::int64_t n) { return Tensor::dense(nullptr, DType::i32, {n}); }
constexpr Tensor matrix(DType dtype, std::int64_t rows, std::int64_t columns) {
  return Tensor::dense(nullptr, dtype, {rows, columns});
}

static_assert(breaks("TOP-01", good_args(), [](auto& a) { a.k = -1; }));
static_assert(breaks("TOP-02", good_args(), [](auto& a) { a.scores = i32_vector(6); }));
static_assert(breaks("TOP-02", good_args(), [](auto& a) { a.scores = {}; }));
static_assert(breaks("TOP-03", good_args(), [](auto& a) { a.scores.dtype = DType::i32; }));
static_assert(breaks("TOP-04", good_args(), [](auto& a) { a.scores.stride[1] = 2; }));
static_assert(breaks("TOP-05", good_args(), [](auto& a) { a.scores.shape[1] = std::int64_t{1} << 31; }));
static_assert(breaks("TOP-06", good_args(), [](auto& a) { a.out.shape[1] = 4; }));
static_assert(breaks("TOP-06", good_args(), [](auto& a) { a.out.shape[0] = 5; }));
static_assert(breaks("TOP-07", good_args(), [](auto& a) { a.values = matrix(DType::f32, 6, 6); }));
static_assert(breaks("TOP-08", good_args(), [](auto& a) { a.values = matrix(DType::bf16, 6, 5); }));
static_assert(breaks("TOP-09", good_args(), [](auto& a) { a.counts = i32_vector(5); }));
static_assert(breaks("TOP-10", good_args(),
                     [](auto& a) { a.counts = Tensor::dense(nullptr, DType::i64, {6}); }));
static_assert(breaks("TOP-11", good_args(), [](auto& a) { a.block_size = 0; }));
static_assert(breaks("TOP-12", good_args(), [](auto& a) { a.candidates = matrix(DType::i32, 5, 8); }));
static_assert(breaks("TOP-13", good_args(), [](auto& a) { a.candidates = matrix(DType::i64, 6, 8); }));
static_assert(breaks("TOP-14", good_args(), [](auto& a) { a.layout = ScoreLayout::compact; }));
static_assert(breaks("TOP-15", good_compact_args(), [](auto& a) { a.block_size = 16; }));
static_assert(breaks("TOP-15", good_compact_args(), [](auto& a) { a.block_size = 7; }));
static_assert(breaks("TOP-16", good_paged_args(), [](auto& a) { a.out.dtype = DType::f32; }));
static_assert(breaks("TOP-17", good_paged_args(), [](auto& a) { a.raw = matrix(DType::i32, 6, 4); }));
static_assert(breaks("TOP-18", good_paged_args(), [](auto& a) { a.raw.dtype = DType::i64; }));
static_assert(breaks("TOP-19", good_args(), [](auto& a) { a.out.dtype = DType::i64; }));
static_assert(breaks("TOP-20", good_args(), [](auto& a) { a.raw = matrix(DType::i32, 6, 5); }));
static_assert(breaks("TOP-21", good_args(), [](auto& a) { a.pages.page_table = matrix(DType::i32, 3, 4); }));
static_assert(breaks("TOP-22", good_offset_args(), [](auto& a) { a.offset = i32_vector(5); }));
static_assert(breaks("TOP-23", good_offset_args(), [](auto& a) { a.offset.dtype = DType::f32; }));
static_assert(breaks("TOP-24", good_args(), [](auto& a) { a.offset = i32_vector(6); }));
static_assert(breaks("PGM-01", good_paged_args(), [](auto& a) { a.pages.page_table = i32_vector(3); }));
static_assert(breaks("BND-01", good_args(), [](auto& a) { a.bounds.end = {}; }));

// Legal, however odd.
static_assert(judge([] {
                TopkArgs a = good_args();
                a.k = 0;
                a.out.shape[1] = 0;
                return a;
              }())
                  .ok());
static_assert(judge([] {
                TopkArgs a = good_args();
                a.scores.shape[1] = 0;
                a.scores.stride[0] = -70;  // views may run backwards
                return a;
              }())
                  .ok());
static_assert(judge([] {
                TopkArgs a = good_args();
                a.scores.shape[1] = 1;
                a.scores.stride[1] = 9;  // DLPack rewrites strides of axes of size 1
                return a;
              }())
                  .ok());

TEST(TopkContract, MessagesNameRuleArgumentAndValue) {
  TopkArgs a = good_args();
  a.out.shape[1] = 4;
  const std::string message = judge(a).message();
  for (const char* part : {"topk", "out", "TOP-06", "[6, 4]", "[6, 5]"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(TopkContract, TooSmallAWorkspaceWritesNothing) {
  std::vector<float> scores(6 * 64, 1.f);
  std::vector<std::int32_t> end(6, 64), out(30, 77);
  TopkArgs a = good_args();
  a.scores.data = scores.data();
  a.bounds.end.data = end.data();
  a.out.data = out.data();
  TopkPlan p;
  ASSERT_TRUE(plan(a, {}, p).ok());
  EXPECT_STREQ(p.kernel_name, "cpu.topk.filter");
  ASSERT_GT(p.workspace_bytes, 0u);
  alignas(64) static unsigned char memory[1 << 20];
  EXPECT_EQ(run(p, a, {memory, p.workspace_bytes - 1}, {}).code, Code::workspace_too_small);
  EXPECT_EQ(out, std::vector<std::int32_t>(30, 77));
  EXPECT_TRUE(run(p, a, {memory, p.workspace_bytes}, {}).ok());
}

}  // namespace
}  // namespace keysieve

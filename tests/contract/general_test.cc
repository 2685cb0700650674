// Rules that every operation shares, shown on candidate_mask and topk: GEN-01 .. GEN-15, BND-01 .. BND-15.
#include "contract/general.hpp"

#include <gtest/gtest.h>

#include "contract/candidate_mask.hpp"
#include "keysieve/candidate_blocks.hpp"
#include "keysieve/masked_mha.hpp"
#include "keysieve/merge_states.hpp"
#include "keysieve/topk.hpp"
#include "support/parity.hpp"

namespace keysieve {
namespace {

constexpr CandidateMaskArgs good_args() {
  CandidateMaskArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {6, 64});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {6});
  a.candidates = Tensor::dense(nullptr, DType::i32, {6, 4});
  return a;
}

static_assert(judge(good_args()).ok());
static_assert(judge_tensors(good_args(), "candidate_mask").ok());

template <class Change>
constexpr bool breaks(const char* id, Change change) {
  CandidateMaskArgs a = good_args();
  change(a);
  Status s = judge_tensors(a, "candidate_mask");
  if (s.ok()) s = judge(a);
  if (s.ok()) return false;
  for (int i = 0; i < 6; ++i)
    if (s.rule[i] != id[i]) return false;
  return true;
}

constexpr auto lengths = [](CandidateMaskArgs& a) {
  a.bounds.form = BoundsForm::lengths;
  a.bounds.next_n = 2;
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {3});
};

static_assert(breaks("GEN-01", [](auto& a) { a.scores.rank = 5; }));
static_assert(breaks("GEN-14", [](auto& a) { a.scores.dtype = static_cast<DType>(77); }));
static_assert(breaks("GEN-02", [](auto& a) { a.scores.shape[0] = -1; }));
static_assert(breaks("GEN-03", [](auto& a) { a.scores.stride[0] = 0; }));
// A dense [6, 0] has stride 0 along its rows, and nothing to share.
static_assert(judge_tensors(
                  [] {
                    auto a = good_args();
                    a.scores = Tensor::dense(nullptr, DType::f32, {6, 0});
                    return a;
                  }(),
                  "candidate_mask")
                  .ok());
static_assert(breaks("GEN-04", [](auto& a) { a.candidates.device = {DeviceType::cuda, 0}; }));
static_assert(breaks("GEN-13",
                     [](auto& a) { a.scores.shape[0] = a.scores.shape[1] = std::int64_t{1} << 32; }));
static_assert(breaks("GEN-13", [](auto& a) { a.scores.stride[0] = std::int64_t{1} << 58; }));
static_assert(breaks("GEN-13", [](auto& a) { a.scores.stride[0] = INT64_MIN; }));
static_assert(breaks("GEN-13", [](auto& a) {
  a.scores.shape[0] = INT64_MAX;
  a.scores.shape[1] = 0;
}));
static_assert(breaks("BND-01", [](auto& a) { a.bounds.end = {}; }));
static_assert(breaks("BND-02", [](auto& a) { a.bounds.end.dtype = DType::f32; }));
static_assert(breaks("BND-03", [](auto& a) { a.bounds.start = Tensor::dense(nullptr, DType::u8, {6}); }));
static_assert(breaks("BND-04", [](auto& a) { a.bounds.row_repeat = 0; }));
static_assert(breaks("BND-05", [](auto& a) { a.bounds.next_n = 0; }));
static_assert(breaks("BND-06", [](auto& a) { a.bounds.ratio = 0; }));
static_assert(breaks("BND-07", [](auto& a) { a.bounds.row_repeat = 4; }));
static_assert(breaks("BND-08", [](auto& a) { a.bounds.start = Tensor::dense(nullptr, DType::i32, {5}); }));
static_assert(breaks("BND-09", [](auto& a) { a.bounds.ratio = 4; }));
static_assert(breaks("BND-10", [](auto& a) { a.bounds.next_n = 2; }));
static_assert(breaks("BND-11", [](auto& a) {
  lengths(a);
  a.bounds.start = Tensor::dense(nullptr, DType::i32, {3});
}));
static_assert(breaks("BND-12", [](auto& a) {
  lengths(a);
  a.bounds.row_repeat = 2;
}));
static_assert(breaks("BND-13", [](auto& a) {
  lengths(a);
  a.bounds.next_n = 4;
}));
static_assert(breaks("BND-14", [](auto& a) {
  lengths(a);
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {3, 3});
}));
static_assert(breaks("BND-15", [](auto& a) {
  lengths(a);
  a.bounds.ratio = 4;
  a.bounds.unit = LengthUnit::compressed;
}));
static_assert(judge([] {
                auto a = good_args();
                lengths(a);
                a.bounds.ratio = 4;
                return a;
              }())
                  .ok());

struct Call {
  test::TensorBox scores{DType::f32, {2, 64}}, end{test::TensorBox::of<int>(DType::i32, {64, 64})},
      candidates{DType::i32, {2, 1}};
  CandidateMaskArgs args() {
    candidates.fill([](auto, auto) { return 1; });
    scores.fill([](auto, auto) { return 1; });
    CandidateMaskArgs a;
    a.scores = scores.tensor();
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    return a;
  }
};

TEST(General, GEN_05_and_GEN_06_addresses) {
  Call call;
  CandidateMaskArgs a = call.args();
  CandidateMaskPlan p;
  ASSERT_TRUE(plan(a, {}, p).ok());
  test::GuardedWorkspace workspace(p.workspace_bytes);
  a.scores.data = nullptr;
  EXPECT_EQ(std::string(run(p, a, workspace.view(), {}).rule).substr(0, 6), "GEN-05");
  a.scores.data = static_cast<char*>(call.args().scores.data) + 1;
  EXPECT_EQ(std::string(run(p, a, workspace.view(), {}).rule).substr(0, 6), "GEN-06");
}

TEST(General, GEN_07_to_GEN_10_plans) {
  Call call;
  const CandidateMaskArgs a = call.args();
  CandidateMaskPlan p;
  EXPECT_EQ(std::string(plan(a, {.concurrency = 0}, p).rule).substr(0, 6), "GEN-07");
  const Status refused = plan(a, {.kernel = "cpu.candidate_mask.none"}, p);
  EXPECT_EQ(refused.code, Code::unsupported);
  EXPECT_EQ(std::string(refused.rule).substr(0, 6), "GEN-08");
  EXPECT_NE(std::string(refused.seen).find("cpu.candidate_mask.gaps: another kernel was asked for"),
            std::string::npos)
      << refused.seen;
  EXPECT_EQ(std::string(run(CandidateMaskPlan{}, a, {}, {}).rule).substr(0, 6), "GEN-09");
  // GEN-10 needs a kernel that refuses some shape; tests of such kernels cover it.
}

TEST(General, GEN_11_and_GEN_12_workspace) {
  Call call;
  const CandidateMaskArgs a = call.args();
  CandidateMaskPlan p;
  ASSERT_TRUE(plan(a, {}, p).ok());
  ASSERT_GT(p.workspace_bytes, 0u);
  test::GuardedWorkspace workspace(p.workspace_bytes + 64);
  const std::vector<unsigned char> before = call.scores.bytes();
  Workspace small = workspace.view();
  small.bytes = 1;
  const Status refused = run(p, a, small, {});
  EXPECT_EQ(refused.code, Code::workspace_too_small);
  EXPECT_EQ(std::string(refused.rule).substr(0, 6), "GEN-11");
  Workspace crooked = workspace.view();
  crooked.data = static_cast<char*>(crooked.data) + 8;
  EXPECT_EQ(std::string(run(p, a, crooked, {}).rule).substr(0, 6), "GEN-12");
  EXPECT_EQ(before, call.scores.bytes()) << "a refused call wrote something";
}

template <class Args>
std::string workspace_rule(const Args& args) {
  Plan<Args> p;
  return std::string(plan(args, {.concurrency = INT32_MAX}, p).rule).substr(0, 6);
}

// Views that a few bytes of memory can back, since what is only read may have strides of 0; a workspace's size
// that wrapped around would be written past.
TEST(General, GEN_15_workspaces_do_not_wrap_around) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const auto repeated = [](DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor t = Tensor::dense(nullptr, dtype, shape);
    for (std::int64_t& stride : t.stride) stride = 0;
    return t;
  };
  CandidateMaskArgs mask;
  mask.scores = Tensor::dense(nullptr, DType::bf16, {1, kMany});
  mask.bounds.end = Tensor::dense(nullptr, DType::i32, {1});
  mask.candidates = Tensor::dense(nullptr, DType::i32, {1, 4});
  mask.block_size = 1;
  EXPECT_EQ(workspace_rule(mask), "GEN-15");
  TopkArgs topk;
  topk.scores = repeated(DType::f32, {1, 64});
  topk.scores.stride[1] = 1;
  topk.bounds.end = mask.bounds.end;
  topk.candidates = repeated(DType::i32, {1, kMany});
  topk.k = 4;
  topk.out = Tensor::dense(nullptr, DType::i32, {1, 4});
  EXPECT_EQ(workspace_rule(topk), "GEN-15");
  CandidateBlocksArgs blocks;
  blocks.scores = repeated(DType::f32, {1, INT32_MAX});
  blocks.bounds.end = mask.bounds.end;
  blocks.block_size = 1;
  blocks.candidates = Tensor::dense(nullptr, DType::i32, {1, INT32_MAX});
  EXPECT_EQ(workspace_rule(blocks), "GEN-15");
  MergeStatesArgs merge;
  merge.outs = repeated(DType::f32, {kMany, 1, 1, 128});
  merge.outs.stride[3] = 1;
  merge.lses = repeated(DType::f32, {kMany, 1, 1});
  merge.out = Tensor::dense(nullptr, DType::f32, {1, 1, 128});
  EXPECT_EQ(workspace_rule(merge), "GEN-15");
}

template <class Args>
Status run_without_memory(const Args& args) {
  Plan<Args> p;
  if (const Status refused = plan(args, {.concurrency = 2}, p); !refused.ok()) return refused;
  EXPECT_LT(p.workspace_bytes, std::size_t{1} << 24) << p.kernel_name;
  test::GuardedWorkspace workspace(p.workspace_bytes);
  return run(p, args, workspace.view(), {});
}

// Were the rows counted one by one, this test would not end.
TEST(General, GEN_02_rows_without_anything_to_write_take_no_time) {
  constexpr std::int64_t kRows = std::int64_t{1} << 48;
  float one[512] = {};
  std::int32_t zero = 0;
  const auto repeated = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor t = Tensor::dense(dtype == DType::i32 ? static_cast<void*>(&zero) : one, dtype, shape);
    for (int axis = 0; axis + 1 < t.rank; ++axis) t.stride[axis] = 0;
    return t;
  };
  const auto nothing = [](DType dtype, std::initializer_list<std::int64_t> shape) {
    return Tensor::dense(nullptr, dtype, shape);
  };
  Tensor ends = repeated(DType::i32, {kRows});
  ends.stride[0] = 0;

  TopkArgs topk;
  topk.scores = repeated(DType::f32, {kRows, 8});
  topk.bounds.end = ends;
  topk.out = nothing(DType::i32, {kRows, 0});
  EXPECT_EQ(run_without_memory(topk).message(), "ok");
  CandidateBlocksArgs blocks;
  blocks.scores = topk.scores;
  blocks.bounds = topk.bounds;
  blocks.candidates = topk.out;
  EXPECT_EQ(run_without_memory(blocks).message(), "ok");
  CandidateMaskArgs mask;
  mask.scores = nothing(DType::f32, {kRows, 0});
  mask.bounds = topk.bounds;
  mask.candidates = repeated(DType::i32, {kRows, 4});
  EXPECT_EQ(run_without_memory(mask).message(), "ok");
  MergeStatesArgs merge;
  merge.outs = nothing(DType::f32, {2, kRows, 0, 128});
  merge.lses = nothing(DType::f32, {2, kRows, 0});
  merge.out = nothing(DType::f32, {kRows, 0, 128});
  EXPECT_EQ(run_without_memory(merge).message(), "ok");
  MaskedMhaArgs mha;
  mha.q = mha.k = mha.v = mha.out = nothing(DType::bf16, {kRows, 0, 128});
  mha.q_start = mha.k_start = ends;
  mha.softmax_scale = 1;
  EXPECT_EQ(run_without_memory(mha).message(), "ok");
}

// Requests without tokens cost nothing, however many a view claims.
TEST(General, WorkspaceOfManyEmptyRequests) {
  MaskedMhaArgs a;
  a.q = Tensor::dense(nullptr, DType::bf16, {3, 1, 128});
  a.k = a.v = Tensor::dense(nullptr, DType::bf16, {5, 1, 128});
  a.q_start = a.k_start = Tensor::dense(nullptr, DType::i32, {std::int64_t{1} << 57});
  a.q_start.stride[0] = a.k_start.stride[0] = 0;
  a.softmax_scale = 1;
  a.out = Tensor::dense(nullptr, DType::bf16, {3, 1, 128});
  MaskedMhaPlan p;
  ASSERT_TRUE(plan(a, {}, p).ok());
  EXPECT_GT(p.workspace_bytes, 0u);
  EXPECT_LT(p.workspace_bytes, std::size_t{1} << 20);
}

TEST(General, MessagesNameOperationArgumentExpectedAndSeen) {
  Call call;
  CandidateMaskArgs a = call.args();
  a.candidates.shape[0] = 3;
  CandidateMaskPlan p;
  EXPECT_EQ(plan(a, {}, p).message(),
            "candidate_mask: candidates: expected candidates is [rows, candidates] (MSK-03), got [3, 1] "
            "where [2, -1] "
            "would fit (-1: any)");
}

}  // namespace
}  // namespace keysieve

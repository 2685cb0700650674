// Every rule of docs/contracts/check.md is broken once, in the tensors of a run that holds.
#include <cmath>

#include "check_step.hpp"
#include "pipeline.hpp"
#include "support/program_call.hpp"

namespace keysieve::cli {
namespace {

using io::FileDType;
using test::ProgramTest;
using test::StepBuilder;

template <class T>
void dump(StepBuilder& b, const char* name, FileDType dtype, std::vector<std::int64_t> shape,
          const Buffer<T>& values) {
  if (!values.empty())
    b.add(name, dtype, std::move(shape), std::vector<T>(values.data(), values.data() + values.size()));
}

class Check : public ProgramTest {
 protected:
  // Adds what the reference computes, as an engine would dump it.
  void complete(StepBuilder& b) {
    io::StepFile file;
    const Status status = io::StepFile::open(write(b), file);
    ASSERT_TRUE(status.ok()) << status.message();
    const io::Step& step = file.steps()[0];
    RunOptions options;
    options.kernels.backend = "reference";
    options.keep_logits = true;
    options.mask = MaskWish::never;
    StepOutputs out;
    io::StepReport report;
    ASSERT_TRUE(run_step(step, options, out, report).ok());
    dump(b, "out_logits", FileDType::f32, {step.rows, step.width}, out.logits);
    dump(b, "out_candidates", FileDType::i32, {step.rows, step.candidate_count}, out.candidates);
    dump(b, "out_indices", FileDType::i32, {step.rows, out.k}, out.indices);
    dump(b, "out_counts", FileDType::i32, {step.rows}, out.counts);
    dump(b, "out_slots", FileDType::i32, {step.rows, out.k}, out.slots);
    dump(b, "out_latent", FileDType::f32, {step.rows, step.heads, 512}, out.out);
    dump(b, "out_lse", FileDType::f32, {step.rows, step.heads}, out.lse);
    // One request: a mask of 128 rows.
    if (step.requests == 1) {
      std::vector<std::uint32_t> mask(128 * 4);
      for (std::int64_t r = 0; r < step.rows; ++r) {
        for (std::int64_t t = 0; t < out.k; ++t) {
          const std::int32_t key = out.indices[r * out.k + t];
          if (key >= 0) mask[static_cast<std::size_t>(r * 4 + key / 32)] |= 1u << (key % 32);
        }
      }
      b.add("out_mask", FileDType::u32, {1, 128, 4}, mask);
    }
  }
  // The first broken stage, row and rule id, "" when every stage holds.
  std::string broken(const StepBuilder& b) {
    io::StepFile file;
    const Status status = io::StepFile::open(write(b), file);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return "unreadable";
    for (const Finding& f : check_step(file.steps()[0], 0, {})) {
      values_ = f.values;
      if (f.verdict == Finding::Verdict::unchecked) return f.stage + " unchecked: " + f.values;
      if (f.verdict == Finding::Verdict::broken)
        return f.stage + " row " + std::to_string(f.row) + " " + f.rule.substr(0, 6);
    }
    return "";
  }
  template <class Change>
  std::string broken_after(StepBuilder b, const Change& change) {
    change(b);
    return broken(b);
  }
  std::string values_;
};

TEST_F(Check, EveryRuleOfAPrefillStepIsNoticed) {
  StepBuilder good = StepBuilder::prefill(4, 100, 8);
  good.ints("candidate_blocks", {4, 6},
            {1, 3, 5, 7, 9, 12, 0, 2, 4, 6, 8, 12, 1, 2, 3, 4, 5, 12, 6, 7, 8, 9, 10, 11});
  complete(good);
  ASSERT_EQ(broken(good), "");
  const auto ints = [](StepBuilder& b, const char* name) { return b.data<std::int32_t>(name); };

  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<float>("out_logits")[1 * 100 + 17] += 0.5f; }),
            "mqa_logits row 1 CHK-01");
  EXPECT_NE(values_.find("key 17 has"), std::string::npos) << values_;
  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<float>("out_logits")[2 * 100 + 3] = NAN; }),
            "mqa_logits row 2 CHK-02");
  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<float>("out_logits")[2 * 100 + 3] = -INFINITY; }),
            "mqa_logits row 2 CHK-02");
  // Row 0 sees 97 keys; what lies behind is nobody's.
  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<float>("out_logits")[98] = NAN; }), "");

  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { ints(b, "out_indices")[0] = 99; }), "topk row 0 CHK-06");
  EXPECT_EQ(
      broken_after(good, [&](StepBuilder& b) { ints(b, "out_indices")[8] = ints(b, "out_indices")[9]; }),
      "topk row 1 CHK-06");
  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { ints(b, "out_indices")[16] = -1; }),
            "topk row 2 CHK-07");
  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { ints(b, "out_indices")[3 * 8] = 0; }),
            "topk row 3 CHK-08");
  EXPECT_EQ(values_, "key 0 of block 0, which is not listed");
  // Another key of a listed block: the first of block 6 .. 9 that row 3 did not take.
  EXPECT_EQ(broken_after(good,
                         [&](StepBuilder& b) {
                           std::int32_t* row = ints(b, "out_indices") + 3 * 8;
                           for (std::int32_t key = 48;; ++key) {
                             if (std::find(row, row + 8, key) == row + 8) {
                               row[7] = key;
                               break;
                             }
                           }
                         }),
            "topk row 3 CHK-09");
  EXPECT_NE(values_.find("is missing, key"), std::string::npos) << values_;
  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { ints(b, "out_indices")[7] = -1; }), "topk row 0 CHK-09");
  // Any order will do.
  EXPECT_EQ(broken_after(good,
                         [&](StepBuilder& b) {
                           std::reverse(ints(b, "out_indices"), ints(b, "out_indices") + 8);
                           std::reverse(ints(b, "out_slots"), ints(b, "out_slots") + 8);
                         }),
            "");

  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { ints(b, "out_counts")[2] = 7; }), "counts row 2 CHK-10");
  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { ints(b, "out_slots")[8 + 3] += 1; }),
            "translate row 1 CHK-11");
  EXPECT_EQ(broken_after(good,
                         [](StepBuilder& b) {
                           std::uint32_t* words = b.data<std::uint32_t>("out_mask") + 2 * 4;
                           while (*words == 0) ++words;
                           *words &= *words - 1;
                         }),
            "packed_mask row 2 CHK-12");
  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<std::uint32_t>("out_mask")[3] |= 0x80000000u; }),
            "packed_mask row 0 CHK-13");
  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<std::uint32_t>("out_mask")[100 * 4] = 1; }),
            "packed_mask row -1 CHK-13");
  EXPECT_NE(values_.find("(padding)"), std::string::npos) << values_;
  EXPECT_EQ(
      broken_after(good, [](StepBuilder& b) { b.data<float>("out_latent")[(3 * 4 + 1) * 512 + 5] += 0.1f; }),
      "sparse_mla row 3 CHK-14");
  EXPECT_NE(values_.find("head 1, element 5, has"), std::string::npos) << values_;
  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<float>("out_latent")[0] = NAN; }),
            "sparse_mla row 0 CHK-14");
  EXPECT_EQ(broken_after(good, [](StepBuilder& b) { b.data<float>("out_lse")[4] += 0.01f; }),
            "lse row 1 CHK-15");
  EXPECT_EQ(broken_after(good,
                         [](StepBuilder& b) {
                           for (int c = 0; c < 512; ++c) b.data<float>("out_latent")[c] *= 1.007f;
                         }),
            "sparse_mla row 0 CHK-14")
      << "inside the bound of each element, but not as a vector";
}

TEST_F(Check, APublishersBlocksAreJudged) {
  StepBuilder good = StepBuilder::prefill(3, 100, 8);
  good.metadata["role"] = "publisher";
  good.metadata["candidate_count"] = "5";
  complete(good);
  if (!good.arrays.contains("out_candidates")) GTEST_SKIP() << "the reference has no candidate_blocks";
  ASSERT_EQ(broken(good), "");
  const auto row = [](StepBuilder& b, int r) { return b.data<std::int32_t>("out_candidates") + r * 5; };
  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { row(b, 0)[0] = 13; }), "candidate_blocks row 0 CHK-03");
  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { row(b, 1)[0] = row(b, 1)[1]; }),
            "candidate_blocks row 1 CHK-03");
  EXPECT_EQ(broken_after(good, [&](StepBuilder& b) { *std::find(row(b, 2), row(b, 2) + 5, 12) = -1; }),
            "candidate_blocks row 2 CHK-04");
  EXPECT_EQ(broken_after(good,
                         [&](StepBuilder& b) {
                           for (std::int32_t id = 0;; ++id) {
                             if (std::find(row(b, 1), row(b, 1) + 5, id) == row(b, 1) + 5) {
                               row(b, 1)[row(b, 1)[0] == 12 ? 1 : 0] = id;
                               break;
                             }
                           }
                         }),
            "candidate_blocks row 1 CHK-05");
  EXPECT_NE(values_.find("is missing, block"), std::string::npos) << values_;
}

// Without the engine's scores, keys that rounding exchanges at the cut are no fault; with them, they are.
TEST_F(Check, RoundingAtTheCut) {
  StepBuilder b = StepBuilder::prefill(1, 64, 4);
  // Keys 10 and 11 are almost the same, and the greatest by far: of four places the others are not in
  // question.
  b.metadata["topk"] = "1";
  std::uint16_t* keys = b.data<std::uint16_t>("index_k");
  const std::uint16_t* q = b.data<std::uint16_t>("index_q");
  for (const int key : {10, 11}) {
    for (int d = 0; d < 128; ++d) keys[key * 128 + d] = test::to_bf16(4 * test::from_bf16(q[d]));
  }
  float* w = b.data<float>("index_w");
  for (int h = 0; h < 4; ++h) w[h] = h == 0 ? 1.0f : 0.0f;
  complete(b);
  ASSERT_EQ(broken(b), "");
  ASSERT_EQ(b.data<std::int32_t>("out_indices")[0], 10) << "the smaller of equal keys";
  b.data<std::int32_t>("out_indices")[0] = 11;
  for (const char* name : {"out_slots", "out_mask", "out_latent", "out_lse", "out_counts"})
    b.arrays.erase(name);
  EXPECT_EQ(broken(b), "topk row 0 CHK-09") << "equal scores of the engine itself";
  b.arrays.erase("out_logits");
  EXPECT_EQ(broken(b), "");
  b.data<std::int32_t>("out_indices")[0] = 12;
  EXPECT_EQ(broken(b), "topk row 0 CHK-09");
}

TEST_F(Check, PagedDecodeHoldsAndItsSlotsAreJudged) {
  StepBuilder b = StepBuilder::decode({40, 0, 33, 5}, 2, 8);
  complete(b);
  ASSERT_EQ(broken(b), "");
  EXPECT_EQ(broken_after(b, [](StepBuilder& c) { c.data<std::int32_t>("out_slots")[4 * 8] ^= 1; }),
            "translate row 4 CHK-11");
  EXPECT_EQ(broken_after(b, [](StepBuilder& c) { c.data<float>("out_lse")[2 * 4] = 0; }), "lse row 2 CHK-15")
      << "a row without keys has -inf";
}

TEST_F(Check, TheProgramNamesTheFirstBreak) {
  StepBuilder b = StepBuilder::prefill(4, 100, 8);
  complete(b);
  EXPECT_EQ(call({"check", write(b)}), kDone) << out_ << err_;
  // Two faults: the earlier stage is named.
  b.data<float>("out_lse")[0] += 1;
  b.data<std::int32_t>("out_indices")[8] = b.data<std::int32_t>("out_indices")[9];
  EXPECT_EQ(call({"check", write(b)}), kDisagrees) << out_;
  EXPECT_TRUE(contains(
      out_, "First broken: step, topk, row 1, CHK-06 selected keys lie inside the row, none twice: key "))
      << out_;
  EXPECT_TRUE(contains(out_, "CHK-15")) << out_;
  EXPECT_EQ(err_, "");
}

}  // namespace
}  // namespace keysieve::cli

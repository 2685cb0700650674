#include "io/step_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "support/step_builder.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace keysieve::io {
namespace {

using test::StepBuilder;

class StepFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/keysieve_step_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const StepBuilder& builder) {
    const std::string path = folder_ + "/step.safetensors";
    EXPECT_TRUE(builder.write(path).ok());
    return path;
  }
  Status open(const StepBuilder& builder) { return StepFile::open(write(builder), file_); }
  // "STP-03 index_w layer3.: F32 [1, 2]": rule id, argument, what was seen; "ok" for a good file.
  std::string verdict(const StepBuilder& builder) {
    const Status status = open(builder);
    if (status.ok()) return "ok";
    EXPECT_EQ(status.code, Code::bad_file);
    EXPECT_TRUE(file_.steps().empty());
    return std::string(status.rule).substr(0, 6) + " " + status.argument + " " + status.seen;
  }
  std::string folder_;
  StepFile file_;
};

TEST_F(StepFiles, PrefillOfOneRequest) {
  ASSERT_EQ(verdict(StepBuilder::prefill(5, 40, 8)), "ok");
  const Step& step = file_.steps().at(0);
  EXPECT_EQ(step.name, "step");
  EXPECT_EQ(step.rows, 5);
  EXPECT_EQ(step.requests, 1);
  EXPECT_EQ(step.q_start, (std::vector<std::int32_t>{0, 5}));
  EXPECT_EQ(step.width, 40);
  EXPECT_EQ(step.visible(0), 36);
  EXPECT_EQ(step.visible(4), 40);
  EXPECT_EQ(step.topk, 8);
  EXPECT_EQ(step.latent.form, LatentCache::Form::full);
  EXPECT_EQ(step.latent.slot(0, 39), 39);
  EXPECT_EQ(step.latent.slot(0, 40), -1);
  EXPECT_TRUE(step.latent.complete(0, 40));
  EXPECT_FALSE(step.latent.complete(0, 41));
  EXPECT_TRUE(file_.unused().empty());
}

TEST_F(StepFiles, PagedDecodeKeepsTheLengthForm) {
  StepBuilder b = StepBuilder::decode({20, 0, 33}, 2, 8);
  ASSERT_EQ(verdict(b), "ok");
  const Step& step = file_.steps().at(0);
  EXPECT_EQ(step.requests, 3);
  EXPECT_EQ(step.rows_per_request, 2);
  EXPECT_EQ(step.file_bounds.form, BoundsForm::lengths);
  EXPECT_EQ(step.file_bounds.next_n, 2);
  const std::vector<std::int64_t> expected = {19, 20, 0, 0, 32, 33};
  for (std::int64_t r = 0; r < 6; ++r) EXPECT_EQ(step.visible(r), expected[static_cast<std::size_t>(r)]);
  EXPECT_EQ(step.width, 33);
  const std::int32_t* table = b.data<std::int32_t>("page_table");
  EXPECT_EQ(step.latent.slot(2, 17), table[2 * 3 + 1] * 16 + 1);
  EXPECT_EQ(step.latent.slot(2, 48), -1);

  b.metadata["ratio"] = "4";
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_EQ(file_.steps()[0].visible(5), 8);
  b.metadata["length_unit"] = "compressed";
  EXPECT_EQ(verdict(b), "STP-06 lengths ratio 4 and 2 rows");
  b.ints("lengths", {3, 2}, {1, 2, -5, 0, 7, 900});
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_EQ(file_.steps()[0].visible(2), 0);
  EXPECT_EQ(file_.steps()[0].visible(5), 48) << "clamped to the page table";
}

TEST_F(StepFiles, RowBoundsOfPackedColumns) {
  StepBuilder b = StepBuilder::prefill(4, 40, 8);
  b.arrays.erase("query_pos");
  b.metadata["row_repeat"] = "2";
  b.ints("row_start", {2}, {-3, 50});
  b.ints("row_end", {2}, {10, 45});
  ASSERT_EQ(verdict(b), "ok");
  const Step& step = file_.steps()[0];
  EXPECT_EQ(step.first_column, (std::vector<std::int64_t>{0, 0, 40, 40}));
  EXPECT_EQ(step.end_column, (std::vector<std::int64_t>{10, 10, 40, 40}));
}

TEST_F(StepFiles, LayersShareTensorsAndTheFirstPublishes) {
  StepBuilder b = StepBuilder::prefill(2, 32, 4);
  for (const char* name : {"index_q", "index_w"}) {
    b.arrays[std::string("layer7.") + name] = b.arrays[name];
    b.arrays[std::string("layer12.") + name] = b.arrays[name];
    b.arrays.erase(name);
  }
  b.ints("candidate_blocks", {2, 3}, {0, 1, 2, 3, -1, -1});
  b.metadata["layer12.topk"] = "5";
  b.ints("mystery", {1}, {0});
  ASSERT_EQ(verdict(b), "ok");
  ASSERT_EQ(file_.steps().size(), 2u);
  EXPECT_EQ(file_.steps()[0].name, "layer 7");
  EXPECT_EQ(file_.steps()[0].role, Role::publish);
  EXPECT_EQ(file_.steps()[0].candidate_count, 3);
  EXPECT_EQ(file_.steps()[1].role, Role::consume);
  EXPECT_EQ(file_.steps()[1].topk, 5);
  EXPECT_EQ(file_.unused(), (std::vector<std::string>{"mystery"}));
  // The shared value counts for nobody once each layer has its own, and is judged all the same.
  b.metadata["layer7.topk"] = "6";
  b.metadata["topk"] = "many";
  EXPECT_EQ(verdict(b), "STP-02 topk layer7.: \"many\", allowed 0 to 1048576");
  b.metadata["topk"] = "4";
  b.metadata["layer8.topk"] = "nobody's";
  b.metadata["note"] = "";
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_EQ(file_.unused_metadata(), (std::vector<std::string>{"layer8.topk", "note"}));
  b.metadata["layer12.role"] = "none";
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_EQ(file_.steps()[1].role, Role::none);
}

TEST_F(StepFiles, CompactLatentRows) {
  StepBuilder b = StepBuilder::prefill(2, 32, 4);
  b.random("kv", {3, 576});
  b.ints("kv_pos", {3}, {30, 2, 5});
  ASSERT_EQ(verdict(b), "ok");
  const LatentCache& latent = file_.steps()[0].latent;
  EXPECT_EQ(latent.slot(0, 2), 1);
  EXPECT_EQ(latent.slot(0, 3), -1);
  EXPECT_EQ(latent.slot(0, 30), 0);
  EXPECT_FALSE(latent.complete(0, 3));
  b.ints("kv_pos", {3}, {1, 2, 0});
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_TRUE(file_.steps()[0].latent.complete(0, 3));
  b.ints("kv_pos", {3}, {2, 1, 2});
  EXPECT_EQ(verdict(b), "STP-10 kv_pos position 2 of request 0 twice");
}

TEST_F(StepFiles, FirstBrokenRuleIsNamed) {
  const StepBuilder good = StepBuilder::prefill(4, 32, 4);
  const auto with = [&](const auto& change) {
    StepBuilder b = good;
    change(b);
    return verdict(b);
  };
  const auto meta = [&](const char* key, const char* value) {
    return with([&](StepBuilder& b) { b.metadata[key] = value; });
  };
  const auto without = [&](const char* name) { return with([&](StepBuilder& b) { b.arrays.erase(name); }); };
  EXPECT_EQ(meta("keysieve_step", "2"), "STP-01 keysieve_step \"2\"");
  EXPECT_EQ(meta("topk", "many"), "STP-02 topk \"many\", allowed 0 to 1048576");
  EXPECT_EQ(meta("topk", "-1"), "STP-02 topk \"-1\", allowed 0 to 1048576");
  EXPECT_EQ(meta("topk", "99999999999999999999"),
            "STP-02 topk \"99999999999999999999\", allowed 0 to 1048576");
  EXPECT_EQ(meta("softmax_scale", "nan"), "STP-02 softmax_scale \"nan\", allowed finite numbers above 0");
  EXPECT_EQ(meta("role", "chief"), "STP-02 role \"chief\", allowed publisher, consumer and none");
  EXPECT_EQ(meta("role", "consumer"), "STP-05 candidate_blocks no tensor of this name for a consumer");
  EXPECT_EQ(meta("role", "publisher"),
            "STP-05 candidate_count no metadata and no candidate_blocks for a publisher");
  EXPECT_EQ(meta("ratio", "0"), "STP-02 ratio \"0\", allowed 1 to 1048576");
  // Keys that this step has no use for are judged all the same.
  EXPECT_EQ(meta("row_repeat", "0"), "STP-02 row_repeat \"0\", allowed 1 to 2147483647");
  EXPECT_EQ(meta("length_unit", "pages"), "STP-02 length_unit \"pages\", allowed tokens and compressed");
  EXPECT_EQ(meta("index_page_tokens", "x"), "STP-02 index_page_tokens \"x\", allowed 1 to 1048576");
  EXPECT_EQ(meta("candidate_count", " 4"), "STP-02 candidate_count \" 4\", allowed 0 to 1048576");
  EXPECT_EQ(meta("layer", "third"), "STP-02 layer \"third\", allowed 0 to 99999");
  EXPECT_EQ(meta("softmax_scale", "0x1p-4"),
            "STP-02 softmax_scale \"0x1p-4\", allowed finite numbers above 0");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.arrays.erase("mla_q");
              b.metadata["softmax_scale"] = "-1";
            }),
            "STP-02 softmax_scale \"-1\", allowed finite numbers above 0");
  EXPECT_EQ(without("index_w"), "STP-05 index_w no tensor of this name");
  EXPECT_EQ(without("index_k"), "STP-05 index_k neither index_k nor index_cache");
  EXPECT_EQ(without("kv"), "STP-05 kv neither kv nor kv_cache");
  EXPECT_EQ(without("query_pos"), "STP-06 query_pos none of them");
  EXPECT_EQ(without("index_q"), "STP-05 topk no tensor of this name, and no index_q to select with");
  EXPECT_EQ(with([](StepBuilder& b) { b.arrays.clear(); }), "STP-09 index_q neither");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.random("index_q", {0, 4, 128});
            }),
            "STP-09 index_q BF16 [0, 4, 128]");
  EXPECT_EQ(with([](StepBuilder& b) { b.random("index_q", {4, 128}); }), "STP-03 index_q BF16 [4, 128]");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.random_f32("index_w", {4, 5});
            }),
            "STP-03 index_w F32 [4, 5] for 4 rows");
  EXPECT_EQ(with([](StepBuilder& b) { b.random("index_k", {32, 64}); }), "STP-03 index_k BF16 [32, 64]");
  EXPECT_EQ(with([](StepBuilder& b) { b.random("mla_q", {4, 2, 300}); }), "STP-03 mla_q BF16 [4, 2, 300]");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.ints("query_pos", {3}, {1, 2, 3});
            }),
            "STP-03 query_pos I32 [3] for 4 rows");
  EXPECT_EQ(with([](StepBuilder& b) { b.ints("lengths", {1}, {9}); }), "STP-06 query_pos 2 of them");
  EXPECT_EQ(with([](StepBuilder& b) { b.ints("k_start", {2}, {0, 33}); }), "STP-07 k_start the end 33 of 32");
  EXPECT_EQ(with([](StepBuilder& b) { b.ints("k_start", {2}, {1, 32}); }), "STP-07 k_start 1 at [0]");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.ints("k_start", {3}, {0, 20, 10});
              b.ints("kv_start", {3}, {0, 1, 2});
            }),
            "STP-07 k_start 10 at [2]");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.ints("k_start", {3}, {0, 2, 4});
              b.ints("kv_start", {2}, {0, 1});
            }),
            "STP-04 kv_start 1 requests, k_start has 2");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.ints("q_start", {2}, {0, 3});
            }),
            "STP-07 q_start the end 3 of 4 rows");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.ints("k_start", {4}, {0, 2, 4, 6});
            }),
            "STP-04 q_start 4 rows of 3 requests");
  EXPECT_EQ(with([](StepBuilder& b) { b.ints("checked_rows", {1}, {4}); }),
            "STP-03 checked_rows 4 of 4 rows");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.ints("checked_rows", {5}, {0, 1, 2, 3, 3});
            }),
            "STP-03 checked_rows 5 of 4 rows");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.ints("out_indices", {3, 4}, std::vector<std::int32_t>(12));
            }),
            "STP-03 out_indices I32 [3, 4] for 4 rows");
  EXPECT_EQ(with([](StepBuilder& b) {
              b.random("index_q", {200, 4, 128});
              b.random_f32("index_w", {200, 4});
              b.metadata["topk"] = "1048576";
              b.ints("query_pos", {200}, std::vector<std::int32_t>(200));
              b.random("mla_q", {200, 4, 576});
            }),
            "STP-08 topk 1048576 for 200 rows");
  // The layer's name stands before what was seen.
  EXPECT_EQ(with([](StepBuilder& b) {
              b.random_f32("layer3.index_w", {4, 5});
            }),
            "STP-03 index_w layer3.: F32 [4, 5] for 4 rows");
}

TEST_F(StepFiles, ValuesAreDataNotErrors) {
  StepBuilder b = StepBuilder::prefill(4, 32, 4);
  b.ints("query_pos", {4}, {-7, 31, INT32_MAX, INT32_MIN});
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_EQ(file_.steps()[0].visible(0), 0);
  EXPECT_EQ(file_.steps()[0].visible(1), 32);
  EXPECT_EQ(file_.steps()[0].visible(2), 32);
  EXPECT_EQ(file_.steps()[0].visible(3), 0);
  b.add<std::int64_t>("query_pos", FileDType::i64, {4}, {INT64_MAX, INT64_MIN, -1, 0});
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_EQ(file_.steps()[0].visible(0), 32);
  EXPECT_EQ(file_.steps()[0].visible(3), 1);
}

// A cache without pages takes no bytes, whatever it says of its pages.
TEST_F(StepFiles, AbsurdPagesOfAnEmptyCache) {
  StepBuilder b = StepBuilder::decode({100, 3}, 1, 2);
  b.add<std::uint16_t>("index_cache", FileDType::bf16, {0, std::int64_t{1} << 50, 128}, {});
  b.ints("index_page_table", {2, 1 << 14}, std::vector<std::int32_t>(2 << 14));
  b.add<std::uint16_t>("kv_cache", FileDType::bf16, {0, std::int64_t{1} << 50, 576}, {});
  ASSERT_EQ(verdict(b), "ok");
  EXPECT_EQ(file_.steps()[0].visible(0), 100);
}

TEST_F(StepFiles, MutatedFilesNeverCrash) {
  std::mt19937 random(3);
  for (const StepBuilder& builder : {StepBuilder::prefill(2, 6, 2, 1), StepBuilder::decode({5, 9}, 2, 2)}) {
    std::stringstream text;
    text << std::ifstream(write(builder), std::ios::binary).rdbuf();
    const std::string base = text.str();
    std::uint64_t header = 0;
    std::memcpy(&header, base.data(), 8);
    for (int round = 0; round < 3000; ++round) {
      std::string bytes = base;
      for (unsigned edit = 0; edit <= random() % 3; ++edit) {
        const std::size_t at = 8 + random() % header;
        if (random() % 3 == 0) {
          bytes[at] = static_cast<char>(random());
        } else if (const auto digit = bytes.find_first_of("0123456789", at); digit != std::string::npos) {
          bytes[digit] = static_cast<char>('0' + random() % 10);
        }
      }
      // Values too: table entries, lengths, starts.
      bytes[8 + header + random() % (bytes.size() - 8 - header)] = static_cast<char>(random());
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
  }
}

// The five learned steps, read as they are.
TEST(StepFilesLearned, ReadAsTheyAre) {
  const char* data = std::getenv("KEYSIEVE_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "KEYSIEVE_TEST_DATA is not set";
  const auto open = [&](const char* name, StepFile& file) {
    const Status status = StepFile::open(std::string(data) + "/tinydsa/" + name + ".safetensors", file);
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok();
  };
  StepFile file;
  ASSERT_TRUE(open("decode8_layer3_index", file));
  EXPECT_EQ(file.steps()[0].name, "layer 3");
  EXPECT_EQ(file.steps()[0].role, Role::consume);
  EXPECT_EQ(file.steps()[0].requests, 8);
  EXPECT_EQ(file.steps()[0].visible(4), 32000);
  EXPECT_EQ(file.steps()[0].expected.score_start[5], 500 + 1203 + 777 + 2049 + 32000);
  ASSERT_TRUE(open("decode8_layer3_attn", file));
  EXPECT_FALSE(file.steps()[0].has_index);
  EXPECT_EQ(file.steps()[0].selection.shape[1], 512);
  EXPECT_EQ(file.steps()[0].latent.form, LatentCache::Form::compact);
  ASSERT_TRUE(open("prefill40_ctx8192_full", file));
  EXPECT_EQ(file.steps()[0].visible(39), 8064);
  EXPECT_TRUE(file.steps()[0].latent.complete(0, 8192));
  EXPECT_EQ(file.steps()[0].expected.checked[15], 3);
  ASSERT_TRUE(open("prefill64_ctx12345", file));
  ASSERT_EQ(file.steps().size(), 2u);
  EXPECT_EQ(file.steps()[0].role, Role::publish);
  EXPECT_EQ(file.steps()[1].role, Role::consume);
  EXPECT_FALSE(file.steps()[0].has_attention);
  EXPECT_TRUE(file.steps()[1].has_attention);
  ASSERT_TRUE(open("spec_next2", file));
  EXPECT_EQ(file.steps()[0].rows_per_request, 2);
  EXPECT_EQ(file.steps()[0].expected.score_start[3], 700 * 2 + 2503);
}

}  // namespace
}  // namespace keysieve::io

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "agreement.hpp"
#include "pipeline.hpp"
#include "summary.hpp"
#include "support/program_call.hpp"
#include "text.hpp"

namespace keysieve::cli {
namespace {

using test::ProgramTest;
using test::StepBuilder;
using Json = nlohmann::json;

class Cli : public ProgramTest {};

std::string sample(const char* name) { return std::string(KEYSIEVE_SAMPLES) + "/" + name + ".safetensors"; }

TEST(CliText, NumbersAsPeopleReadThem) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(duration(1.234e-4), "123 us");
  EXPECT_EQ(duration(0.012345), "12.3 ms");
  EXPECT_EQ(bytes(1.25e6), "1.25 MB");
  EXPECT_EQ(percent(0.1234), "12.3 %");
  EXPECT_EQ(percent(1), "100 %");
  EXPECT_EQ(plural(1, "row"), "1 row");
}

TEST_F(Cli, SamplesRunAndAgreeWithTheirExpectedTensors) {
  for (const char* name : {"prefill", "speculative"}) {
    EXPECT_EQ(call({"run", sample(name), "--compare-dense", "--repeat", "1"}), kDone) << out_ << err_;
    EXPECT_FALSE(contains(out_, "NOT as expected")) << out_;
    EXPECT_TRUE(contains(out_, "as expected")) << out_;
    EXPECT_TRUE(contains(out_, "cpu.topk.")) << out_;
    EXPECT_EQ(err_, "");
  }
  EXPECT_TRUE(contains(out_, "This step looked at 13,400 keys in 4 rows, kept 2,048 (15.3 %)")) << out_;
}

TEST_F(Cli, BackendsAgreeOnTheSamples) {
  for (const char* name : {"prefill", "speculative"}) {
    for (const char* backend : {"cpu", "reference"}) {
      ASSERT_EQ(call({"run", sample(name), "--backend", backend, "--repeat", "1", "--mask", "never", "-o",
                      path(backend)}),
                kDone)
          << out_ << err_;
      EXPECT_TRUE(contains(out_, std::string(backend) + ".topk")) << out_;
    }
    io::SafetensorsFile cpu, reference;
    ASSERT_TRUE(io::SafetensorsFile::open(path("cpu"), cpu).ok());
    ASSERT_TRUE(io::SafetensorsFile::open(path("reference"), reference).ok());
    for (const char* exact : {"layer3.out_indices", "layer3.out_counts", "layer3.out_slots"}) {
      ASSERT_NE(cpu.find(exact), nullptr);
      EXPECT_EQ(std::memcmp(cpu.find(exact)->data, reference.find(exact)->data,
                            static_cast<std::size_t>(cpu.find(exact)->bytes)),
                0)
          << exact;
    }
  }
}

// Selection on a device gives the host's bytes; where there is none, the program says so before it works.
TEST_F(Cli, CudaAgreesOrSaysWhyNot) {
  const std::vector<std::string> backends = backend_names();
  const bool built = std::find(backends.begin(), backends.end(), "cuda") != backends.end();
  for (const char* name : {"prefill", "speculative"}) {
    const auto run = [&](const char* backend) {
      return call({"run", sample(name), "--backend", backend, "--repeat", "2", "--mask", "always", "-o",
                   path(backend), "--json", path("report.json")});
    };
    const int code = run("cuda");
    if (!built) {
      EXPECT_EQ(code, kUsage);
      return;
    }
    if (code == kRefused) {
      EXPECT_TRUE(contains(err_, "--backend cuda: no ")) << err_;
      EXPECT_EQ(out_, "");
      return;
    }
    ASSERT_EQ(code, kDone) << out_ << err_;
    for (const char* kernel : {"cuda.", "cuda.packed_mask.", "cpu.mqa_logits.", "of step"})
      EXPECT_TRUE(contains(out_, kernel)) << out_;
    EXPECT_GT(Json::parse(text_of(path("report.json")))["machine"]["device_copy_bytes_per_second"], 1e9);
    ASSERT_EQ(run("cpu"), kDone);
    io::SafetensorsFile cpu, cuda;
    ASSERT_TRUE(io::SafetensorsFile::open(path("cpu"), cpu).ok());
    ASSERT_TRUE(io::SafetensorsFile::open(path("cuda"), cuda).ok());
    ASSERT_EQ(cpu.tensors().size(), cuda.tensors().size());
    for (const io::FileTensor& tensor : cpu.tensors()) {
      const io::FileTensor* other = cuda.find(tensor.name);
      ASSERT_NE(other, nullptr) << tensor.name;
      EXPECT_EQ(std::memcmp(tensor.data, other->data, static_cast<std::size_t>(tensor.bytes)), 0)
          << tensor.name;
    }
  }
}

TEST_F(Cli, ThreadsAndChunksDoNotChangeResults) {
  for (const bool paged : {false, true}) {
    StepBuilder b = paged ? StepBuilder::decode({40, 0, 33, 7}, 2, 8) : StepBuilder::prefill(12, 90, 16);
    io::StepFile file;
    ASSERT_TRUE(io::StepFile::open(write(b), file).ok());
    const ThreadPool pool(2);
    const Executor executor = pool.executor();
    std::vector<StepOutputs> outputs;
    // All rows at once, three rows at once, one row at once; then with two threads.
    for (const auto& [rows, threads] : {std::pair<std::int64_t, int>{1000, 1}, {3, 1}, {1, 1}, {3, 2}}) {
      RunOptions options;
      options.repeat = 1;
      options.mask = MaskWish::never;
      options.executor = threads == 2 ? &executor : nullptr;
      options.score_bytes = rows * file.steps()[0].width * 4;
      io::StepReport report;
      const Status status = run_step(file.steps()[0], options, outputs.emplace_back(), report);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const io::StageReport& stage : report.stages)
        EXPECT_NE(stage.kernel, "") << stage.stage << stage.refusal;
    }
    for (std::size_t i = 1; i < outputs.size(); ++i) {
      const auto same = [&](const auto& x, const auto& y) {
        return x.size() == y.size() &&
               std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.size()) * sizeof(x[0])) == 0;
      };
      EXPECT_TRUE(same(outputs[0].indices, outputs[i].indices)) << i;
      EXPECT_TRUE(same(outputs[0].slots, outputs[i].slots)) << i;
      EXPECT_TRUE(same(outputs[0].out, outputs[i].out)) << i;
      EXPECT_TRUE(same(outputs[0].lse, outputs[i].lse)) << i;
    }
  }
}

// Attention mass and distance against the plain definition in float64.
TEST_F(Cli, AttentionMassIsTheShareOfTheFullSoftmax) {
  StepBuilder b = StepBuilder::prefill(3, 40, 6, 2);
  io::StepFile file;
  ASSERT_TRUE(io::StepFile::open(write(b), file).ok());
  const io::Step& step = file.steps()[0];
  RunOptions options;
  options.compare_dense = true;
  options.mask = MaskWish::never;
  StepOutputs out;
  io::StepReport report;
  ASSERT_TRUE(run_step(step, options, out, report).ok());
  summarise(step, out, true, report.summary);
  ASSERT_TRUE(report.summary.mass_mean.has_value());
  const auto* q = b.data<std::uint16_t>("mla_q");
  const auto* kv = b.data<std::uint16_t>("kv");
  double mean = 0, least = 1;
  for (int r = 0; r < 3; ++r) {
    for (int h = 0; h < 2; ++h) {
      std::vector<double> weight;
      double total = 0, kept = 0;
      for (int c = 0; c < 38 + r; ++c) {
        double dot = 0;
        for (int d = 0; d < 576; ++d) {
          dot += static_cast<double>(test::from_bf16(q[(r * 2 + h) * 576 + d])) *
                 static_cast<double>(test::from_bf16(kv[c * 576 + d]));
        }
        weight.push_back(std::exp(0.0722 * dot));
        total += weight.back();
      }
      for (int t = 0; t < 6; ++t) kept += weight.at(static_cast<std::size_t>(out.indices[r * 6 + t]));
      mean += kept / total / 6;
      least = std::min(least, kept / total);
    }
  }
  EXPECT_NEAR(*report.summary.mass_mean, mean, 1e-4);
  EXPECT_NEAR(*report.summary.mass_least, least, 1e-4);
  EXPECT_GT(*report.summary.dense_distance, 0);
}

TEST_F(Cli, KeepingEveryKeyCarriesAllAttention) {
  ASSERT_EQ(call({"run", write(StepBuilder::prefill(4, 20, 20)), "--compare-dense", "--mask", "never"}),
            kDone)
      << out_ << err_;
  EXPECT_TRUE(contains(out_, "kept 74 (100 %), which carry 100 % of the attention.")) << out_;
  EXPECT_TRUE(contains(out_, "0 relative distance")) << out_;
}

TEST_F(Cli, PagedDecodeGoesThroughTranslate) {
  ASSERT_EQ(call({"run", write(StepBuilder::decode({40, 0, 33}, 2, 8)), "--compare-dense"}), kDone)
      << out_ << err_;
  EXPECT_TRUE(contains(out_, "cpu.translate.")) << out_;
  EXPECT_TRUE(contains(out_, "of the attention.")) << out_;
}

// Two requests, one of which keeps only keys of its first tile: the mask's tiles behind it are empty.
TEST_F(Cli, MaskTilesWithoutAKeptKeyAreCounted) {
  StepBuilder b = StepBuilder::prefill(40, 600, 4, 1);
  for (const char* name : {"index_q", "index_w", "index_k"}) b.arrays.erase(name);
  b.ints("k_start", {3}, {0, 300, 600});
  b.ints("kv_start", {3}, {0, 300, 600});
  std::vector<std::int32_t> positions, selected;
  for (int r = 0; r < 40; ++r) {
    positions.push_back(280 + r % 20);  // 3 tiles of keys in each request
    for (int t = 0; t < 4; ++t) selected.push_back(r < 20 ? t : 80 * t + r);
  }
  b.ints("query_pos", {40}, positions);
  b.ints("topk", {40, 4}, selected);
  ASSERT_EQ(call({"run", write(b)}), kDone) << out_ << err_;
  EXPECT_TRUE(contains(out_, "2 of 6 tiles of 128 rows x 128 keys")) << out_;
  ASSERT_EQ(call({"run", write(b), "--mask", "never"}), kDone);
  EXPECT_FALSE(contains(out_, "packed_mask")) << out_;
}

TEST_F(Cli, AFileWithoutWhatDenseNeedsSaysSo) {
  ASSERT_EQ(call({"run", sample("speculative"), "--compare-dense"}), kDone) << out_ << err_;
  EXPECT_TRUE(contains(out_, "unknown: the file holds the latent rows of selected keys only.")) << out_;
}

TEST_F(Cli, WrongExpectationsAreReported) {
  StepBuilder b = StepBuilder::prefill(2, 30, 2);
  b.ints("expected_topk", {2, 2}, {0, 1, 0, 1});
  b.add<double>("expected_topk_gap", io::FileDType::f64, {2}, {0.5, 0.5});
  EXPECT_EQ(call({"run", write(b), "--mask", "never"}), kDisagrees) << out_;
  EXPECT_TRUE(contains(out_, "NOT as expected")) << out_;
  EXPECT_TRUE(contains(out_, "row 0 differs across a gap of 0.5")) << out_;
  b.add<double>("expected_topk_gap", io::FileDType::f64, {2}, {1e-7, 1e-7});
  EXPECT_EQ(call({"run", write(b), "--mask", "never"}), kDone) << out_;
  EXPECT_TRUE(contains(out_, "2 differ where the gap at the cut is below rounding")) << out_;
}

TEST_F(Cli, PublishedBlocksAreComparedWithTheFiles) {
  StepBuilder b = StepBuilder::prefill(2, 64, 4);
  b.metadata["role"] = "publisher";
  b.metadata["candidate_count"] = "3";
  ASSERT_EQ(call({"run", write(b), "--mask", "never", "-o", path("out")}), kDone) << out_ << err_;
  io::SafetensorsFile out;
  ASSERT_TRUE(io::SafetensorsFile::open(path("out"), out).ok());
  const auto* blocks = out.find("out_candidates")->as<std::int32_t>();
  std::vector<std::int32_t> expected(blocks, blocks + 6);
  b.ints("candidate_blocks", {2, 3}, expected);
  EXPECT_EQ(call({"run", write(b), "--mask", "never"}), kDone) << out_;
  EXPECT_TRUE(contains(out_, "2 of 2 rows publish exactly the expected blocks")) << out_;
  std::int32_t other = 0;
  while (std::find(expected.begin() + 3, expected.end(), other) != expected.end()) ++other;
  expected[3] = other;
  b.ints("candidate_blocks", {2, 3}, expected);
  EXPECT_EQ(call({"run", write(b), "--mask", "never"}), kDisagrees) << out_;
  EXPECT_TRUE(contains(out_, "1 of 6 blocks differ; first in row 1")) << out_;
}

std::set<std::string> key_paths(const Json& json, const std::string& prefix = "") {
  std::set<std::string> paths;
  if (json.is_array()) {
    for (const Json& item : json) paths.merge(key_paths(item, prefix + "[]"));
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      paths.insert(prefix + "." + key);
      paths.merge(key_paths(value, prefix + "." + key));
    }
  }
  return paths;
}

TEST_F(Cli, JsonReportHasItsDocumentedShape) {
  ASSERT_EQ(call({"run", sample("prefill"), "--compare-dense", "--mask", "never", "--repeat", "1", "--json",
                  path("r.json"), "--trace", path("t.json")}),
            kDone)
      << out_ << err_;
  const Json report = Json::parse(text_of(path("r.json")));
  const std::set<std::string> golden = {".keysieve_report",
                                        ".program_version",
                                        ".file",
                                        ".backend",
                                        ".threads",
                                        ".repeat",
                                        ".machine",
                                        ".machine.cpu",
                                        ".machine.copy_bytes_per_second",
                                        ".machine.device",
                                        ".machine.device_copy_bytes_per_second",
                                        ".steps",
                                        ".unused_tensors",
                                        ".unused_metadata",
                                        ".steps[].name",
                                        ".steps[].role",
                                        ".steps[].rows",
                                        ".steps[].requests",
                                        ".steps[].topk",
                                        ".steps[].seconds",
                                        ".steps[].stages",
                                        ".steps[].stages[].stage",
                                        ".steps[].stages[].kernel",
                                        ".steps[].stages[].refused",
                                        ".steps[].stages[].skipped",
                                        ".steps[].stages[].shape",
                                        ".steps[].stages[].seconds",
                                        ".steps[].stages[].bytes",
                                        ".steps[].stages[].bandwidth_share",
                                        ".steps[].stages[].step_share",
                                        ".steps[].stages[].chunks",
                                        ".steps[].stages[].repeats",
                                        ".steps[].summary",
                                        ".steps[].summary.keys_visible",
                                        ".steps[].summary.keys_visible_least",
                                        ".steps[].summary.keys_visible_most",
                                        ".steps[].summary.keys_kept",
                                        ".steps[].summary.candidate_blocks_listed_per_row",
                                        ".steps[].summary.candidate_blocks_visible_per_row",
                                        ".steps[].summary.attention_mass_mean",
                                        ".steps[].summary.attention_mass_least",
                                        ".steps[].summary.dense_relative_distance",
                                        ".steps[].summary.dense_cosine_distance",
                                        ".steps[].summary.dense_missing",
                                        ".steps[].summary.mask_tiles",
                                        ".steps[].summary.mask_tiles_empty",
                                        ".steps[].summary.sentence",
                                        ".steps[].agreement",
                                        ".steps[].agreement[].what",
                                        ".steps[].agreement[].holds",
                                        ".steps[].agreement[].rows",
                                        ".steps[].agreement[].exact",
                                        ".steps[].agreement[].within_rounding",
                                        ".steps[].agreement[].worst",
                                        ".steps[].agreement[].detail"};
  EXPECT_EQ(key_paths(report), golden);
  EXPECT_EQ(report["keysieve_report"], 1);
  EXPECT_EQ(report["steps"][0]["summary"]["keys_kept"], 8192);
  EXPECT_GT(report["steps"][0]["summary"]["attention_mass_mean"], 0.5);
  double share = 0;
  for (const Json& stage : report["steps"][0]["stages"]) share += stage["step_share"].get<double>();
  EXPECT_NEAR(share, 1, 1e-9);

  const Json trace = Json::parse(text_of(path("t.json")));
  std::set<std::string> stages;
  for (const Json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["dur"].get<double>(), 0);
    if (event["cat"] == "stage") stages.insert(event["name"]);
  }
  EXPECT_TRUE(stages.contains("layer 3 topk"));
  EXPECT_TRUE(stages.contains("layer 3 sparse_mla"));
}

TEST_F(Cli, ProgressIsForTerminalsOnly) {
  ASSERT_EQ(call({"run", sample("speculative")}, false), kDone);
  EXPECT_EQ(err_, "");
  ASSERT_EQ(call({"run", sample("speculative")}, true), kDone);
  EXPECT_TRUE(contains(err_, "layer 3: topk")) << err_;
  EXPECT_TRUE(err_.ends_with("\r\033[K")) << "the progress line is cleared";
  EXPECT_FALSE(contains(out_, "\r"));
}

TEST_F(Cli, ExitCodesAndMessages) {
  EXPECT_EQ(call({}), kUsage);
  EXPECT_EQ(call({"fly"}), kUsage);
  EXPECT_EQ(call({"run"}), kUsage);
  EXPECT_EQ(call({"run", sample("prefill"), "--backend", "gpu7"}), kUsage);
  EXPECT_EQ(call({"run", sample("prefill"), "--threads", "-3"}), kUsage);
  EXPECT_EQ(call({"--help"}), kDone);
  for (const char* part : {"run", "check", "explain", "bench", "Examples:", "Exit codes:"})
    EXPECT_TRUE(contains(out_, part)) << part;
  EXPECT_EQ(call({"run", "--help"}), kDone);
  EXPECT_EQ(call({"--version"}), kDone);
  EXPECT_TRUE(contains(out_, "keysieve ")) << out_;

  EXPECT_EQ(call({"run", path("absent")}), kIoError);
  EXPECT_TRUE(contains(err_, "No such file")) << err_;
  EXPECT_EQ(call({"run", sample("speculative"), "-o", path("no/such/folder")}), kIoError);
  EXPECT_EQ(call({"check", sample("speculative")}), kUsage);
  EXPECT_TRUE(contains(err_, "no out_* tensors")) << err_;
  EXPECT_EQ(call({"bench", "--binary", path("absent")}), kIoError);
  EXPECT_TRUE(contains(err_, "does not start")) << err_;
}

TEST_F(Cli, HostileFilesGetAnError) {
  const std::string whole = text_of(sample("speculative"));
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{500}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path("cut"), std::ios::binary) << whole.substr(0, size);
    for (const char* command : {"run", "check", "explain"}) {
      EXPECT_EQ(call({command, path("cut")}), kBadFile) << size;
      EXPECT_TRUE(contains(err_, "SFT-0")) << err_;
    }
  }
  // Lies about sizes end before memory is asked for.
  for (const auto& [key, value] : {std::pair{"topk", "1048576"}, {"candidate_count", "1048576"}}) {
    StepBuilder b = StepBuilder::prefill(300, 300, 4, 1);
    b.metadata["role"] = "publisher";
    b.metadata["candidate_count"] = "4";
    b.metadata[key] = value;
    EXPECT_EQ(call({"run", write(b)}), kBadFile) << key;
    EXPECT_TRUE(contains(err_, "STP-08")) << err_;
  }
}

// Page ids, positions, candidates and selections are data: any value runs, none reaches memory that is not
// there.
TEST_F(Cli, HostileValuesRun) {
  StepBuilder b = StepBuilder::decode({40, 0, 33}, 2, 8);
  b.ints("lengths", {3}, {INT32_MAX, INT32_MIN, 33});
  b.ints("page_table", {3, 3}, {INT32_MAX, -5, 2, 1 << 30, 0, 9, 8, 7, -1});
  b.ints("candidate_blocks", {3, 2, 4},
         {INT32_MAX, -7, 0, 0, 1, 2, 3, INT32_MIN, 5, 5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1});
  EXPECT_EQ(call({"run", write(b), "--compare-dense"}), kDone) << out_ << err_;
  EXPECT_EQ(call({"run", write(b), "--backend", "reference"}), kDone) << out_ << err_;

  StepBuilder given = StepBuilder::prefill(2, 30, 4);
  for (const char* name : {"index_q", "index_w", "index_k"}) given.arrays.erase(name);
  given.ints("topk", {2, 4}, {INT32_MAX, INT32_MIN, 3, 3, -1, 29, 1 << 20, 0});
  EXPECT_EQ(call({"run", write(given), "--mask", "never"}), kDone) << out_ << err_;
}

TEST_F(Cli, TheEnvironmentNamesKernels) {
  setenv("KEYSIEVE_KERNEL", "no.such.kernel", 1);
  EXPECT_EQ(call({"run", sample("speculative")}), kUsage);
  EXPECT_TRUE(contains(err_, "no kernel is called 'no.such.kernel'")) << err_;
  std::string forbidden;
  for (const std::string& name : kernel_names("cpu")) {
    if (contains(name, ".topk.")) forbidden += "-" + name + ",";
  }
  setenv("KEYSIEVE_KERNEL", forbidden.c_str(), 1);
  EXPECT_EQ(call({"run", sample("speculative")}), kRefused);
  EXPECT_TRUE(contains(out_, "refused:")) << out_;
  EXPECT_TRUE(contains(out_, "forbidden by the caller")) << out_;
}

TEST_F(Cli, TheEnvironmentNamesReferenceKernelsToo) {
  setenv("KEYSIEVE_KERNEL", "reference.topk", 1);
  EXPECT_EQ(call({"run", sample("speculative")}), kRefused) << out_;
  EXPECT_TRUE(contains(out_, "another kernel was asked for")) << out_;
  setenv("KEYSIEVE_KERNEL", "cpu.topk.filter", 1);  // the name that the help shows
  EXPECT_EQ(call({"run", sample("speculative")}), kDone) << out_;
}

TEST_F(Cli, OutputsFollowLinksAndLeavePipesAndDevicesInPlace) {
  namespace fs = std::filesystem;
  std::ofstream(path("real.json")) << "old";
  fs::create_symlink(path("real.json"), path("link.json"));
  EXPECT_EQ(call({"run", sample("speculative"), "--repeat", "1", "--json", path("link.json")}), kDone)
      << err_;
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
  EXPECT_GT(fs::file_size(path("real.json")), 100u);

  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] {
    std::ifstream pipe(path("pipe"));
    read.assign(std::istreambuf_iterator<char>(pipe), {});
  });
  EXPECT_EQ(call({"run", sample("speculative"), "--repeat", "1", "--json", path("pipe")}), kDone) << err_;
  reader.join();
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_TRUE(contains(read, "stages")) << read;

  EXPECT_EQ(call({"run", sample("speculative"), "--repeat", "1", "--json", "/dev/full"}), kIoError);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_EQ(call({"run", sample("speculative"), "-o", path("a"), "--json", path("a")}), kUsage);
}

TEST_F(Cli, ExplainSaysWhoRunsAndWhyNot) {
  EXPECT_EQ(call({"explain"}), kDone);
  EXPECT_TRUE(contains(out_, "backend cpu")) << out_;
  EXPECT_TRUE(contains(out_, "reference.topk")) << out_;
  EXPECT_EQ(call({"explain", sample("prefill")}), kDone);
  EXPECT_TRUE(contains(out_, "->  cpu.topk.")) << out_;
  EXPECT_TRUE(contains(out_, "another backend was asked for")) << out_;
  EXPECT_EQ(call({"explain", "--rows", "6", "--keys", "1048576", "--topk", "512", "--candidates", "2048"}),
            kDone);
  EXPECT_TRUE(contains(out_, "->  cpu.mqa_logits.")) << out_;
  EXPECT_TRUE(contains(out_, "->  cpu.sparse_mla.")) << out_;
  EXPECT_EQ(call({"explain", "--rows", "6"}), kUsage);
  EXPECT_EQ(call({"explain", "--topk", "6"}), kUsage);
  EXPECT_TRUE(contains(err_, "a shape needs --rows and --keys")) << err_;
  // A file has its own shape, so an option that would be ignored is refused.
  for (const char* option : {"--rows", "--keys", "--heads", "--topk", "--candidates"}) {
    EXPECT_EQ(call({"explain", sample("prefill"), option, "3"}), kUsage);
    EXPECT_TRUE(contains(err_, std::string(option) + " describes a made-up step")) << err_;
  }
}

TEST_F(Cli, NumbersAreDecimalAndInTheirRange) {
  for (const char* tolerance : {"nan", "-nan", "inf", "-0.1", "1.5", "0.1x", "0x1p-4", "", " 0.1", "1e400"}) {
    EXPECT_EQ(call({"check", sample("prefill"), std::string("--score-tolerance=") + tolerance}), kUsage)
        << tolerance;
    EXPECT_FALSE(contains(err_, "out_*")) << tolerance << err_;
  }
  EXPECT_EQ(call({"check", sample("prefill"), "--score-tolerance=0.1x"}), kUsage);
  EXPECT_TRUE(contains(err_, "'0.1x' is not a number from 0 to 1")) << err_;
  for (const char* value : {"nan", "inf", "-1", "3x", "0x3", "1.5", "1e3", "", "99999999999999999999"}) {
    for (const char* option : {"--threads", "--repeat"})
      EXPECT_EQ(call({"run", sample("prefill"), std::string(option) + "=" + value}), kUsage)
          << option << value;
    for (const char* option : {"--rows", "--keys", "--heads", "--topk", "--candidates"})
      EXPECT_EQ(call({"explain", std::string(option) + "=" + value}), kUsage) << option << value;
  }
  // Not in octal.
  EXPECT_EQ(call({"explain", "--rows=010", "--keys=0100", "--topk=012"}), kDone) << err_;
  EXPECT_TRUE(contains(out_, "10 rows x 100 keys, 64 heads, top-k 12")) << out_;
}

TEST_F(Cli, NamesThatMeanNothingAreShown) {
  StepBuilder b = StepBuilder::prefill(2, 30, 4);
  b.metadata["top_k"] = "5";
  b.ints("mystery", {1}, {0});
  ASSERT_EQ(call({"run", write(b), "--repeat", "1", "--json", path("r.json")}), kDone) << out_ << err_;
  EXPECT_TRUE(contains(out_, "ignored tensors: mystery\nignored metadata: top_k\n")) << out_;
  EXPECT_EQ(Json::parse(text_of(path("r.json")))["unused_metadata"], Json::array({"top_k"}));
}

TEST_F(Cli, AnOutputThatCannotBeWrittenIsNoticedBeforeTheStepRuns) {
  std::filesystem::create_directory(path("folder"));
  for (const char* option : {"-o", "--json", "--trace"}) {
    for (const std::string& target : {path("no/such/folder/x"), path("folder")}) {
      EXPECT_EQ(call({"run", sample("speculative"), option, target}, true), kIoError) << option << target;
      EXPECT_TRUE(contains(err_, "SFT-01")) << err_;
      EXPECT_FALSE(contains(err_, "layer 3: ")) << "a stage ran: " << err_;
      EXPECT_EQ(out_, "");
    }
  }
  // Asking leaves what is there as it is, and nothing behind.
  std::ofstream(path("old")) << "old";
  EXPECT_EQ(call({"run", sample("speculative"), "-o", path("old"), "--json", path("folder")}), kIoError);
  EXPECT_EQ(text_of(path("old")), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

TEST_F(Cli, OutputOfRunPassesCheck) {
  for (const char* name : {"prefill", "speculative"}) {
    ASSERT_EQ(
        call({"run", sample(name), "-o", path("out"), "--with-inputs", "--with-logits", "--repeat", "1"}),
        kDone)
        << out_ << err_;
    EXPECT_EQ(call({"check", path("out")}), kDone) << out_ << err_;
    EXPECT_TRUE(contains(out_, "Every stage agrees with the reference.")) << out_;
  }
}

// Keeping nothing is a selection too.
TEST_F(Cli, OutputOfRunPassesCheckWithTopkZero) {
  StepBuilder given = StepBuilder::prefill(3, 30, 0);
  for (const char* name : {"index_q", "index_w", "index_k"}) given.arrays.erase(name);
  given.ints("topk", {3, 0}, {});
  for (const StepBuilder& b :
       {StepBuilder::prefill(20, 50, 0), StepBuilder::decode({40, 0, 33}, 2, 0), given}) {
    ASSERT_EQ(call({"run", write(b), "-o", path("out"), "--with-inputs", "--repeat", "1"}), kDone)
        << out_ << err_;
    EXPECT_EQ(call({"check", path("out")}), kDone) << out_ << err_;
    EXPECT_TRUE(contains(out_, "Every stage agrees with the reference.")) << out_;
  }
}

// The five learned steps as they are.
TEST_F(Cli, LearnedStepsRunAndAgree) {
  const char* data = std::getenv("KEYSIEVE_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "KEYSIEVE_TEST_DATA is not set";
  for (const char* name : {"decode8_layer3_index", "decode8_layer3_attn", "prefill40_ctx8192_full",
                           "prefill64_ctx12345", "spec_next2"}) {
    const std::string file = std::string(data) + "/tinydsa/" + name + ".safetensors";
    EXPECT_EQ(call({"run", file, "--compare-dense", "--repeat", "1", "--json", path("r.json")}), kDone)
        << out_ << err_;
    const Json report = Json::parse(text_of(path("r.json")));
    for (const Json& step : report["steps"]) {
      EXPECT_FALSE(step["agreement"].empty()) << name;
      for (const Json& agreement : step["agreement"]) EXPECT_TRUE(agreement["holds"]) << name << agreement;
      // No row of these files is decided by rounding, so selections are exact.
      for (const Json& agreement : step["agreement"]) {
        if (agreement["what"].get<std::string>() == "topk") {
          EXPECT_EQ(agreement["exact"], agreement["rows"]) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace keysieve::cli

#include "io/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace keysieve::io {
namespace {

std::string with_header(const std::string& json, const std::string& data) {
  const std::uint64_t n = json.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + json + data;
}

std::string good_bytes() {
  return with_header(
      R"({"__metadata__":{"topk":"2"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"U8","shape":[],"data_offsets":[24,25]},)"
      R"("none":{"dtype":"I64","shape":[0,7],"data_offsets":[25,25]}} )",
      std::string(25, 'x'));
}

// The rule id that a text of bytes breaks, "" when it is accepted.
std::string broken_rule(const std::string& bytes, std::string* message = nullptr) {
  SafetensorsFile file;
  const std::string exact(bytes);  // its own allocation, so that ASan sees a read past the end
  const Status status = SafetensorsFile::parse(exact.data(), exact.size(), file);
  if (status.ok()) return "";
  EXPECT_EQ(status.code, Code::bad_file);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_STREQ(status.operation, "safetensors");
  if (message != nullptr) *message = status.seen;
  return std::string(status.rule).substr(0, 6);
}

std::string one_tensor(const std::string& body, const std::string& data) {
  return with_header("{\"t\":{" + body + "}}", data);
}

TEST(Safetensors, ReadsViewsWithoutCopies) {
  const std::string bytes = good_bytes();
  SafetensorsFile file;
  ASSERT_TRUE(SafetensorsFile::parse(bytes.data(), bytes.size(), file).ok());
  ASSERT_EQ(file.tensors().size(), 3u);
  const FileTensor* a = file.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->describe(), "F32 [2, 3]");
  EXPECT_EQ(a->elements(), 6);
  EXPECT_EQ(file.find("b")->elements(), 1);
  EXPECT_EQ(file.find("none")->elements(), 0);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata().at("topk"), "2");
  EXPECT_EQ(static_cast<const void*>(file.find("b")->data), bytes.data() + bytes.size() - 1);
}

TEST(Safetensors, CopiesAnArrayThatStartsUnaligned) {
  const std::string bytes = one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", "abcd");
  for (std::size_t shift = 0; shift < 4; ++shift) {
    const std::string moved = std::string(shift, ' ') + bytes;
    SafetensorsFile file;
    ASSERT_TRUE(SafetensorsFile::parse(moved.data() + shift, bytes.size(), file).ok());
    const FileTensor& t = file.tensors()[0];
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % 4, 0u);
    EXPECT_EQ(std::memcmp(t.data, "abcd", 4), 0);
  }
}

TEST(Safetensors, SFT_01_truncated) {
  EXPECT_EQ(broken_rule(""), "SFT-01");
  EXPECT_EQ(broken_rule("1234567"), "SFT-01");
  const std::string bytes = good_bytes();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_NE(broken_rule(bytes.substr(0, cut)), "") << cut;
  EXPECT_EQ(broken_rule(bytes.substr(0, 40)), "SFT-01");
}

TEST(Safetensors, SFT_02_header_size_is_bounded) {
  for (const std::uint64_t n : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{(16 << 20) + 1}}) {
    std::string bytes = good_bytes();
    std::memcpy(bytes.data(), &n, 8);
    EXPECT_EQ(broken_rule(bytes), "SFT-02");
  }
}

TEST(Safetensors, SFT_03_header_shape) {
  const std::string ok = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  EXPECT_EQ(broken_rule(one_tensor(ok, "x")), "");
  for (const char* json : {"", "x", "[]", "{", "{\"t\":1}", "{\"t\":[]}", "{\"t\":null}", "{} {}",
                           "{\"t\":{}}", "{\"__metadata__\":{\"a\":1}}", "{\"__metadata__\":{\"a\":{}}}",
                           "{\"__metadata__\":[]}", "{\"\xff\":1}"}) {
    EXPECT_EQ(broken_rule(with_header(json, "")), "SFT-03") << json;
  }
  for (const char* body :
       {R"("dtype":"U8","shape":[1])", R"("dtype":"U8","data_offsets":[0,1])",
        R"("shape":[1],"data_offsets":[0,1])", R"("dtype":"U8","shape":[1],"data_offsets":[0])",
        R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])",
        R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":1,"data_offsets":[0,1])", R"("dtype":1,"shape":[1],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[1],"data_offsets":[-0.5,1])",
        R"("dtype":"U8","shape":[1],"data_offsets":[-1,1])", R"("dtype":{},"shape":[1],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[true],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1)"}) {
    EXPECT_EQ(broken_rule(one_tensor(body, "x")), "SFT-03") << body;
  }
  // Deep nesting ends at the first wrong level, not in a stack overflow.
  EXPECT_EQ(broken_rule(with_header("{\"t\":{\"shape\":" + std::string(1 << 20, '['), "")), "SFT-03");
  EXPECT_EQ(broken_rule(with_header(std::string("{\"a\\u0000b\":{}}"), "")), "SFT-03");
}

TEST(Safetensors, SFT_04_duplicates) {
  const std::string t = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  std::string seen;
  EXPECT_EQ(broken_rule(with_header("{\"t\":" + t + ",\"t\":" + t + "}", ""), &seen), "SFT-04");
  EXPECT_EQ(seen, "'t' twice");
  EXPECT_EQ(broken_rule(with_header("{\"__metadata__\":{},\"__metadata__\":{}}", "")), "SFT-04");
  EXPECT_EQ(broken_rule(with_header("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", "")), "SFT-04");
  EXPECT_EQ(broken_rule(one_tensor(R"("shape":[0],"dtype":"U8","shape":[0],"data_offsets":[0,0])", "")),
            "SFT-04");
  std::string many = "{";
  for (int i = 0; i <= 100'000; ++i)
    many.append("\"").append(std::to_string(i)).append("\":").append(t).append(",");
  many.back() = '}';
  EXPECT_EQ(broken_rule(with_header(many, "")), "SFT-04");
}

TEST(Safetensors, SFT_05_offsets) {
  const auto two = [](const char* a, const char* b) {
    return with_header(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + a +
                           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                       "12345678");
  };
  EXPECT_EQ(broken_rule(two("[0,4]", "[4,8]")), "");
  EXPECT_EQ(broken_rule(two("[4,8]", "[0,4]")), "");
  for (const auto& [a, b] : {std::pair{"[0,4]", "[3,7]"},
                             {"[0,4]", "[0,4]"},
                             {"[0,4]", "[5,9]"},
                             {"[1,5]", "[5,9]"},
                             {"[0,4]", "[8,4]"},
                             {"[0,4]", "[18446744073709551612,18446744073709551615]"}}) {
    EXPECT_EQ(broken_rule(two(a, b)), "SFT-05") << a << b;
  }
  std::string seen;
  EXPECT_EQ(broken_rule(good_bytes() + "rest", &seen), "SFT-05");
  EXPECT_EQ(seen, "the arrays end at 25 of 29 bytes of data");
}

TEST(Safetensors, SFT_06_dtype) {
  std::string seen;
  EXPECT_EQ(broken_rule(one_tensor(R"("dtype":"F12","shape":[0],"data_offsets":[0,0])", ""), &seen),
            "SFT-06");
  EXPECT_EQ(seen, "'t': dtype \"F12\"");
}

TEST(Safetensors, SFT_07_rank_and_sign) {
  EXPECT_EQ(broken_rule(one_tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1])", "x")),
            "");
  EXPECT_EQ(broken_rule(one_tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", "x")),
            "SFT-07");
  EXPECT_EQ(broken_rule(one_tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", "x")), "SFT-07");
}

TEST(Safetensors, SFT_08_overflow) {
  for (const char* shape : {"[4611686018427387904,4]", "[4294967296,4294967296]", "[9223372036854775807]",
                            "[9223372036854775808]", "[3037000500,3037000500,2]"}) {
    EXPECT_EQ(broken_rule(one_tensor(
                  std::string(R"("dtype":"F32","shape":)") + shape + R"(,"data_offsets":[0,4])", "abcd")),
              "SFT-08")
        << shape;
  }
  // Nor may a part of the axes overflow where another one is 0.
  EXPECT_EQ(
      broken_rule(one_tensor(R"("dtype":"F32","shape":[0,9223372036854775807,4],"data_offsets":[0,0])", "")),
      "SFT-08");
  EXPECT_EQ(broken_rule(one_tensor(R"("dtype":"F32","shape":[0,4294967296],"data_offsets":[0,0])", "")), "");
}

TEST(Safetensors, SFT_09_size) {
  std::string seen;
  EXPECT_EQ(broken_rule(one_tensor(R"("dtype":"BF16","shape":[3],"data_offsets":[0,4])", "abcd"), &seen),
            "SFT-09");
  EXPECT_EQ(seen, "'t': BF16 [3] takes 6 bytes, data_offsets [0, 4]");
}

class SafetensorsFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/keysieve_io_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(SafetensorsFiles, RoundTripIsAlignedAndAtomic) {
  const float a[] = {1, 2, 3};
  const double b[] = {4};
  const std::uint8_t c[] = {5, 6, 7};
  SafetensorsWriter writer;
  writer.set_metadata("keysieve_step", "1");
  writer.add("c", FileDType::u8, {3}, c);
  writer.add("a", FileDType::f32, {3, 1}, a);
  writer.add("b", FileDType::f64, {}, b);
  writer.add("empty", FileDType::bf16, {0}, nullptr);
  std::ofstream(path("x")) << "old";
  ASSERT_TRUE(writer.write(path("x")).ok());
  SafetensorsFile file;
  const Status status = SafetensorsFile::open(path("x"), file);
  ASSERT_TRUE(status.ok()) << status.seen;
  EXPECT_EQ(file.metadata().at("keysieve_step"), "1");
  EXPECT_EQ(std::memcmp(file.find("a")->data, a, sizeof a), 0);
  EXPECT_EQ(std::memcmp(file.find("b")->data, b, sizeof b), 0);
  EXPECT_EQ(std::memcmp(file.find("c")->data, c, sizeof c), 0);
  EXPECT_EQ(file.find("empty")->elements(), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.find("b")->data) % 64, 0u);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++entries;
  EXPECT_EQ(entries, 1) << "a temporary file was left behind";
}

TEST_F(SafetensorsFiles, SystemErrorsAreNamed) {
  SafetensorsFile file;
  Status status = SafetensorsFile::open(path("absent"), file);
  EXPECT_EQ(status.code, Code::io_error);
  EXPECT_NE(std::string(status.seen).find("No such file"), std::string::npos) << status.seen;
  status = SafetensorsFile::open(folder_, file);
  EXPECT_EQ(status.code, Code::io_error);
  std::ofstream(path("empty")).flush();
  EXPECT_EQ(SafetensorsFile::open(path("empty"), file).code, Code::bad_file);
  EXPECT_EQ(SafetensorsWriter().write(path("no/such/folder")).code, Code::io_error);
}

TEST(SafetensorsMutation, SeededMutationsNeverCrash) {
  const std::string base = good_bytes();
  std::mt19937 random(7);
  const std::string alphabet = "{}[]\",:0123456789-.eEFU8I64x\\u \0\xff";
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = base;
    for (int edit = 0; edit < 1 + static_cast<int>(random() % 4); ++edit) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          bytes.erase(at, 1 + random() % 8);
          break;
        case 3:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 32));
          break;
        default:
          bytes[8 + at % (bytes.size() - 8)] = static_cast<char>('0' + random() % 10);
          break;
      }
      if (bytes.size() < 9) break;
    }
    // A mutated length would reject most edits before they are read; mend it every other time.
    if (round % 2 == 0 && bytes.size() > 40) {
      const std::uint64_t n = bytes.size() - 8 - std::min<std::size_t>(25, bytes.size() - 8);
      std::memcpy(bytes.data(), &n, 8);
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
}

}  // namespace
}  // namespace keysieve::io

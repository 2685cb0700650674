// program_call: calls `keysieve` as a function, in a folder of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "program.hpp"
#include "support/step_builder.hpp"

namespace keysieve::test {

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("KEYSIEVE_KERNEL");
    char name[] = "/tmp/keysieve_cli_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    unsetenv("KEYSIEVE_KERNEL");
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string write(const StepBuilder& builder,
                                  const std::string& name = "step.safetensors") const {
    EXPECT_TRUE(builder.write(path(name)).ok());
    return path(name);
  }
  int call(std::vector<std::string> args, bool terminal = false) {
    std::ostringstream out, err;
    const int code = cli::run_program(std::move(args), {out, err, terminal});
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  [[nodiscard]] static std::string text_of(const std::string& file) {
    std::stringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }
  [[nodiscard]] static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  std::string folder_, out_, err_;
};

}  // namespace keysieve::test

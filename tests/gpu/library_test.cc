// libkeysieve_cuda as a user links it, on machines with and without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "keysieve/candidate_mask.hpp"
#include "keysieve/plan.hpp"

namespace keysieve {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

CandidateMaskArgs mask_args(Device device) {
  CandidateMaskArgs a;
  a.scores = Tensor::dense(nullptr, DType::f32, {4, 1024}, device);
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {4}, device);
  a.candidates = Tensor::dense(nullptr, DType::i32, {4, 16}, device);
  return a;
}

TEST(CudaLibrary, ListsEveryBackend) {
  EXPECT_TRUE(has(backend_names(), "cuda"));
  EXPECT_TRUE(has(backend_names(), "cpu"));
  EXPECT_TRUE(has(backend_names(), "reference"));
  EXPECT_FALSE(kernel_names("cuda").empty());
  for (const std::string& name : kernel_names("cuda")) EXPECT_EQ(name.rfind("cuda.", 0), 0u) << name;
}

TEST(CudaLibrary, PlansOnADeviceOrSaysWhyNot) {
  CandidateMaskPlan planned;
  const Status status = plan(mask_args({DeviceType::cuda, 0}), {}, planned);
  if (status.ok()) {
    EXPECT_EQ(std::string(planned.kernel_name).rfind("cuda.", 0), 0u);
    return;
  }
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_NE(std::string(status.seen).find("cuda.candidate_mask"), std::string::npos) << status.message();
  EXPECT_NE(std::string(status.seen).find("device"), std::string::npos) << status.message();
}

TEST(CudaLibrary, RefusesADeviceThatIsNotThere) {
  CandidateMaskPlan planned;
  const Status status = plan(mask_args({DeviceType::cuda, 1000}), {}, planned);
  EXPECT_EQ(status.code, Code::unsupported) << status.message();
  EXPECT_NE(std::string(status.seen).find("no "), std::string::npos) << status.message();
}

// Tensors of the host never reach a device kernel, and the other way round.
TEST(CudaLibrary, NeverChangesBackendOnItsOwn) {
  CandidateMaskPlan planned;
  ASSERT_TRUE(plan(mask_args({DeviceType::cpu, 0}), {}, planned).ok());
  EXPECT_EQ(std::string(planned.kernel_name).rfind("cpu.", 0), 0u);
  EXPECT_EQ(plan(mask_args({DeviceType::cpu, 0}), {.backend = "cuda"}, planned).code, Code::unsupported);
  EXPECT_EQ(plan(mask_args({DeviceType::cuda, 0}), {.backend = "cpu"}, planned).code, Code::unsupported);
}

}  // namespace
}  // namespace keysieve

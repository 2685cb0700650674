// device_parity: the same comparison for device kernels. A program that has a device sets device_harness;
// then expect_parity() runs every cuda kernel instead of the host's: once as it is, and once as a captured
// graph that saw nothing but poison before its replay. This file names no vendor's functions.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "contract/candidate_blocks.hpp"
#include "contract/candidate_mask.hpp"
#include "contract/index_gather.hpp"
#include "contract/index_store.hpp"
#include "contract/masked_mha.hpp"
#include "contract/merge_states.hpp"
#include "contract/mqa_logits.hpp"
#include "contract/packed_mask.hpp"
#include "contract/prepare_queries.hpp"
#include "contract/sparse_mla.hpp"
#include "contract/topk.hpp"
#include "contract/translate.hpp"
#include "keysieve/plan.hpp"
#include "support/tensor_box.hpp"

namespace keysieve::test {

struct DeviceHarness {
  virtual ~DeviceHarness() = default;
  // At least this much memory, aligned to 256 bytes; what an earlier call gave is gone.
  virtual char* memory(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, int value, std::size_t bytes) = 0;
  virtual void* stream() = 0;
  virtual void begin_capture() = 0;
  virtual void end_capture() = 0;  // keeps the graph until the next capture
  virtual void replay() = 0;
  // Waits for the stream; empty, or what went wrong since the last call.
  virtual std::string finish() = 0;
};

inline DeviceHarness* device_harness = nullptr;

// The boxes of a bundle and a workspace, side by side in device memory.
template <class Args>
class DeviceCall {
 public:
  DeviceCall(DeviceHarness& harness, Args args, const std::vector<TensorBox*>& boxes)
      : harness_(harness), args_(args), boxes_(boxes) {
    std::size_t bytes = 0;
    for (TensorBox* box : boxes) {
      offsets_.push_back(bytes);
      bytes += aligned(box->bytes().size());
    }
    box_bytes_ = bytes;
  }

  // Plans for this kernel (any, if empty) and makes room.
  Status plan_for(const char* kernel) {
    for_each_tensor([](Tensor& t) { t.device = {DeviceType::cuda, 0}; });
    const Status status = plan(args_, PlanOptions{"cuda", kernel, {}, 1}, plan_);
    if (!status.ok()) return status;
    memory_ = harness_.memory(box_bytes_ + aligned(plan_.workspace_bytes) + kGuard);
    for_each_tensor([&](Tensor& t) {
      if (t.data == nullptr) return;  // an empty one
      for (std::size_t i = 0; i < boxes_.size(); ++i) {
        const auto offset = static_cast<const unsigned char*>(t.data) - boxes_[i]->bytes().data();
        if (offset >= 0 && offset < static_cast<std::ptrdiff_t>(boxes_[i]->bytes().size())) {
          t.data = memory_ + offsets_[i] + offset;
          return;
        }
      }
      ADD_FAILURE() << "a tensor lies in no box of its bundle";
    });
    return status;
  }
  void poison() { harness_.fill(memory_, 0xA7, box_bytes_ + aligned(plan_.workspace_bytes) + kGuard); }
  void upload(const std::vector<TensorBox*>& boxes) {
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      ASSERT_EQ(boxes[i]->bytes().size(), boxes_[i]->bytes().size())
          << "bundles of one graph differ in shape";
      harness_.upload(memory_ + offsets_[i], boxes[i]->bytes().data(), boxes[i]->bytes().size());
    }
    harness_.fill(memory_ + box_bytes_, 0xFF, plan_.workspace_bytes);
    harness_.fill(memory_ + box_bytes_ + plan_.workspace_bytes, 0xA7, kGuard);
  }
  Status enqueue() { return enqueue_on(harness_.stream()); }
  Status enqueue_on(void* stream) {
    return run(plan_, args_, Workspace{memory_ + box_bytes_, plan_.workspace_bytes}, Stream{stream, nullptr});
  }
  void download(const std::vector<TensorBox*>& boxes) {
    for (std::size_t i = 0; i < boxes.size(); ++i)
      harness_.download(boxes[i]->raw_bytes(), memory_ + offsets_[i], boxes[i]->bytes().size());
    unsigned char guard[kGuard];
    harness_.download(guard, memory_ + box_bytes_ + plan_.workspace_bytes, kGuard);
    for (const unsigned char byte : guard)
      if (byte != 0xA7) ADD_FAILURE() << plan_.kernel_name << " wrote past its workspace";
  }
  [[nodiscard]] const Args& args() const { return args_; }

 private:
  static constexpr std::size_t kGuard = 256;
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  template <class F>
  void for_each_tensor(F&& f) {
    visit_tensors(args_, [&](const char*, const Tensor& t, Access) {
      if (t.given()) f(const_cast<Tensor&>(t));  // args_ is ours and not const
    });
  }

  DeviceHarness& harness_;
  Args args_;
  std::vector<TensorBox*> boxes_;
  std::vector<std::size_t> offsets_;
  std::size_t box_bytes_ = 0;
  Plan<Args> plan_;
  char* memory_ = nullptr;
};

// The cuda kernels that take these arguments.
template <class Args>
std::vector<std::string> device_kernels(Args args) {
  visit_tensors(args, [](const char*, const Tensor& t, Access) {
    const_cast<Tensor&>(t).device = {DeviceType::cuda, 0};
  });
  std::vector<std::string> kernels;
  const Explanation explained = explain(args, PlanOptions{.backend = "cuda"});
  // A refusal is a reason to skip; arguments that break a rule are a fault of the test.
  EXPECT_NE(explained.status.code, Code::invalid_argument) << explained.status.message();
  for (const Verdict& verdict : explained.verdicts) {
    if (verdict.backend != "cuda") continue;
    if (verdict.chosen || verdict.refusal == "an earlier kernel takes it")
      kernels.push_back(verdict.kernel);
    else
      ::testing::Test::RecordProperty(verdict.kernel, verdict.refusal);
  }
  return kernels;
}

// One graph of each kernel, captured with nothing but poison in memory, then replayed with each bundle's
// data. `bundles` are calls of the same shapes; `expected` is what the reference left for each.
template <class Bundle, class Compare>
void expect_device_replays(DeviceHarness& harness, std::vector<Bundle>& bundles,
                           std::vector<Bundle>& expected, Compare&& compare) {
  const auto kernels = device_kernels(bundles[0].args());
  if (kernels.empty()) GTEST_SKIP() << "no cuda kernel takes these arguments";
  for (const std::string& kernel : kernels) {
    DeviceCall call(harness, bundles[0].args(), bundles[0].boxes());
    const Status planned = call.plan_for(kernel.c_str());
    ASSERT_TRUE(planned.ok()) << planned.message();
    call.poison();
    harness.begin_capture();
    const Status captured = call.enqueue();
    harness.end_capture();
    ASSERT_TRUE(captured.ok()) << kernel << ": " << captured.message();
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      Bundle got = bundles[i];
      call.upload(bundles[i].boxes());
      harness.replay();
      ASSERT_EQ(harness.finish(), "") << kernel << ", replay " << i;
      call.download(got.boxes());
      compare(kernel + ", replay " + std::to_string(i), expected[i].boxes(), got.boxes());
    }
  }
}

template <class MakeBundle, class Bundle, class Compare>
void expect_device_parity(DeviceHarness& harness, MakeBundle&& make, Bundle& expected, Compare&& compare) {
  std::vector<Bundle> fresh;
  fresh.push_back(make());
  const auto kernels = device_kernels(fresh[0].args());
  if (kernels.empty()) GTEST_SKIP() << "no cuda kernel takes these arguments";
  for (const std::string& kernel : kernels) {
    DeviceCall call(harness, fresh[0].args(), fresh[0].boxes());
    const Status planned = call.plan_for(kernel.c_str());
    ASSERT_TRUE(planned.ok()) << planned.message();
    call.upload(fresh[0].boxes());
    const Status ran = call.enqueue();
    ASSERT_TRUE(ran.ok()) << kernel << ": " << ran.message();
    ASSERT_EQ(harness.finish(), "") << kernel;
    Bundle got = make();
    call.download(got.boxes());
    compare(kernel, expected.boxes(), got.boxes());
  }
  std::vector<Bundle> wanted;
  wanted.push_back(expected);
  expect_device_replays(harness, fresh, wanted, compare);
}

}  // namespace keysieve::test

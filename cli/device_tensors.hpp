// device_tensors: which tensors a stage's call reads and writes, for the operations that have device kernels, and
// their copies in device memory. Operations that are not listed here run on the host.
#pragma once

#include <vector>

#include "device.hpp"
#include "keysieve/candidate_blocks.hpp"
#include "keysieve/packed_mask.hpp"
#include "keysieve/topk.hpp"
#include "keysieve/translate.hpp"

namespace keysieve::cli {

inline std::vector<Tensor*> inputs_of(CandidateBlocksArgs& a) {
  return {&a.scores, &a.bounds.start, &a.bounds.end};
}
inline std::vector<Tensor*> outputs_of(CandidateBlocksArgs& a) { return {&a.candidates}; }

inline std::vector<Tensor*> inputs_of(TopkArgs& a) {
  return {&a.scores, &a.bounds.start,     &a.bounds.end,           &a.candidates,
          &a.offset, &a.pages.page_table, &a.pages.row_to_request, &a.pages.table_start};
}
inline std::vector<Tensor*> outputs_of(TopkArgs& a) { return {&a.out, &a.values, &a.counts, &a.raw}; }

inline std::vector<Tensor*> inputs_of(TranslateArgs& a) {
  return {&a.indices, &a.pages.page_table, &a.pages.row_to_request, &a.pages.table_start};
}
inline std::vector<Tensor*> outputs_of(TranslateArgs& a) { return {&a.slots, &a.counts, &a.raw}; }

inline std::vector<Tensor*> inputs_of(PackedMaskArgs& a) {
  return {&a.q_start, &a.key_first,  &a.key_count,    &a.indices,   &a.candidates,
          &a.scores,  &a.thresholds, &a.bounds.start, &a.bounds.end};
}
inline std::vector<Tensor*> outputs_of(PackedMaskArgs& a) { return {&a.mask, &a.any, &a.all}; }

template <class Args>
concept HasDeviceTensors = requires(Args& a) {
  outputs_of(a);
};

// From its first element to its last; strides are not negative.
inline std::size_t span_bytes(const Tensor& t) {
  if (t.elements() == 0) return 0;
  std::int64_t last = 0;
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] > 1) last += (t.shape[axis] - 1) * t.stride[axis];
  return static_cast<std::size_t>(last + 1) * static_cast<std::size_t>(dtype_bytes(t.dtype));
}

// Names the device as the place of every tensor, which still point to the host.
template <HasDeviceTensors Args>
void place_on_device(Args& args) {
  for (const std::vector<Tensor*>& tensors : {inputs_of(args), outputs_of(args)})
    for (Tensor* t : tensors)
      if (t->given()) t->device = {DeviceType::cuda, 0};
}

// The call's tensors in device memory. What the host holds in outputs goes along: a call may leave some as it is.
template <HasDeviceTensors Args>
class DeviceTensors {
 public:
  DeviceTensors(StageDevice& device, const Args& args) : device_(device), args_(args) {
    place_on_device(args_);
  }
  ~DeviceTensors() { device_.release(); }
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  [[nodiscard]] const Args& args() const { return args_; }

  [[nodiscard]] Status upload() {
    for (const std::vector<Tensor*>& tensors : {inputs_of(args_), outputs_of(args_)}) {
      for (Tensor* t : tensors) {
        const std::size_t bytes = t->given() ? span_bytes(*t) : 0;
        if (bytes == 0) continue;
        void* const memory = device_.allocate(bytes);
        if (memory == nullptr) throw std::bad_alloc();
        const Status status = device_.upload(memory, t->data, bytes);
        if (!status.ok()) return status;
        host_.push_back(t->data);
        t->data = memory;
      }
    }
    return {};
  }
  [[nodiscard]] Status download() {
    const std::vector<Tensor*> outputs = outputs_of(args_);
    // upload() went through the outputs last.
    auto host = host_.end();
    for (auto t = outputs.rbegin(); t != outputs.rend(); ++t) {
      const std::size_t bytes = (*t)->given() ? span_bytes(**t) : 0;
      if (bytes == 0) continue;
      const Status status = device_.download(*--host, (*t)->data, bytes);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  StageDevice& device_;
  Args args_;
  std::vector<void*> host_;
};

}  // namespace keysieve::cli

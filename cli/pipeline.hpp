// pipeline: the stages of one step, through the public headers alone: score, publish candidates, select,
// translate, mask, attend. Every stage is planned, given a workspace, timed and described.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device.hpp"
#include "io/report.hpp"
#include "io/step_file.hpp"
#include "kernel_choice.hpp"
#include "keysieve/executor.hpp"

namespace keysieve::cli {

// Memory that is not touched before it is used.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size) : data_(new T[static_cast<std::size_t>(size)]), size_(size) {}
  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return data_ == nullptr; }
  T& operator[](std::int64_t i) { return data_[static_cast<std::size_t>(i)]; }
  const T& operator[](std::int64_t i) const { return data_[static_cast<std::size_t>(i)]; }

 private:
  std::unique_ptr<T[]> data_;
  std::int64_t size_ = 0;
};

enum class MaskWish : std::uint8_t { automatic, always, never };

struct RunOptions {
  KernelChoice kernels;
  StageDevice* device = nullptr;       // where stages with device kernels run; null: all on the host
  const Executor* executor = nullptr;  // null: this thread alone
  int repeat = 3;
  bool compare_dense = false;
  bool keep_logits = false;  // all rows at once, -inf outside the bounds
  MaskWish mask = MaskWish::automatic;
  std::int64_t score_bytes = std::int64_t{256} << 20;  // rows are scored in chunks of at most this
  std::function<void(const std::string&)> progress;    // may be empty
  std::vector<io::TraceEvent>* trace = nullptr;
};

// What a step computed; empty buffers: the stage did not run.
struct StepOutputs {
  Buffer<float> logits;             // [rows, width], with keep_logits
  Buffer<std::int32_t> candidates;  // [rows, candidate_count], publishers
  Buffer<std::int32_t> indices;     // [rows, k]
  Buffer<std::int32_t> counts;      // [rows]
  Buffer<std::int32_t> slots;       // [rows, k]
  std::int64_t k = 0;               // columns of indices and slots
  Buffer<std::uint32_t> mask;       // [requests, mask_rows, mask_words]
  Buffer<std::uint32_t> mask_any, mask_all;
  std::int64_t mask_rows = 0, mask_words = 0;
  Buffer<float> out, lse;              // [rows, heads, 512], [rows, heads]
  Buffer<float> dense_out, dense_lse;  // the same over all visible keys, with compare_dense
};

// Runs what the step's tensors allow. The status is the first error that is not a refusal; refusals stand in
// the stages of the report, and stages that need their result are skipped.
[[nodiscard]] Status run_step(const io::Step& step, const RunOptions& options, StepOutputs& out,
                              io::StepReport& report);

}  // namespace keysieve::cli

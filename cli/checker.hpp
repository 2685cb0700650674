// checker: judges one step's dumped tensors, stage by stage. Its parts:
//
//   check_step.cc       the order of the stages, the reference, scores
//   check_selection.cc  candidate blocks and selected keys
//   check_mask.cc       what follows from a selection: counts, slots, the packed mask
//   check_attention.cc  output and LSE
#pragma once

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check_step.hpp"
#include "pipeline.hpp"
#include "stage_args.hpp"
#include "text.hpp"

namespace keysieve::cli {

inline float real(const Tensor& t, std::int64_t at) {
  if (t.dtype == DType::f32) return static_cast<const float*>(t.data)[at];
  return std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(t.data)[at]} << 16);
}
inline float real(const Tensor& t, std::int64_t row, std::int64_t column) {
  return real(t, row * t.stride[0] + column);
}

// NaN ranks first, as the operations do it.
inline double rank_score(float score) {
  return std::isnan(score) ? std::numeric_limits<double>::infinity() : static_cast<double>(score);
}

class Checker {
 public:
  Checker(const io::Step& step, double tolerance, const std::function<void(const std::string&)>& progress);
  [[nodiscard]] std::vector<Finding> run();

 private:
  // Selected keys of every row, [rows, k]; with k of 0 there is no memory to point to.
  struct Selection {
    const std::int32_t* keys = nullptr;
    std::int64_t k = 0;
  };

  [[nodiscard]] bool attends() const { return step_.has_attention && (dumped_.out || dumped_.lse); }
  [[nodiscard]] std::int64_t request(std::int64_t row) const {
    return step_.row_request[static_cast<std::size_t>(row)];
  }

  Finding& finding(const char* stage);
  void breaks(const char* stage, std::int64_t row, const char* rule, std::string values);
  void unchecked(const char* stage, std::string why);

  // Runs the reference; false with `why` when it has no kernel or refuses the arguments.
  template <class Args>
  bool reference(const char* what, const Args& args, std::string& why) {
    if (progress_) progress_(step_.name + ": reference " + what);
    PlanOptions options;
    options.backend = "reference";
    Plan<Args> planned;
    Status status = plan(args, options, planned);
    Buffer<char> workspace(static_cast<std::int64_t>(planned.workspace_bytes) + 64);
    const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
    if (status.ok()) {
      status = keysieve::run(planned, args,
                             {workspace.data() + (64 - address % 64) % 64, planned.workspace_bytes}, {});
    }
    if (!status.ok()) why = status.message();
    return status.ok();
  }

  void index_stages();
  void check_scores(RowChunk rows, const Tensor& computed);
  void check_candidates(RowChunk rows, const Tensor& source, bool own);
  void check_selection(RowChunk rows, const Tensor& source, bool own);
  // The same members, or others whose scores lie within `slack` of those they replace.
  void compare_sets(const char* stage, std::int64_t row, const char* rule, const char* noun,
                    const std::int32_t* wanted, std::int64_t columns, const std::set<std::int64_t>& seen,
                    const std::function<float(std::int64_t)>& score, double slack);
  // What the engine selected: its own list, or the file's, or the reference's; nothing where there is none.
  [[nodiscard]] std::optional<Selection> selection() const;
  [[nodiscard]] std::int64_t dumped_slot(std::int64_t at) const;
  void check_counts();
  void check_slots();
  void check_mask();
  void check_attention();
  void compare_attention(const char* stage, const Tensor& seen, const Buffer<float>& expected,
                         std::int64_t heads, std::int64_t width);

  const io::Step& step_;
  const io::Dumped& dumped_;
  const std::function<void(const std::string&)>& progress_;
  double tolerance_;
  std::vector<Finding> findings_;
  Buffer<std::int32_t> reference_indices_;
  bool have_reference_indices_ = false;
};

// The greatest finite size of a row's visible scores.
[[nodiscard]] double greatest_score(const Tensor& scores, std::int64_t row, std::int64_t first,
                                    std::int64_t count);

}  // namespace keysieve::cli

// step file: one step of an indexer layer (or of several layers) as an engine saw it, in safetensors.
// docs/step_file.md is the format; everything below is checked when the file is opened, so the rest of the
// program may trust shapes, row counts and request borders. Values that are data to the operations (lengths,
// page ids, candidate ids, positions) are not judged here: the operations take any.
//
//   STP-01 the version is one that this reader knows            STP-06 bounds: one of the documented forms
//   STP-02 metadata values are numbers or words in their range  STP-07 starts rise from 0 and end inside the
//   data STP-03 a tensor has the dtype and shape of its table row    STP-08 sizes stay below the limits of
//   Limits STP-04 every tensor of a layer has the same rows, requests  STP-09 the file holds at least one
//   stage STP-05 what a stage needs is complete                       STP-10 no position twice in kv_pos
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.hpp"
#include "keysieve/bounds.hpp"
#include "keysieve/status.hpp"
#include "keysieve/tensor.hpp"

namespace keysieve::io {

inline constexpr int kStepFileVersion = 1;

enum class Role : std::uint8_t { none, publish, consume };
[[nodiscard]] const char* role_name(Role role);

// A step that asks for more than this is refused rather than allocated.
struct Limits {
  static constexpr std::int64_t kMaxRows = std::int64_t{1} << 20;   // over all layers of a file
  static constexpr std::int64_t kMaxWidth = std::int64_t{1} << 26;  // keys of one row
  static constexpr std::int64_t kMaxTopk = std::int64_t{1} << 20;
  static constexpr std::int64_t kMaxRowEntries = std::int64_t{1} << 26;  // rows * topk, rows * candidates
};

// Where the latent rows of a request's positions lie. A slot is a row of `pool` seen as [slots, d].
class LatentCache {
 public:
  enum class Form : std::uint8_t { none, full, compact, paged };
  Form form = Form::none;
  Tensor pool;                      // bf16 [pages, page_tokens, d]; full and compact: pages of one token
  Tensor page_table;                // paged: i32 [requests, columns]
  std::vector<std::int64_t> start;  // full, compact: [requests + 1] rows of the pool
  std::vector<std::pair<std::int32_t, std::int64_t>>
      positions;  // compact: (position, slot), sorted inside a request

  [[nodiscard]] std::int64_t slots() const { return pool.shape[0] * pool.shape[1]; }
  // The slot of a position, -1 where the file holds no latent row for it.
  [[nodiscard]] std::int64_t slot(std::int64_t request, std::int64_t position) const;
  // Whether the rows of all positions [0, count) are here.
  [[nodiscard]] bool complete(std::int64_t request, std::int64_t count) const;
};

// What someone computed for this step: the file's author (expected_*, float64 on the stored tensors).
struct Expected {
  const FileTensor* topk = nullptr;               // i32 [rows, k], -1 padded, any order
  const FileTensor* topk_unrestricted = nullptr;  // the same without candidates
  const FileTensor* topk_gap = nullptr;           // f64 [rows]
  const FileTensor* scores = nullptr;             // f64, see score_row
  const FileTensor* out = nullptr;                // f64 [checked rows, heads, 512]
  const FileTensor* lse = nullptr;                // f64 [checked rows, heads]
  std::vector<std::int64_t> checked;      // row -> place in the tensors of checked rows, -1: not there
  std::vector<std::int64_t> score_start;  // row -> first element of its scores, -1: not there
  std::vector<std::int64_t> score_count;
};

// What an engine dumped of its own run; `check` judges it. The same names are what `run -o` writes.
struct Dumped {
  const FileTensor* logits = nullptr;      // f32|bf16 [rows, width]
  const FileTensor* candidates = nullptr;  // i32 [rows, candidates]
  const FileTensor* indices = nullptr;     // i32 [rows, k], local
  const FileTensor* counts = nullptr;      // i32 [rows]
  const FileTensor* slots = nullptr;       // i32|i64 [rows, k]
  const FileTensor* mask = nullptr;        // u32|i32 [requests, padded rows, words]
  const FileTensor* out = nullptr;         // bf16|f32 [rows, heads, 512]
  const FileTensor* lse = nullptr;         // f32 [rows, heads]
  [[nodiscard]] bool any() const {
    return logits || candidates || indices || counts || slots || mask || out || lse;
  }
};

// One layer's step. Tensors are views into the file or into the vectors here, which is why it only moves.
struct Step {
  Step() = default;
  Step(Step&&) = default;
  Step& operator=(Step&&) = default;

  std::string name;    // "layer 3", or "step" without a layer
  std::string prefix;  // "layer3." in the file, or ""
  Role role = Role::none;
  std::int64_t rows = 0;
  std::int64_t requests = 0;
  std::int64_t rows_per_request = 0;      // 0: they differ
  std::vector<std::int32_t> q_start;      // [requests + 1]
  std::vector<std::int32_t> row_request;  // [rows]

  // Scoring and selection.
  bool has_index = false;
  std::int64_t topk = 0;
  std::int64_t ratio = 1;
  std::int64_t block_size = 8;
  std::int64_t candidate_count = 0;  // publish: how many blocks
  Tensor index_q, index_w;
  Tensor index_k, index_k_scale;         // contiguous keys, requests one after another
  Tensor index_cache, index_page_table;  // or pages
  std::int64_t index_page_tokens = 0;
  Tensor candidates;       // consume: [rows, candidates]; publish: what the author's model published
  std::int64_t width = 0;  // columns that the scores of this step need
  std::vector<std::int64_t> first_column;  // [rows] column of the row's key 0; empty without bounds
  std::vector<std::int64_t> end_column;    // [rows] one past its last visible column, >= first_column
  Bounds file_bounds;                      // as the file gives them, where an operation can take that

  // Attention.
  bool has_attention = false;
  std::int64_t heads = 0;
  std::int64_t latent_dim = 0;
  float softmax_scale = 0;
  Tensor mla_q, sink;
  LatentCache latent;
  Tensor selection;  // i32 [rows, k]: a selection that came with the file, used where there is no index stage

  Expected expected;
  Dumped dumped;

  [[nodiscard]] bool has_bounds() const { return !end_column.empty() || rows == 0; }
  [[nodiscard]] std::int64_t visible(std::int64_t row) const {
    return end_column[static_cast<std::size_t>(row)] - first_column[static_cast<std::size_t>(row)];
  }
};

class StepFile {
 public:
  [[nodiscard]] static Status open(const std::string& path, StepFile& out);
  // The same over memory that outlives `out`; what the fuzz target calls.
  [[nodiscard]] static Status parse(const void* data, std::size_t bytes, StepFile& out);

  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }  // by layer
  [[nodiscard]] const SafetensorsFile& file() const { return *file_; }
  // Tensors of no known name, and metadata keys.
  [[nodiscard]] const std::vector<std::string>& unused() const { return unused_; }
  [[nodiscard]] const std::vector<std::string>& unused_metadata() const { return unused_metadata_; }

 private:
  [[nodiscard]] static Status load(StepFile& out);
  std::unique_ptr<SafetensorsFile> file_ = std::make_unique<SafetensorsFile>();
  std::vector<Step> steps_;
  std::vector<std::string> unused_, unused_metadata_;
};

// A dense view of a file's array; leading axes are folded so that `rank` remain. The library only reads it.
[[nodiscard]] Tensor view(const FileTensor& tensor, int rank);

}  // namespace keysieve::io

// step_loader: one layer of a step file, tensor by tensor; the first broken rule stays. Internal to src/io. Each part has
// a file of its own:
//
//   step_loader.cc     finding a tensor and judging its dtype and shape; the order of the parts
//   step_requests.cc   how many rows and requests, and which rows each request has
//   step_index.cc      what scoring and selecting need: queries, keys or pages, candidates
//   step_bounds.cc     which keys each row sees
//   step_attention.cc  queries and latent rows
//   step_results.cc    what an author expects and what an engine dumped
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "io/step_file.hpp"
#include "io/step_metadata.hpp"
#include "io/step_rules.hpp"

namespace keysieve::io {

inline constexpr auto kIntegers = {FileDType::i32, FileDType::i64};

inline std::int64_t integer_at(const FileTensor& t, std::int64_t i) {
  return t.dtype == FileDType::i64 ? t.as<std::int64_t>()[i] : t.as<std::int32_t>()[i];
}

// Of the first `axes` extents.
inline std::int64_t extents_product(const std::vector<std::int64_t>& shape, std::size_t axes) {
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis < axes; ++axis) count *= shape[axis];
  return count;
}

class StepLoader {
 public:
  // `publishes`: without a role in the metadata, this layer is the one that published the shared candidates.
  StepLoader(const SafetensorsFile& file, std::string prefix, bool publishes, Step& step);
  [[nodiscard]] Status load();
  // Names of the file that mean something to this layer.
  [[nodiscard]] const std::set<std::string>& used() const { return used_; }
  [[nodiscard]] const std::set<std::string>& known_metadata() const { return known_metadata_; }

 private:
  enum class Need : bool { optional, required };

  void sizes();
  void requests();
  void index();
  void bounds();
  void bounds_from_rows(const FileTensor& row_end);
  void bounds_from_positions(const FileTensor& query_pos);
  void bounds_from_lengths(const FileTensor& lengths, bool tokens);
  void end_rows_at(const std::vector<std::int64_t>& visible);
  void candidates();
  void attention();
  void latent();
  void compact_positions(const FileTensor& kv_pos);
  void expected();
  void expected_scores();
  void dumped();

  [[nodiscard]] bool failed() const { return !status_.ok(); }
  [[gnu::format(printf, 4, 5)]] void fail(const char* rule, const char* argument, const char* format, ...);
  // The layer's own tensor or else the shared one; null when there is none.
  const FileTensor* find(const char* name);
  // The same with a dtype out of `dtypes` and, after folding the leading axes, shape [rows, tail...]; -1 is
  // any extent.
  const FileTensor* row_tensor(const char* name, std::initializer_list<FileDType> dtypes,
                               std::initializer_list<std::int64_t> tail, const char* rule,
                               Need need = Need::optional);
  const FileTensor* plain_tensor(const char* name, std::initializer_list<FileDType> dtypes,
                                 std::initializer_list<std::int64_t> shape, const char* rule,
                                 Need need = Need::optional);
  // [requests + 1] values that rise from 0 to at most `last`; empty when the tensor is absent.
  std::vector<std::int64_t> starts(const char* name, std::int64_t last);

  const SafetensorsFile& file_;
  Step& step_;
  bool publishes_;
  StepMetadata metadata_;
  std::set<std::string> used_, known_metadata_;
  Status status_;
};

}  // namespace keysieve::io

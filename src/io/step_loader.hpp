// step_loader: one layer of a step file, tensor by tensor; the first broken rule stays. Internal to src/io.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "io/step_file.hpp"

namespace keysieve::io {

class StepLoader {
 public:
  // `publishes`: without a role in the metadata, this layer is the one that published the shared candidates.
  StepLoader(const SafetensorsFile& file, std::string prefix, bool publishes, Step& step);
  [[nodiscard]] Status load();
  [[nodiscard]] const std::set<std::string>& used() const { return used_; }

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
  const std::string* metadata(const char* key) const;
  std::int64_t metadata_int(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most);

  const SafetensorsFile& file_;
  Step& step_;
  bool publishes_;
  std::int64_t metadata_topk_ = -1;
  std::set<std::string> used_;
  Status status_;
};

}  // namespace keysieve::io

#include "io/step_loader.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdlib>

#include "io/file_error.hpp"

namespace keysieve::io {
namespace {

constexpr const char* kVersionRule = "STP-01 metadata keysieve_step is absent or \"1\"";
constexpr const char* kMetadataRule = "STP-02 a metadata value in its range";
constexpr const char* kCompleteRule = "STP-05 everything that the stage needs";
constexpr const char* kStartsRule = "STP-07 starts that rise from 0 and end inside the data";
constexpr const char* kLimitRule = "STP-08 a size below the program's limit";

const auto kIntegers = {FileDType::i32, FileDType::i64};

std::int64_t integer_at(const FileTensor& t, std::int64_t i) {
  return t.dtype == FileDType::i64 ? t.as<std::int64_t>()[i] : t.as<std::int32_t>()[i];
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t axes) {
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis < axes; ++axis) count *= shape[axis];
  return count;
}

// Floor division: -1 / 4 is -1, so that a negative length stays negative.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

StepLoader::StepLoader(const SafetensorsFile& file, std::string prefix, bool publishes, Step& step)
    : file_(file), step_(step), publishes_(publishes) {
  step_.prefix = std::move(prefix);
}

void StepLoader::fail(const char* rule, const char* argument, const char* format, ...) {
  if (failed()) return;
  char text[Status::kSeenCapacity];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  status_ = file_error(Code::bad_file, "step_file", rule, argument, "%s%s%s", step_.prefix.c_str(),
                       step_.prefix.empty() ? "" : ": ", text);
}

const FileTensor* StepLoader::find(const char* name) {
  if (!step_.prefix.empty()) {
    if (const FileTensor* own = file_.find(step_.prefix + name)) {
      used_.insert(own->name);
      return own;
    }
  }
  const FileTensor* shared = file_.find(name);
  if (shared != nullptr) used_.insert(shared->name);
  return shared;
}

const FileTensor* StepLoader::plain_tensor(const char* name, std::initializer_list<FileDType> dtypes,
                                           std::initializer_list<std::int64_t> shape, const char* rule,
                                           Need need) {
  if (failed()) return nullptr;
  const FileTensor* tensor = find(name);
  if (tensor == nullptr) {
    if (need == Need::required) fail(kCompleteRule, name, "no tensor of this name");
    return nullptr;
  }
  bool fits = std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end() &&
              tensor->shape.size() == shape.size();
  for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) {
    const std::int64_t wanted = shape.begin()[axis];
    fits = wanted < 0 || wanted == tensor->shape[axis];
  }
  if (fits) return tensor;
  fail(rule, name, "%s", tensor->describe().c_str());
  return nullptr;
}

const FileTensor* StepLoader::row_tensor(const char* name, std::initializer_list<FileDType> dtypes,
                                         std::initializer_list<std::int64_t> tail, const char* rule,
                                         Need need) {
  if (failed()) return nullptr;
  const FileTensor* tensor = find(name);
  if (tensor == nullptr) {
    if (need == Need::required) fail(kCompleteRule, name, "no tensor of this name");
    return nullptr;
  }
  const std::size_t rank = tensor->shape.size();
  // One leading axis of rows, or two: requests and draft rows.
  bool fits = std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end() &&
              (rank == tail.size() + 1 || rank == tail.size() + 2) &&
              product(tensor->shape, rank - tail.size()) == step_.rows;
  for (std::size_t axis = 0; fits && axis < tail.size(); ++axis) {
    const std::int64_t wanted = tail.begin()[axis];
    fits = wanted < 0 || wanted == tensor->shape[rank - tail.size() + axis];
  }
  if (fits) return tensor;
  fail(rule, name, "%s for %" PRId64 " rows", tensor->describe().c_str(), step_.rows);
  return nullptr;
}

const std::string* StepLoader::metadata(const char* key) const {
  const auto& all = file_.metadata();
  auto found = step_.prefix.empty() ? all.end() : all.find(step_.prefix + key);
  if (found == all.end()) found = all.find(key);
  return found == all.end() ? nullptr : &found->second;
}

std::int64_t StepLoader::metadata_int(const char* key, std::int64_t otherwise, std::int64_t least,
                                      std::int64_t most) {
  const std::string* text = metadata(key);
  if (text == nullptr) return otherwise;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error == std::errc() && end == text->data() + text->size() && value >= least && value <= most)
    return value;
  fail(kMetadataRule, key, "\"%.60s\", allowed %" PRId64 " to %" PRId64, text->c_str(), least, most);
  return otherwise;
}

std::vector<std::int64_t> StepLoader::starts(const char* name, std::int64_t last) {
  const FileTensor* tensor =
      plain_tensor(name, kIntegers, {step_.requests + 1}, "STP-03 starts are I32 or I64 [requests + 1]");
  if (tensor == nullptr) return {};
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i <= step_.requests; ++i) {
    const std::int64_t value = integer_at(*tensor, i);
    if (i == 0 ? value != 0 : value < values.back()) {
      fail(kStartsRule, name, "%" PRId64 " at [%" PRId64 "]", value, i);
      return {};
    }
    values.push_back(value);
  }
  if (values.back() > last) fail(kStartsRule, name, "the end %" PRId64 " of %" PRId64, values.back(), last);
  return values;
}

Status StepLoader::load() {
  const std::string* version = metadata("keysieve_step");
  if (version != nullptr && *version != std::to_string(kStepFileVersion)) {
    fail(kVersionRule, "metadata", "\"%.60s\"", version->c_str());
  }
  metadata_topk_ = metadata_int("topk", -1, 0, Limits::kMaxTopk);
  sizes();
  if (!failed()) requests();
  if (!failed() && step_.has_index) index();
  if (!failed()) bounds();
  if (!failed()) candidates();
  if (!failed() && step_.has_attention) attention();
  if (!failed()) expected();
  if (!failed()) dumped();
  return status_;
}

// Which stages there are, and how many rows.
void StepLoader::sizes() {
  const FileTensor* index_q = find("index_q");
  const FileTensor* mla_q = find("mla_q");
  step_.has_index = index_q != nullptr;
  step_.has_attention = mla_q != nullptr;
  const FileTensor* q = index_q != nullptr ? index_q : mla_q;
  if (q == nullptr) return fail("STP-09 index_q or mla_q", "index_q", "neither");
  const std::size_t rank = q->shape.size();
  if (rank != 3 && rank != 4) {
    return fail("STP-03 queries are [rows, heads, dim] or [requests, next_n, heads, dim]",
                index_q != nullptr ? "index_q" : "mla_q", "%s", q->describe().c_str());
  }
  if (q->elements() == 0) return fail("STP-09 at least one query", "index_q", "%s", q->describe().c_str());
  step_.rows = product(q->shape, rank - 2);
  if (step_.rows > Limits::kMaxRows) return fail(kLimitRule, "index_q", "%" PRId64 " rows", step_.rows);
  if (rank == 4) step_.requests = q->shape[0];
}

// How many requests, and which rows each has.
void StepLoader::requests() {
  const char* source = step_.requests > 0 ? "index_q" : "";
  const auto agree = [&](const char* name, std::int64_t count) {
    if (count < 1) return fail("STP-04 at least one request", name, "%" PRId64, count);
    if (step_.requests == 0) {
      step_.requests = count;
      source = name;
    } else if (step_.requests != count) {
      fail("STP-04 all tensors speak of the same requests", name, "%" PRId64 " requests, %s has %" PRId64,
           count, source, step_.requests);
    }
  };
  for (const char* name : {"q_start", "k_start", "kv_start"}) {
    const FileTensor* tensor = find(name);
    if (tensor != nullptr && tensor->shape.size() == 1) agree(name, tensor->shape[0] - 1);
  }
  for (const char* name : {"index_page_table", "kv_page_table", "page_table"}) {
    const FileTensor* tensor = find(name);
    if (tensor != nullptr && tensor->shape.size() == 2) agree(name, tensor->shape[0]);
  }
  for (const char* name : {"lengths", "context_len"}) {
    const FileTensor* tensor = find(name);
    if (tensor != nullptr && !tensor->shape.empty()) agree(name, tensor->shape[0]);
  }
  if (step_.requests == 0) agree("index_q", 1);
  if (failed()) return;

  const std::vector<std::int64_t> given = starts("q_start", step_.rows);
  if (failed()) return;
  if (!given.empty() && given.back() != step_.rows) {
    return fail(kStartsRule, "q_start", "the end %" PRId64 " of %" PRId64 " rows", given.back(), step_.rows);
  }
  if (given.empty() && step_.rows % step_.requests != 0) {
    return fail("STP-04 without q_start every request has the same number of rows", "q_start",
                "%" PRId64 " rows of %" PRId64 " requests", step_.rows, step_.requests);
  }
  const std::int64_t each = step_.rows / step_.requests;
  bool uniform = true;
  for (std::int64_t b = 0; b <= step_.requests; ++b) {
    step_.q_start.push_back(
        static_cast<std::int32_t>(given.empty() ? b * each : given[static_cast<std::size_t>(b)]));
    uniform = uniform && step_.q_start.back() == b * each;
  }
  step_.rows_per_request = uniform ? each : 0;
  for (std::int64_t b = 0; b < step_.requests; ++b) {
    step_.row_request.resize(static_cast<std::size_t>(step_.q_start[static_cast<std::size_t>(b) + 1]),
                             static_cast<std::int32_t>(b));
  }
  const std::int64_t next_n = metadata_int("next_n", each, 1, Limits::kMaxTopk);
  if (uniform && next_n != each && step_.requests > 1) {
    fail("STP-04 rows = requests * next_n", "next_n",
         "%" PRId64 " for %" PRId64 " rows of %" PRId64 " requests", next_n, step_.rows, step_.requests);
  }
}

void StepLoader::index() {
  const FileTensor* q = row_tensor("index_q", {FileDType::bf16, FileDType::u8, FileDType::f8_e4m3}, {-1, -1},
                                   "STP-03 index_q is BF16 or U8 [rows, heads, dim]", Need::required);
  if (q == nullptr) return;
  step_.index_q = view(*q, 3);
  const std::int64_t heads = step_.index_q.shape[1];
  const std::int64_t dim = step_.index_q.shape[2];
  const bool fp8 = q->dtype != FileDType::bf16;
  const FileTensor* w = row_tensor("index_w", {FileDType::f32, FileDType::bf16}, {heads},
                                   "STP-03 index_w is F32 or BF16 [rows, heads]", Need::required);
  if (w == nullptr) return;
  step_.index_w = view(*w, 2);

  const bool paged = find("index_cache") != nullptr;
  if (paged == (find("index_k") != nullptr)) {
    return fail(kCompleteRule, "index_k", "%s",
                paged ? "both index_k and index_cache" : "neither index_k nor index_cache");
  }
  if (!paged) {
    const FileTensor* k = fp8 ? plain_tensor("index_k", {FileDType::u8, FileDType::f8_e4m3}, {-1, dim},
                                             "STP-03 index_k is U8 [keys, dim], as index_q")
                              : plain_tensor("index_k", {FileDType::bf16}, {-1, dim},
                                             "STP-03 index_k is BF16 [keys, dim], as index_q");
    if (k == nullptr) return;
    step_.index_k = view(*k, 2);
    if (fp8) {
      const FileTensor* scale = plain_tensor("index_k_scale", {FileDType::f32}, {k->shape[0]},
                                             "STP-03 index_k_scale is F32 [keys]", Need::required);
      if (scale != nullptr) step_.index_k_scale = view(*scale, 1);
    }
    return;
  }
  const FileTensor* cache = fp8 ? plain_tensor("index_cache", {FileDType::u8}, {-1, -1},
                                               "STP-03 an fp8 index_cache is U8 [pages, bytes of a page]")
                                : plain_tensor("index_cache", {FileDType::bf16}, {-1, -1, dim},
                                               "STP-03 a bf16 index_cache is BF16 [pages, page_tokens, dim]");
  if (cache == nullptr) return;
  step_.index_cache = view(*cache, static_cast<int>(cache->shape.size()));
  step_.index_page_tokens = fp8 ? metadata_int("index_page_tokens", 64, 1, 1 << 20) : cache->shape[1];
  if (failed()) return;
  if (fp8 && cache->shape[1] < step_.index_page_tokens * (dim + 4)) {
    return fail("STP-03 a page holds index_page_tokens * (dim + 4) bytes", "index_cache",
                "%s for %" PRId64 " tokens", cache->describe().c_str(), step_.index_page_tokens);
  }
  const char* table_name = find("index_page_table") != nullptr ? "index_page_table" : "page_table";
  const FileTensor* table = plain_tensor(table_name, {FileDType::i32}, {step_.requests, -1},
                                         "STP-03 page tables are I32 [requests, columns]", Need::required);
  if (table == nullptr) return;
  if (step_.rows_per_request == 0) {
    return fail("STP-04 paged keys need the same number of rows for every request", "q_start",
                "unequal numbers");
  }
  step_.index_page_table = view(*table, 2);
}

// first_column and end_column of every row, the width, and the form that is handed on.
void StepLoader::bounds() {
  const FileTensor* row_end = find("row_end");
  const FileTensor* query_pos = find("query_pos");
  const FileTensor* lengths = find("lengths");
  const FileTensor* context_len = find("context_len");
  const int forms = int{row_end != nullptr} + int{query_pos != nullptr} + int{lengths != nullptr};
  if (forms > 1) {
    return fail("STP-06 one of row_end, query_pos and lengths", "query_pos", "%d of them", forms);
  }
  step_.ratio = metadata_int("ratio", 1, 1, 1 << 20);
  if (failed()) return;
  if (row_end != nullptr) return bounds_from_rows(*row_end);
  if (query_pos != nullptr) return bounds_from_positions(*query_pos);
  const std::string* unit = metadata("length_unit");
  if (unit != nullptr && *unit != "tokens" && *unit != "compressed") {
    return fail(kMetadataRule, "length_unit", "\"%.60s\", allowed tokens and compressed", unit->c_str());
  }
  if (lengths != nullptr) return bounds_from_lengths(*lengths, unit == nullptr || *unit == "tokens");
  if (context_len != nullptr && step_.rows_per_request > 0) return bounds_from_lengths(*context_len, true);
  if (step_.has_index) {
    fail("STP-06 one of row_end, query_pos, lengths and context_len", "query_pos", "none of them");
  }
}

void StepLoader::bounds_from_rows(const FileTensor& row_end) {
  if (!step_.index_k.given()) {
    return fail("STP-06 row_end counts columns of contiguous index_k", "row_end", "no index_k");
  }
  const std::int64_t repeat = metadata_int("row_repeat", 1, 1, INT32_MAX);
  const std::int64_t entries = (step_.rows + repeat - 1) / repeat;
  const FileTensor* end =
      plain_tensor("row_end", kIntegers, {entries}, "STP-03 row_end is I32 or I64 [rows / row_repeat]");
  const FileTensor* start =
      plain_tensor("row_start", kIntegers, {entries}, "STP-03 row_start is I32 or I64 [rows / row_repeat]");
  if (failed()) return;
  step_.width = step_.index_k.shape[0];
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    const std::int64_t last = std::clamp<std::int64_t>(integer_at(row_end, r / repeat), 0, step_.width);
    const std::int64_t first = start == nullptr ? 0 : integer_at(*start, r / repeat);
    step_.first_column.push_back(std::clamp<std::int64_t>(first, 0, last));
    step_.end_column.push_back(last);
  }
  step_.file_bounds.form = BoundsForm::ends;
  step_.file_bounds.end = view(*end, 1);
  if (start != nullptr) step_.file_bounds.start = view(*start, 1);
  step_.file_bounds.row_repeat = repeat;
}

void StepLoader::bounds_from_positions(const FileTensor& query_pos) {
  if (row_tensor("query_pos", kIntegers, {}, "STP-03 query_pos is I32 or I64 [rows]") == nullptr) return;
  std::vector<std::int64_t> visible;
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    // + 1 after the division would be wrong, before it overflows at the largest position.
    const std::int64_t position = std::min(integer_at(query_pos, r), INT64_MAX - 1);
    visible.push_back(floor_divide(position + 1, step_.ratio));
  }
  end_rows_at(visible);
}

void StepLoader::bounds_from_lengths(const FileTensor& lengths, bool tokens) {
  const std::size_t rank = lengths.shape.size();
  const std::int64_t next_n = step_.rows_per_request;
  const bool fits = next_n > 0 && (lengths.dtype == FileDType::i32 || lengths.dtype == FileDType::i64) &&
                    (rank == 1 || rank == 2) && lengths.shape[0] == step_.requests &&
                    (rank == 1 || lengths.shape[1] == next_n);
  if (!fits) {
    return fail("STP-03 lengths is I32 or I64 [requests] or [requests, next_n]", "lengths",
                "%s for %" PRId64 " requests of %" PRId64 " rows", lengths.describe().c_str(), step_.requests,
                next_n);
  }
  if (rank == 1 && !tokens && step_.ratio > 1 && next_n > 1) {
    return fail("STP-06 compressed lengths of several draft rows come as [requests, next_n]", "lengths",
                "ratio %" PRId64 " and %" PRId64 " rows", step_.ratio, next_n);
  }
  std::vector<std::int64_t> visible;
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    const std::int64_t length = integer_at(lengths, rank == 1 ? r / next_n : r);
    const std::int64_t value =
        rank == 2 || length < INT64_MIN + next_n ? length : length - next_n + r % next_n + 1;
    visible.push_back(tokens ? floor_divide(value, step_.ratio) : value);
  }
  end_rows_at(visible);
  if (failed() || !step_.index_cache.given()) return;
  step_.file_bounds = {};
  step_.file_bounds.form = BoundsForm::lengths;
  step_.file_bounds.end = view(lengths, static_cast<int>(rank));
  step_.file_bounds.next_n = next_n;
  step_.file_bounds.ratio = step_.ratio;
  step_.file_bounds.unit = tokens ? LengthUnit::tokens : LengthUnit::compressed;
}

// Rows that count their own request's keys: adds where the request's keys start, and never runs past them.
void StepLoader::end_rows_at(const std::vector<std::int64_t>& visible) {
  std::vector<std::int64_t> k_start;
  std::int64_t most = Limits::kMaxWidth;
  if (step_.index_k.given()) {
    k_start = starts("k_start", step_.index_k.shape[0]);
    if (failed()) return;
    if (k_start.empty() && step_.requests > 1) {
      return fail(kCompleteRule, "k_start", "no tensor of this name for %" PRId64 " requests",
                  step_.requests);
    }
    if (k_start.empty()) k_start = {0, step_.index_k.shape[0]};
    step_.width = k_start.back();
  } else if (step_.index_cache.given()) {
    most = step_.index_page_table.shape[1] * step_.index_page_tokens;
  }
  for (std::int64_t r = 0; r < step_.rows; ++r) {
    const auto b = static_cast<std::size_t>(step_.row_request[static_cast<std::size_t>(r)]);
    const std::int64_t first = k_start.empty() ? 0 : k_start[b];
    const std::int64_t keys = k_start.empty() ? most : k_start[b + 1] - first;
    const std::int64_t count = std::clamp<std::int64_t>(visible[static_cast<std::size_t>(r)], 0, keys);
    step_.first_column.push_back(first);
    step_.end_column.push_back(first + count);
    if (k_start.empty()) step_.width = std::max(step_.width, count);
  }
  if (step_.width > Limits::kMaxWidth) fail(kLimitRule, "query_pos", "%" PRId64 " keys", step_.width);
}

void StepLoader::candidates() {
  step_.block_size = metadata_int("candidate_block", 8, 1, Limits::kMaxWidth);
  const char* name = find("candidate_blocks_in") != nullptr ? "candidate_blocks_in" : "candidate_blocks";
  const FileTensor* blocks =
      row_tensor(name, {FileDType::i32}, {-1}, "STP-03 candidate_blocks is I32 [rows, candidates]");
  if (failed()) return;
  if (blocks != nullptr) step_.candidates = view(*blocks, 2);
  const std::string* role = metadata("role");
  if (role == nullptr) {
    step_.role = blocks == nullptr ? Role::none : publishes_ ? Role::publish : Role::consume;
  } else if (*role == "none") {
    step_.role = Role::none;
  } else if (*role == "publisher" || *role == "publish") {
    step_.role = Role::publish;
  } else if (*role == "consumer" || *role == "consume") {
    step_.role = Role::consume;
  } else {
    return fail(kMetadataRule, "role", "\"%.60s\", allowed publisher, consumer and none", role->c_str());
  }
  if (!step_.has_index) return;
  if (step_.role == Role::consume && blocks == nullptr) {
    return fail(kCompleteRule, "candidate_blocks", "no tensor of this name for a consumer");
  }
  step_.candidate_count = metadata_int("candidate_count", blocks != nullptr ? step_.candidates.shape[1] : -1,
                                       0, Limits::kMaxTopk);
  if (step_.role == Role::publish && step_.candidate_count < 0) {
    return fail(kCompleteRule, "candidate_count", "no metadata and no candidate_blocks for a publisher");
  }
  if (step_.role == Role::publish && step_.candidate_count * step_.rows > Limits::kMaxRowEntries) {
    return fail(kLimitRule, "candidate_count", "%" PRId64 " for %" PRId64 " rows", step_.candidate_count,
                step_.rows);
  }
}

void StepLoader::attention() {
  const FileTensor* q = row_tensor("mla_q", {FileDType::bf16}, {-1, -1},
                                   "STP-03 mla_q is BF16 [rows, heads, dim]", Need::required);
  if (q == nullptr) return;
  step_.mla_q = view(*q, 3);
  step_.heads = step_.mla_q.shape[1];
  step_.latent_dim = step_.mla_q.shape[2];
  if (step_.latent_dim != 576 && step_.latent_dim != 512) {
    return fail("STP-03 mla_q has 576 or 512 dims", "mla_q", "%s", q->describe().c_str());
  }
  const std::string* scale = metadata("softmax_scale");
  if (scale == nullptr) return fail(kCompleteRule, "softmax_scale", "no metadata of this name");
  char* end = nullptr;
  const double value = std::strtod(scale->c_str(), &end);
  if (scale->empty() || *end != '\0' || !std::isfinite(static_cast<float>(value)) ||
      static_cast<float>(value) <= 0) {
    return fail(kMetadataRule, "softmax_scale", "\"%.60s\", allowed finite numbers above 0", scale->c_str());
  }
  step_.softmax_scale = static_cast<float>(value);
  const FileTensor* sink =
      plain_tensor("attn_sink", {FileDType::f32}, {step_.heads}, "STP-03 attn_sink is F32 [heads]");
  if (sink != nullptr) step_.sink = view(*sink, 1);
  latent();
  if (failed()) return;
  const FileTensor* topk = row_tensor("topk", {FileDType::i32}, {-1}, "STP-03 topk is I32 [rows, k]");
  if (topk != nullptr) step_.selection = view(*topk, 2);
  if (!failed() && !step_.has_index && topk == nullptr) {
    fail(kCompleteRule, "topk", "no tensor of this name, and no index_q to select with");
  }
}

void StepLoader::latent() {
  LatentCache& latent = step_.latent;
  const bool paged = find("kv_cache") != nullptr;
  if (paged == (find("kv") != nullptr)) {
    return fail(kCompleteRule, "kv", "%s", paged ? "both kv and kv_cache" : "neither kv nor kv_cache");
  }
  if (paged) {
    const FileTensor* pool = plain_tensor("kv_cache", {FileDType::bf16}, {-1, -1, step_.latent_dim},
                                          "STP-03 kv_cache is BF16 [pages, page_tokens, dim of mla_q]");
    const char* table_name = find("kv_page_table") != nullptr ? "kv_page_table" : "page_table";
    const FileTensor* table = plain_tensor(table_name, {FileDType::i32}, {step_.requests, -1},
                                           "STP-03 page tables are I32 [requests, columns]", Need::required);
    if (failed()) return;
    if (pool->shape[1] < 1)
      return fail("STP-03 a page of kv_cache holds a token", "kv_cache", "%s", pool->describe().c_str());
    latent.pool = view(*pool, 3);
    latent.page_table = view(*table, 2);
    latent.form = LatentCache::Form::paged;
    return;
  }
  const FileTensor* kv = plain_tensor("kv", {FileDType::bf16}, {-1, step_.latent_dim},
                                      "STP-03 kv is BF16 [rows of the pool, dim of mla_q]");
  if (kv == nullptr) return;
  latent.pool = Tensor::dense(view(*kv, 2).data, DType::bf16, {kv->shape[0], 1, step_.latent_dim});
  latent.start = starts("kv_start", kv->shape[0]);
  if (failed()) return;
  if (latent.start.empty() && step_.requests > 1) {
    // Full rows lie as the index keys do.
    const FileTensor* index_k = find("index_k");
    if (index_k != nullptr && !index_k->shape.empty() && index_k->shape[0] == kv->shape[0]) {
      latent.start = starts("k_start", kv->shape[0]);
    }
    if (!failed() && latent.start.empty()) {
      return fail(kCompleteRule, "kv_start", "no tensor of this name for %" PRId64 " requests",
                  step_.requests);
    }
  }
  if (failed()) return;
  if (latent.start.empty()) latent.start = {0, kv->shape[0]};
  latent.form = LatentCache::Form::full;
  const FileTensor* kv_pos =
      plain_tensor("kv_pos", {FileDType::i32}, {kv->shape[0]}, "STP-03 kv_pos is I32 [rows of kv]");
  if (kv_pos != nullptr) compact_positions(*kv_pos);
}

void StepLoader::compact_positions(const FileTensor& kv_pos) {
  LatentCache& latent = step_.latent;
  latent.form = LatentCache::Form::compact;
  for (std::int64_t slot = 0; slot < latent.start.back(); ++slot) {
    latent.positions.emplace_back(kv_pos.as<std::int32_t>()[slot], slot);
  }
  for (std::size_t b = 0; b + 1 < latent.start.size(); ++b) {
    const auto first = latent.positions.begin() + latent.start[b];
    const auto last = latent.positions.begin() + latent.start[b + 1];
    std::sort(first, last);
    const auto twice =
        std::adjacent_find(first, last, [](const auto& a, const auto& c) { return a.first == c.first; });
    if (twice != last) {
      return fail("STP-10 no position of a request stands twice in kv_pos", "kv_pos",
                  "position %d of request %zu twice", twice->first, b);
    }
  }
}

void StepLoader::expected() {
  Expected& expected = step_.expected;
  const char* lists = "STP-03 expected selections are I32 [rows, k]";
  expected.topk = row_tensor("expected_topk", {FileDType::i32}, {-1}, lists);
  expected.topk_unrestricted = row_tensor("expected_topk_unrestricted", {FileDType::i32}, {-1}, lists);
  expected.topk_gap =
      row_tensor("expected_topk_gap", {FileDType::f64}, {}, "STP-03 expected_topk_gap is F64 [rows]");
  if (failed()) return;
  if (step_.has_index) {
    step_.topk = metadata_topk_ >= 0        ? metadata_topk_
                 : expected.topk != nullptr ? expected.topk->shape.back()
                                            : -1;
    if (step_.topk < 0) return fail(kCompleteRule, "topk", "no metadata of this name");
    if (step_.topk * step_.rows > Limits::kMaxRowEntries) {
      return fail(kLimitRule, "topk", "%" PRId64 " for %" PRId64 " rows", step_.topk, step_.rows);
    }
  }
  // Every row is checked, or those that checked_rows lists.
  expected.checked.assign(static_cast<std::size_t>(step_.rows), -1);
  const FileTensor* checked_rows =
      plain_tensor("checked_rows", kIntegers, {-1}, "STP-03 checked_rows is I32 or I64 [n]");
  if (failed()) return;
  const std::int64_t count = checked_rows != nullptr ? checked_rows->elements() : step_.rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = checked_rows != nullptr ? integer_at(*checked_rows, i) : i;
    if (row < 0 || row >= step_.rows) {
      return fail("STP-03 checked_rows names rows", "checked_rows", "%" PRId64 " of %" PRId64 " rows", row,
                  step_.rows);
    }
    expected.checked[static_cast<std::size_t>(row)] = i;
  }
  expected_scores();
  if (failed() || !step_.has_attention) return;
  const auto by_checked = [&](const char* name, std::int64_t elements) -> const FileTensor* {
    const FileTensor* tensor = find(name);
    if (tensor == nullptr || failed()) return nullptr;
    if (tensor->dtype == FileDType::f64 && tensor->elements() == elements) return tensor;
    fail("STP-03 expected_out is F64 [checked rows, heads, 512] and expected_lse F64 [checked rows, heads]",
         name, "%s for %" PRId64 " checked rows of %" PRId64 " heads", tensor->describe().c_str(), count,
         step_.heads);
    return nullptr;
  };
  expected.out = by_checked("expected_out", count * step_.heads * 512);
  expected.lse = by_checked("expected_lse", count * step_.heads);
}

// [checked rows, keys] of one request, or flat: for each request in turn, its rows over all of its keys.
void StepLoader::expected_scores() {
  Expected& expected = step_.expected;
  const FileTensor* scores = find("expected_scores");
  if (failed() || scores == nullptr || !step_.has_index) return;
  const char* rule =
      "STP-03 expected_scores is F64 [checked rows, keys], or flat: each request's rows over its keys";
  if (scores->dtype != FileDType::f64) return fail(rule, "expected_scores", "%s", scores->describe().c_str());
  const auto rows = static_cast<std::size_t>(step_.rows);
  expected.score_start.assign(rows, -1);
  expected.score_count.assign(rows, 0);
  if (scores->shape.size() == 2 && step_.requests == 1) {
    for (std::size_t r = 0; r < rows; ++r) {
      if (expected.checked[r] < 0) continue;
      if (expected.checked[r] >= scores->shape[0])
        return fail(rule, "expected_scores", "%s", scores->describe().c_str());
      expected.score_start[r] = expected.checked[r] * scores->shape[1];
      expected.score_count[r] = scores->shape[1];
    }
  } else if (scores->shape.size() == 1 && step_.index_k.given()) {
    const std::vector<std::int64_t> k_start = step_.requests > 1 ? starts("k_start", step_.index_k.shape[0])
                                                                 : std::vector<std::int64_t>{0, step_.width};
    if (failed()) return;
    if (k_start.empty()) return fail(kCompleteRule, "k_start", "no tensor of this name");
    std::int64_t at = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto b = static_cast<std::size_t>(step_.row_request[r]);
      expected.score_start[r] = at;
      expected.score_count[r] = k_start[b + 1] - k_start[b];
      at += expected.score_count[r];
    }
    if (at != scores->elements()) {
      return fail(rule, "expected_scores", "%s where the rows take %" PRId64, scores->describe().c_str(), at);
    }
  } else {
    return fail(rule, "expected_scores", "%s", scores->describe().c_str());
  }
  expected.scores = scores;
}

void StepLoader::dumped() {
  Dumped& dumped = step_.dumped;
  const std::int64_t words = step_.width == 0 ? -1 : (step_.width + 31) / 32;
  dumped.logits = row_tensor("out_logits", {FileDType::f32, FileDType::bf16}, {-1},
                             "STP-03 out_logits is F32 or BF16 [rows, width]");
  dumped.candidates =
      row_tensor("out_candidates", {FileDType::i32}, {-1}, "STP-03 out_candidates is I32 [rows, candidates]");
  dumped.indices = row_tensor("out_indices", {FileDType::i32}, {-1}, "STP-03 out_indices is I32 [rows, k]");
  dumped.counts = row_tensor("out_counts", {FileDType::i32}, {}, "STP-03 out_counts is I32 [rows]");
  dumped.slots = row_tensor("out_slots", kIntegers, {-1}, "STP-03 out_slots is I32 or I64 [rows, k]");
  dumped.mask = plain_tensor("out_mask", {FileDType::u32, FileDType::i32}, {step_.requests, -1, -1},
                             "STP-03 out_mask is U32 or I32 [requests, padded rows, words]");
  dumped.out = row_tensor("out_latent", {FileDType::bf16, FileDType::f32}, {step_.heads, 512},
                          "STP-03 out_latent is BF16 or F32 [rows, heads, 512]");
  dumped.lse = row_tensor("out_lse", {FileDType::f32}, {step_.heads}, "STP-03 out_lse is F32 [rows, heads]");
  if (failed()) return;
  if (dumped.logits != nullptr && dumped.logits->shape.back() < step_.width) {
    return fail("STP-03 out_logits has a column for each key", "out_logits", "%s for %" PRId64 " columns",
                dumped.logits->describe().c_str(), step_.width);
  }
  if (dumped.mask != nullptr && words > 0 && step_.requests == 1 && dumped.mask->shape[2] < words) {
    fail("STP-03 out_mask has a bit for each key", "out_mask", "%s for %" PRId64 " keys",
         dumped.mask->describe().c_str(), step_.width);
  }
}

}  // namespace keysieve::io

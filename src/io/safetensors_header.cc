#include "io/safetensors_header.hpp"

#include <cinttypes>
#include <limits>
#include <set>

#include "io/file_error.hpp"

namespace keysieve::io {
namespace {

// Depth 1 is the header object, depth 2 a tensor (or the metadata), depth 3 a shape or an offset pair. The
// handler answers false at the first deviation, which stops the parser; so memory is bounded by the header's
// own bytes.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(Header& out) : entries_(out.entries), metadata_(out.metadata) {}
  Status status;

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_float(double, const std::string& text) override { return wrong(text.c_str()); }
  bool number_integer(std::int64_t value) override {
    if (depth_ == 3 && list_ == List::shape) return fail(kRule07, "extent %" PRId64, value);
    return fail(kRule03, "%" PRId64, value);
  }
  bool number_unsigned(std::uint64_t value) override {
    if (depth_ != 3 || list_ == List::none) return fail(kRule03, "the number %" PRIu64, value);
    if (list_ == List::offsets) {
      if (offset_count_ == 2) return wrong("more than two data_offsets");
      (offset_count_++ == 0 ? entries_.back().begin : entries_.back().end) = value;
      return true;
    }
    auto& shape = entries_.back().tensor.shape;
    if (shape.size() == SafetensorsFile::kMaxRank) return fail(kRule07, "rank above %zu", shape.size());
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      return fail(kRule08, "extent %" PRIu64, value);
    shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) {
      metadata_[key_] = std::move(value);
      return true;
    }
    if (depth_ != 2 || key_ != "dtype") return fail(kRule03, "the text \"%.60s\"", value.c_str());
    return find_file_dtype(value, entries_.back().tensor.dtype) ||
           fail(kRule06, "dtype \"%.60s\"", value.c_str());
  }
  bool binary(nlohmann::json::binary_t&) override { return wrong("binary data"); }

  bool start_object(std::size_t) override {
    if (depth_ == 2 || depth_ == 3) return wrong("an object inside a tensor");
    if (++depth_ == 1) return true;
    in_metadata_ = key_ == "__metadata__";
    keys_seen_ = 0;
    offset_count_ = 0;
    if (in_metadata_) return true;
    entries_.emplace_back();
    entries_.back().tensor.name = key_;
    return true;
  }
  bool key(std::string& value) override {
    key_ = std::move(value);
    if (depth_ == 1) {
      // A NUL byte would hide the rest of a name from every message and C string.
      if (key_.find('\0') != std::string::npos) return wrong("a name with a NUL byte");
      if (key_ == "__metadata__") return once_metadata();
      if (names_.size() == SafetensorsFile::kMaxTensors) return fail(kRule04, "more tensors");
      return names_.insert(key_).second || fail(kRule04, "'%.100s' twice", key_.c_str());
    }
    if (in_metadata_)
      return metadata_.emplace(key_, "").second || fail(kRule04, "metadata '%.100s' twice", key_.c_str());
    const int bit = key_ == "dtype" ? 1 : key_ == "shape" ? 2 : key_ == "data_offsets" ? 4 : 0;
    if (bit == 0) return fail(kRule03, "the key \"%.60s\"", key_.c_str());
    if (keys_seen_ & bit) return fail(kRule04, "the key \"%s\" twice", key_.c_str());
    keys_seen_ |= bit;
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_ && (keys_seen_ != 7 || offset_count_ != 2)) {
      return wrong("a tensor without dtype, shape or two data_offsets");
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || (key_ != "shape" && key_ != "data_offsets")) return wrong("a list");
    list_ = key_ == "shape" ? List::shape : List::offsets;
    depth_ = 3;
    return true;
  }
  bool end_array() override {
    list_ = List::none;
    depth_ = 2;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail(kRule03, "no JSON at header byte %zu", position);
  }

 private:
  enum class List { none, shape, offsets };

  bool once_metadata() {
    if (metadata_seen_) return fail(kRule04, "'__metadata__' twice");
    return metadata_seen_ = true;
  }
  bool wrong(const char* what) { return fail(kRule03, "%.60s", what); }
  template <class... Values>
  bool fail(const char* rule, const char* format, const Values&... values) {
    char text[Status::kSeenCapacity];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::snprintf(text, sizeof text, format, values...);
#pragma GCC diagnostic pop
    const char* where =
        depth_ >= 2 ? (in_metadata_ ? "__metadata__" : entries_.back().tensor.name.c_str()) : "";
    status = *where == '\0'
                 ? file_error(Code::bad_file, kOperation, rule, "header", "%s", text)
                 : file_error(Code::bad_file, kOperation, rule, "header", "'%.100s': %s", where, text);
    return false;
  }

  std::vector<HeaderEntry>& entries_;
  std::map<std::string, std::string, std::less<>>& metadata_;
  std::set<std::string> names_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  int keys_seen_ = 0;
  int offset_count_ = 0;
  List list_ = List::none;
  std::string key_;
};

}  // namespace

Status read_header(const char* first, const char* last, Header& out) {
  HeaderReader reader(out);
  if (!nlohmann::json::sax_parse(first, last, &reader) && reader.status.ok())
    reader.status = file_error(Code::bad_file, kOperation, kRule03, "header", "no JSON");
  return reader.status;
}

}  // namespace keysieve::io

// safetensors_header: the JSON header of a file, read through a SAX handler, so that no tree is ever built. Internal to
// src/io.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace keysieve::io {

inline constexpr const char* kOperation = "safetensors";
inline constexpr const char* kRule01 = "SFT-01 the file holds its 8 length bytes and its header";
inline constexpr const char* kRule02 = "SFT-02 the header takes at most 16 MiB";
inline constexpr const char* kRule03 =
    "SFT-03 the header is a JSON object of tensors {dtype, shape, data_offsets} and text metadata";
inline constexpr const char* kRule04 = "SFT-04 no name stands twice and at most 100000 tensors";
inline constexpr const char* kRule05 =
    "SFT-05 the arrays cover the data section without gap, overlap or rest";
inline constexpr const char* kRule06 =
    "SFT-06 a dtype of the format (F64, F32, BF16, I64, I32, U32, U8, ...)";
inline constexpr const char* kRule07 = "SFT-07 rank at most 8 and extents >= 0";
inline constexpr const char* kRule08 = "SFT-08 element and byte counts fit 63 bits";
inline constexpr const char* kRule09 = "SFT-09 data_offsets span the bytes of the shape";

// One tensor as the header gives it; its data is set when the offsets have been judged.
struct HeaderEntry {
  FileTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string, std::less<>> metadata;
};

// SFT-03, SFT-04, SFT-06, SFT-07 over the text [first, last).
[[nodiscard]] Status read_header(const char* first, const char* last, Header& out);

}  // namespace keysieve::io

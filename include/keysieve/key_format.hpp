// key_format: how the pages of an index-key cache hold a token. docs/contracts/index_store.md has the layouts.
#pragma once

#include <cstdint>

namespace keysieve {

enum class KeyFormat : std::uint8_t { fp8, mxfp4 };
// How fp8 scales are rounded; they are stored as f32 either way.
enum class KeyScale : std::uint8_t { exact, ue8m0 };

// Bytes that a token of `dim` elements takes, codes and scales; a page has page_tokens times as many, or more.
[[nodiscard]] constexpr std::int64_t index_token_bytes(KeyFormat format, std::int64_t dim) {
  return format == KeyFormat::fp8 ? dim + 4 : dim / 2 + dim / 32;
}

}  // namespace keysieve

// kernels: the host side of every device kernel, defined in the .cu file of its name. Backends list them in
// tables of their own, which host compilers compile.
#pragma once

#include "registry/backend.hpp"

namespace keysieve::gpu {

template <class Args>
struct HostSide {
  using Arguments = Args;
};

struct CandidateBlocksRadix : HostSide<CandidateBlocksArgs> {
  static const char* refuses(const CandidateBlocksArgs& a);
  static std::size_t workspace_bytes(const CandidateBlocksArgs& a, std::int32_t concurrency);
  static Status run(const CandidateBlocksArgs& a, const Launch& launch);
};

struct CandidateMaskBitmap : HostSide<CandidateMaskArgs> {
  static const char* refuses(const CandidateMaskArgs& a);
  static std::size_t workspace_bytes(const CandidateMaskArgs& a, std::int32_t concurrency);
  static Status run(const CandidateMaskArgs& a, const Launch& launch);
};

// Rows whose keys fit one thread block's registers.
struct TopkHeld : HostSide<TopkArgs> {
  static const char* refuses(const TopkArgs& a);
  static std::size_t workspace_bytes(const TopkArgs& a, std::int32_t concurrency);
  static Status run(const TopkArgs& a, const Launch& launch);
};

// Longer rows in one pass behind a sampled threshold, by one thread block or several.
struct TopkStream : HostSide<TopkArgs> {
  static const char* refuses(const TopkArgs& a);
  static std::size_t workspace_bytes(const TopkArgs& a, std::int32_t concurrency);
  static Status run(const TopkArgs& a, const Launch& launch);
  // With so many thread blocks a row, for tests: the plan must not show in the result.
  static std::size_t workspace_bytes_in_parts(const TopkArgs& a, std::uint32_t parts);
  static Status run_in_parts(const TopkArgs& a, const Launch& launch, std::uint32_t parts);
};

// Any k and any candidate list, in several passes.
struct TopkRadix : HostSide<TopkArgs> {
  static const char* refuses(const TopkArgs& a);
  static std::size_t workspace_bytes(const TopkArgs& a, std::int32_t concurrency);
  static Status run(const TopkArgs& a, const Launch& launch);
};

struct TranslateRows : HostSide<TranslateArgs> {
  static const char* refuses(const TranslateArgs& a);
  static std::size_t workspace_bytes(const TranslateArgs& a, std::int32_t concurrency);
  static Status run(const TranslateArgs& a, const Launch& launch);
};

struct PackedMaskShared : HostSide<PackedMaskArgs> {
  static const char* refuses(const PackedMaskArgs& a);
  static std::size_t workspace_bytes(const PackedMaskArgs& a, std::int32_t concurrency);
  static Status run(const PackedMaskArgs& a, const Launch& launch);
};

struct MaskIndicesScan : HostSide<MaskIndicesArgs> {
  static const char* refuses(const MaskIndicesArgs& a);
  static std::size_t workspace_bytes(const MaskIndicesArgs& a, std::int32_t concurrency);
  static Status run(const MaskIndicesArgs& a, const Launch& launch);
};

}  // namespace keysieve::gpu

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

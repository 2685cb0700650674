// kernels: the host side of every device kernel, defined in the .cu file of its name. Backends list them in
// tables of their own, which host compilers compile.
#pragma once

#include "registry/backend.hpp"

namespace keysieve::gpu {

template <class Args>
struct HostSide {
  using Arguments = Args;
};

struct CandidateMaskBitmap : HostSide<CandidateMaskArgs> {
  static const char* refuses(const CandidateMaskArgs& a);
  static std::size_t workspace_bytes(const CandidateMaskArgs& a, std::int32_t concurrency);
  static Status run(const CandidateMaskArgs& a, const Launch& launch);
};

}  // namespace keysieve::gpu

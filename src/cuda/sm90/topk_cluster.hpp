// The host side of the clustered top-k.
#pragma once

#include "gpu/kernels.hpp"

namespace keysieve::cuda {

struct TopkCluster : gpu::HostSide<TopkArgs> {
  static const char* refuses(const TopkArgs& a);
  static std::size_t workspace_bytes(const TopkArgs& a, std::int32_t concurrency);
  static Status run(const TopkArgs& a, const Launch& launch);
  // The same with a plan of the caller's: the result does not depend on it.
  static Status run_in_parts(const TopkArgs& a, const Launch& launch, std::uint32_t parts);
};

}  // namespace keysieve::cuda

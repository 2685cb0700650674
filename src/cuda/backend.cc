// The cuda backend: device kernels. Where no device answers, every kernel refuses with the reason.
#include "registry/backend.hpp"

#include "contract/candidate_blocks.hpp"
#include "contract/candidate_mask.hpp"
#include "contract/general.hpp"
#include "contract/packed_mask.hpp"
#include "contract/topk.hpp"
#include "contract/translate.hpp"
#include "gpu/device.hpp"
#include "gpu/kernels.hpp"

namespace keysieve {
namespace {

// A kernel's own refusal is asked only where a device could run it.
template <class HostSide>
constexpr Kernel<typename HostSide::Arguments> entry(const char* name) {
  using Args = typename HostSide::Arguments;
  return {name,
          [](const Args& a) -> const char* {
            const char* refusal = gpu::device_refusal(device_of(a));
            return refusal != nullptr ? refusal : HostSide::refuses(a);
          },
          HostSide::workspace_bytes, HostSide::run};
}

constexpr Kernel<CandidateBlocksArgs> kCandidateBlocks[] = {
    entry<gpu::CandidateBlocksRadix>("cuda.candidate_blocks.radix")};
constexpr Kernel<CandidateMaskArgs> kCandidateMask[] = {
    entry<gpu::CandidateMaskBitmap>("cuda.candidate_mask.bitmap")};
constexpr Kernel<TopkArgs> kTopk[] = {entry<gpu::TopkHeld>("cuda.topk.held"),
                                      entry<gpu::TopkStream>("cuda.topk.stream"),
                                      entry<gpu::TopkRadix>("cuda.topk.radix")};
constexpr Kernel<TranslateArgs> kTranslate[] = {entry<gpu::TranslateRows>("cuda.translate.rows")};
constexpr Kernel<PackedMaskArgs> kPackedMask[] = {entry<gpu::PackedMaskShared>("cuda.packed_mask.shared")};
constexpr Kernel<MaskIndicesArgs> kMaskIndices[] = {entry<gpu::MaskIndicesScan>("cuda.mask_indices.scan")};

}  // namespace

extern const Backend kCudaBackend{"cuda",
                                  DeviceType::cuda,
                                  true,
                                  {
                                      {},  // index_store
                                      {},  // index_gather
                                      {},  // prepare_queries
                                      {},  // mqa_logits
                                      kCandidateBlocks,
                                      kCandidateMask,
                                      kTopk,
                                      kTranslate,
                                      kPackedMask,
                                      kMaskIndices,
                                      {},  // masked_mha
                                      {},  // sparse_mla
                                      {},  // merge_states
                                  }};

}  // namespace keysieve

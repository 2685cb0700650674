// The cpu backend: SIMD kernels, chosen among instruction sets at run time by Highway.
#include "registry/backend.hpp"

namespace keysieve {
namespace cpu {

extern const Kernel<IndexStoreArgs> kIndexStoreKernels[1];
extern const Kernel<IndexGatherArgs> kIndexGatherKernels[1];
extern const Kernel<PrepareQueriesArgs> kPrepareQueriesKernels[1];
extern const Kernel<MqaLogitsArgs> kMqaLogitsKernels[1];
extern const Kernel<CandidateBlocksArgs> kCandidateBlocksKernels[1];
extern const Kernel<CandidateMaskArgs> kCandidateMaskKernels[1];
extern const Kernel<TopkArgs> kTopkKernels[1];
extern const Kernel<PackedMaskArgs> kPackedMaskKernels[1];
extern const Kernel<MaskIndicesArgs> kMaskIndicesKernels[1];
extern const Kernel<TranslateArgs> kTranslateKernels[1];
extern const Kernel<SparseMlaArgs> kSparseMlaKernels[1];
extern const Kernel<MaskedMhaArgs> kMaskedMhaKernels[1];
extern const Kernel<MergeStatesArgs> kMergeStatesKernels[1];

}  // namespace cpu

// One line an operation, in the order of OperationList.
// clang-format off
extern const Backend kCpuBackend{
    "cpu",
    DeviceType::cpu,
    true,
    {
        cpu::kIndexStoreKernels,  // index_store
        cpu::kIndexGatherKernels,  // index_gather
        cpu::kPrepareQueriesKernels,  // prepare_queries
        cpu::kMqaLogitsKernels,  // mqa_logits
        cpu::kCandidateBlocksKernels,  // candidate_blocks
        cpu::kCandidateMaskKernels,  // candidate_mask
        cpu::kTopkKernels,  // topk
        cpu::kTranslateKernels,  // translate
        cpu::kPackedMaskKernels,  // packed_mask
        cpu::kMaskIndicesKernels,  // mask_indices
        cpu::kMaskedMhaKernels,  //
        cpu::kSparseMlaKernels,  // sparse_mla
        cpu::kMergeStatesKernels,  //
    }};
// clang-format on

}  // namespace keysieve

// The reference backend: every operation as its definition reads. Slow, and the oracle of every test.
#include "registry/backend.hpp"

namespace keysieve {
namespace reference {

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

}  // namespace reference

// One line an operation, in the order of OperationList.
// clang-format off
extern const Backend kReferenceBackend{
    "reference",
    DeviceType::cpu,
    false,
    {
        reference::kIndexStoreKernels,  // index_store
        reference::kIndexGatherKernels,  // index_gather
        reference::kPrepareQueriesKernels,  // prepare_queries
        reference::kMqaLogitsKernels,  // mqa_logits
        reference::kCandidateBlocksKernels,  // candidate_blocks
        reference::kCandidateMaskKernels,  // candidate_mask
        reference::kTopkKernels,  // topk
        reference::kTranslateKernels,  // translate
        reference::kPackedMaskKernels,  // packed_mask
        reference::kMaskIndicesKernels,  // mask_indices
        reference::kMaskedMhaKernels,  //
        reference::kSparseMlaKernels,  // sparse_mla
        reference::kMergeStatesKernels,  //
    }};
// clang-format on

}  // namespace keysieve

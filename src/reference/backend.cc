// The reference backend: every operation as its definition reads. Slow, and the oracle of every test.
#include "registry/backend.hpp"

namespace keysieve {
namespace reference {

extern const Kernel<MqaLogitsArgs> kMqaLogitsKernels[1];
extern const Kernel<CandidateMaskArgs> kCandidateMaskKernels[1];
extern const Kernel<TopkArgs> kTopkKernels[1];
extern const Kernel<TranslateArgs> kTranslateKernels[1];
extern const Kernel<SparseMlaArgs> kSparseMlaKernels[1];

}  // namespace reference

extern const Backend kReferenceBackend{"reference",
                                       DeviceType::cpu,
                                       false,
                                       {
                                           reference::kMqaLogitsKernels,      //
                                           {},                                // candidate_blocks
                                           reference::kCandidateMaskKernels,  //
                                           reference::kTopkKernels,           //
                                           reference::kTranslateKernels,      //
                                           {},                                // packed_mask
                                           {},                                // mask_indices
                                           {},                                // masked_mha
                                           reference::kSparseMlaKernels,      //
                                           {},                                // merge_states
                                       }};

}  // namespace keysieve

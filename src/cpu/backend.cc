// The cpu backend: SIMD kernels, chosen among instruction sets at run time by Highway.
#include "registry/backend.hpp"

namespace keysieve {
namespace cpu {

extern const Kernel<MqaLogitsArgs> kMqaLogitsKernels[1];
extern const Kernel<CandidateMaskArgs> kCandidateMaskKernels[1];
extern const Kernel<TopkArgs> kTopkKernels[1];
extern const Kernel<TranslateArgs> kTranslateKernels[1];
extern const Kernel<SparseMlaArgs> kSparseMlaKernels[1];

}  // namespace cpu

extern const Backend kCpuBackend{"cpu",
                                 DeviceType::cpu,
                                 true,
                                 {
                                     cpu::kMqaLogitsKernels,      //
                                     {},                          // candidate_blocks
                                     cpu::kCandidateMaskKernels,  //
                                     cpu::kTopkKernels,           //
                                     cpu::kTranslateKernels,      //
                                     {},                          // packed_mask
                                     {},                          // mask_indices
                                     {},                          // masked_mha
                                     cpu::kSparseMlaKernels,      //
                                     {},                          // merge_states
                                 }};

}  // namespace keysieve

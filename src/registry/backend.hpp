// backend: a named list of kernels for every operation. A backend that is not built is missing from
// enabled_backends(), which CMake generates; an operation that a backend lacks has an empty list.
#pragma once

#include <span>
#include <tuple>

#include "keysieve/candidate_blocks.hpp"
#include "keysieve/candidate_mask.hpp"
#include "keysieve/index_gather.hpp"
#include "keysieve/index_store.hpp"
#include "keysieve/masked_mha.hpp"
#include "keysieve/merge_states.hpp"
#include "keysieve/mqa_logits.hpp"
#include "keysieve/packed_mask.hpp"
#include "keysieve/prepare_queries.hpp"
#include "keysieve/sparse_mla.hpp"
#include "keysieve/topk.hpp"
#include "keysieve/translate.hpp"
#include "registry/kernel.hpp"

namespace keysieve {

template <class... Args>
struct OperationList {
  using Tables = std::tuple<std::span<const Kernel<Args>>...>;
};

// Every operation, in pipeline order: the one list that all tables follow.
using Operations =
    OperationList<IndexStoreArgs, IndexGatherArgs, PrepareQueriesArgs, MqaLogitsArgs, CandidateBlocksArgs,
                  CandidateMaskArgs, TopkArgs, TranslateArgs, PackedMaskArgs, MaskIndicesArgs, MaskedMhaArgs,
                  SparseMlaArgs, MergeStatesArgs>;

struct Backend {
  const char* name;
  DeviceType device;
  bool optimised;  // chosen when the caller names no backend
  Operations::Tables kernels;
};

// In the order in which they are asked.
[[nodiscard]] std::span<const Backend* const> enabled_backends();

}  // namespace keysieve

// operations: keysieve.h's arguments as C++ arguments, operation by operation, and the four functions of
// each. Fields are listed in the order of the C++ struct; leaving one out is a compiler warning.
#include "capi/call.hpp"
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

// Four functions of keysieve.h over one Operation.
#define KEYSIEVE_C_FUNCTIONS(operation)                                                                     \
  extern "C" int keysieve_##operation(const keysieve_##operation##_args* args,                              \
                                      const keysieve_options* options, void* workspace, size_t bytes,       \
                                      keysieve_error* error) {                                              \
    return keysieve::capi::k_##operation.run(args, options, workspace, bytes, error);                       \
  }                                                                                                         \
  extern "C" int keysieve_##operation##_workspace_bytes(const keysieve_##operation##_args* args,            \
                                                        const keysieve_options* options, size_t* bytes,     \
                                                        keysieve_error* error) {                            \
    return keysieve::capi::k_##operation.workspace_bytes(args, options, bytes, error);                      \
  }                                                                                                         \
  extern "C" int keysieve_##operation##_supports(const keysieve_##operation##_args* args,                   \
                                                 const keysieve_options* options, keysieve_error* error) {  \
    return keysieve::capi::k_##operation.supports(args, options, error);                                    \
  }                                                                                                         \
  extern "C" size_t keysieve_##operation##_explain(                                                         \
      const keysieve_##operation##_args* args, const keysieve_options* options, char* text, size_t bytes) { \
    return keysieve::capi::k_##operation.explain(args, options, text, bytes);                               \
  }

namespace keysieve::capi {
namespace {

constexpr Operation<keysieve_index_store_args, IndexStoreArgs> k_index_store{
    "index_store", [](Reader& in, const keysieve_index_store_args& c) -> IndexStoreArgs {
      return {.keys = in.tensor("keys", c.keys),
              .slots = in.tensor("slots", c.slots),
              .cache = in.tensor("cache", c.cache),
              .page_tokens = in.or_default(c.page_tokens, 64),
              .format = in.choice("format", c.format, {KeyFormat::fp8, KeyFormat::mxfp4}),
              .scale = in.choice("scale", c.scale, {KeyScale::exact, KeyScale::ue8m0}),
              .reciprocal = in.flag("reciprocal", c.reciprocal),
              .ties_down = in.flag("ties_down", c.ties_down)};
    }};

constexpr Operation<keysieve_index_gather_args, IndexGatherArgs> k_index_gather{
    "index_gather", [](Reader& in, const keysieve_index_gather_args& c) -> IndexGatherArgs {
      return {.cache = in.tensor("cache", c.cache),
              .page_tokens = in.or_default(c.page_tokens, 64),
              .format = in.choice("format", c.format, {KeyFormat::fp8, KeyFormat::mxfp4}),
              .page_table = in.tensor("page_table", c.page_table),
              .table_offsets = in.tensor("table_offsets", c.table_offsets),
              .row_offsets = in.tensor("row_offsets", c.row_offsets),
              .start = in.tensor("start", c.start),
              .keys = in.tensor("keys", c.keys),
              .scales = in.tensor("scales", c.scales)};
    }};

constexpr Operation<keysieve_prepare_queries_args, PrepareQueriesArgs> k_prepare_queries{
    "prepare_queries", [](Reader& in, const keysieve_prepare_queries_args& c) -> PrepareQueriesArgs {
      return {.q = in.tensor("q", c.q),
              .weights = in.tensor("weights", c.weights),
              .cos_sin = in.tensor("cos_sin", c.cos_sin),
              .positions = in.tensor("positions", c.positions),
              .pairing = in.choice("pairing", c.pairing, {RopePairing::halves, RopePairing::adjacent}),
              .place = in.choice("place", c.place, {RopePlace::first, RopePlace::last}),
              .hadamard = in.flag("hadamard", c.hadamard),
              .format = in.choice("format", c.format, {KeyFormat::fp8, KeyFormat::mxfp4}),
              .scale = in.choice("scale", c.scale, {KeyScale::exact, KeyScale::ue8m0}),
              .reciprocal = in.flag("reciprocal", c.reciprocal),
              .ties_down = in.flag("ties_down", c.ties_down),
              .tiny_floor = in.flag("tiny_floor", c.tiny_floor),
              .softmax_scale = in.required(c.softmax_scale),
              .head_scale = in.required(c.head_scale),
              .codes = in.tensor("codes", c.codes),
              .scales = in.tensor("scales", c.scales),
              .folded = in.tensor("folded", c.folded)};
    }};

constexpr Operation<keysieve_mqa_logits_args, MqaLogitsArgs> k_mqa_logits{
    "mqa_logits", [](Reader& in, const keysieve_mqa_logits_args& c) -> MqaLogitsArgs {
      return {.q = in.tensor("q", c.q),
              .weights = in.tensor("weights", c.weights),
              .keys = in.tensor("keys", c.keys),
              .key_scales = in.tensor("key_scales", c.key_scales),
              .cache = in.tensor("cache", c.cache),
              .page_tokens = in.or_default(c.page_tokens, 64),
              .page_table = in.tensor("page_table", c.page_table),
              .bounds = in.bounds(c.bounds),
              .tail = in.choice("tail", c.tail, {Tail::untouched, Tail::neg_inf}),
              .scores = in.tensor("scores", c.scores)};
    }};

constexpr Operation<keysieve_candidate_blocks_args, CandidateBlocksArgs> k_candidate_blocks{
    "candidate_blocks", [](Reader& in, const keysieve_candidate_blocks_args& c) -> CandidateBlocksArgs {
      return {.scores = in.tensor("scores", c.scores),
              .bounds = in.bounds(c.bounds),
              .block_size = in.or_default(c.block_size, 8),
              .nan = in.choice("nan", c.nan, {NanPolicy::keep, NanPolicy::drop, NanPolicy::ignore}),
              .order = in.choice("order", c.order, {CandidateOrder::ascending_id, CandidateOrder::by_score}),
              .candidates = in.tensor("candidates", c.candidates)};
    }};

constexpr Operation<keysieve_candidate_mask_args, CandidateMaskArgs> k_candidate_mask{
    "candidate_mask", [](Reader& in, const keysieve_candidate_mask_args& c) -> CandidateMaskArgs {
      return {.scores = in.tensor("scores", c.scores),
              .bounds = in.bounds(c.bounds),
              .candidates = in.tensor("candidates", c.candidates),
              .block_size = in.or_default(c.block_size, 8),
              .write_range = in.choice("write_range", c.write_range,
                                       {WriteRange::live, WriteRange::full, WriteRange::window}),
              .edge = in.flag("edge", c.edge)};
    }};

constexpr Operation<keysieve_topk_args, TopkArgs> k_topk{
    "topk", [](Reader& in, const keysieve_topk_args& c) -> TopkArgs {
      return {
          .scores = in.tensor("scores", c.scores),
          .bounds = in.bounds(c.bounds),
          .k = c.k,
          .order = in.choice("order", c.order, {TopkOrder::ascending_column, TopkOrder::by_score}),
          .skip_neg_inf = !in.flag("keep_neg_inf", c.keep_neg_inf),
          .candidates = in.tensor("candidates", c.candidates),
          .block_size = in.or_default(c.block_size, 8),
          .layout = in.choice("layout", c.layout, {ScoreLayout::dense, ScoreLayout::compact}),
          .space = in.choice("space", c.space,
                             {TopkSpace::local, TopkSpace::absolute, TopkSpace::offset, TopkSpace::paged}),
          .offset = in.tensor("offset", c.offset),
          .pages = in.page_map(c.pages),
          .out = in.tensor("out", c.out),
          .values = in.tensor("values", c.values),
          .counts = in.tensor("counts", c.counts),
          .raw = in.tensor("raw", c.raw)};
    }};

constexpr Operation<keysieve_translate_args, TranslateArgs> k_translate{
    "translate", [](Reader& in, const keysieve_translate_args& c) -> TranslateArgs {
      return {.indices = in.tensor("indices", c.indices),
              .pages = in.page_map(c.pages),
              .mode = in.choice("mode", c.mode, {TranslateMode::compact, TranslateMode::keep}),
              .slots = in.tensor("slots", c.slots),
              .counts = in.tensor("counts", c.counts),
              .raw = in.tensor("raw", c.raw)};
    }};

constexpr Operation<keysieve_packed_mask_args, PackedMaskArgs> k_packed_mask{
    "packed_mask", [](Reader& in, const keysieve_packed_mask_args& c) -> PackedMaskArgs {
      return {.q_start = in.tensor("q_start", c.q_start),
              .key_first = in.tensor("key_first", c.key_first),
              .key_count = in.tensor("key_count", c.key_count),
              .indices = in.tensor("indices", c.indices),
              .candidates = in.tensor("candidates", c.candidates),
              .block_size = in.or_default(c.block_size, 8),
              .scores = in.tensor("scores", c.scores),
              .thresholds = in.tensor("thresholds", c.thresholds),
              .bounds = in.bounds(c.bounds),
              .mask = in.tensor("mask", c.mask),
              .any = in.tensor("any", c.any),
              .all = in.tensor("all", c.all)};
    }};

constexpr Operation<keysieve_mask_indices_args, MaskIndicesArgs> k_mask_indices{
    "mask_indices", [](Reader& in, const keysieve_mask_indices_args& c) -> MaskIndicesArgs {
      return {.q_start = in.tensor("q_start", c.q_start),
              .key_first = in.tensor("key_first", c.key_first),
              .key_count = in.tensor("key_count", c.key_count),
              .mask = in.tensor("mask", c.mask),
              .out = in.tensor("out", c.out),
              .counts = in.tensor("counts", c.counts)};
    }};

constexpr Operation<keysieve_masked_mha_args, MaskedMhaArgs> k_masked_mha{
    "masked_mha", [](Reader& in, const keysieve_masked_mha_args& c) -> MaskedMhaArgs {
      return {.q = in.tensor("q", c.q),
              .k = in.tensor("k", c.k),
              .v = in.tensor("v", c.v),
              .q_start = in.tensor("q_start", c.q_start),
              .k_start = in.tensor("k_start", c.k_start),
              .mask = in.tensor("mask", c.mask),
              .key_offset = in.tensor("key_offset", c.key_offset),
              .q_offset = in.tensor("q_offset", c.q_offset),
              .q_total = in.tensor("q_total", c.q_total),
              .k_total = in.tensor("k_total", c.k_total),
              .causal = in.flag("causal", c.causal),
              .softmax_scale = in.required(c.softmax_scale),
              .sink = in.tensor("sink", c.sink),
              .out = in.tensor("out", c.out),
              .lse = in.tensor("lse", c.lse),
              .lse_form = in.lse_form(c.lse_form)};
    }};

constexpr Operation<keysieve_sparse_mla_args, SparseMlaArgs> k_sparse_mla{
    "sparse_mla", [](Reader& in, const keysieve_sparse_mla_args& c) -> SparseMlaArgs {
      return {.q = in.tensor("q", c.q),
              .cache = in.tensor("cache", c.cache),
              .indices = in.tensor("indices", c.indices),
              .lengths = in.tensor("lengths", c.lengths),
              .extra_cache = in.tensor("extra_cache", c.extra_cache),
              .extra_indices = in.tensor("extra_indices", c.extra_indices),
              .extra_lengths = in.tensor("extra_lengths", c.extra_lengths),
              .softmax_scale = in.required(c.softmax_scale),
              .sink = in.tensor("sink", c.sink),
              .out = in.tensor("out", c.out),
              .lse = in.tensor("lse", c.lse),
              .lse_form = in.lse_form(c.lse_form)};
    }};

constexpr Operation<keysieve_merge_states_args, MergeStatesArgs> k_merge_states{
    "merge_states", [](Reader& in, const keysieve_merge_states_args& c) -> MergeStatesArgs {
      return {.outs = in.tensor("outs", c.outs),
              .lses = in.tensor("lses", c.lses),
              .lses_form = in.lse_form(c.lses_form),
              .sink = in.tensor("sink", c.sink),
              .out = in.tensor("out", c.out),
              .lse = in.tensor("lse", c.lse),
              .lse_form = in.lse_form(c.lse_form)};
    }};

}  // namespace
}  // namespace keysieve::capi

KEYSIEVE_C_FUNCTIONS(index_store)
KEYSIEVE_C_FUNCTIONS(index_gather)
KEYSIEVE_C_FUNCTIONS(prepare_queries)
KEYSIEVE_C_FUNCTIONS(mqa_logits)
KEYSIEVE_C_FUNCTIONS(candidate_blocks)
KEYSIEVE_C_FUNCTIONS(candidate_mask)
KEYSIEVE_C_FUNCTIONS(topk)
KEYSIEVE_C_FUNCTIONS(translate)
KEYSIEVE_C_FUNCTIONS(packed_mask)
KEYSIEVE_C_FUNCTIONS(mask_indices)
KEYSIEVE_C_FUNCTIONS(masked_mha)
KEYSIEVE_C_FUNCTIONS(sparse_mla)
KEYSIEVE_C_FUNCTIONS(merge_states)

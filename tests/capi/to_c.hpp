// to_c: C++ arguments as keysieve.h's structs, the inverse of src/capi, so that any call can be made both
// ways and compared.
#pragma once

#include <deque>

#include "keysieve/candidate_blocks.hpp"
#include "keysieve/candidate_mask.hpp"
#include "keysieve/index_gather.hpp"
#include "keysieve/index_store.hpp"
#include "keysieve/keysieve.h"
#include "keysieve/masked_mha.hpp"
#include "keysieve/merge_states.hpp"
#include "keysieve/mqa_logits.hpp"
#include "keysieve/packed_mask.hpp"
#include "keysieve/prepare_queries.hpp"
#include "keysieve/sparse_mla.hpp"
#include "keysieve/topk.hpp"
#include "keysieve/translate.hpp"

namespace keysieve::test {

inline DLDataType dl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {kDLFloat, 32, 1};
    case DType::bf16:
      return {kDLBfloat, 16, 1};
    case DType::i32:
      return {kDLInt, 32, 1};
    case DType::i64:
      return {kDLInt, 64, 1};
    case DType::u32:
      return {kDLUInt, 32, 1};
    case DType::u8:
      return {kDLUInt, 8, 1};
    case DType::none:
      break;
  }
  return {kDLOpaqueHandle, 0, 0};
}

// Owns the DLTensors and nested structs that a C struct points to.
class CView {
 public:
  // Bytes by which data lies before the tensor; byte_offset makes up for them.
  std::uint64_t byte_offset = 0;
  // Leave strides out where a tensor is compact.
  bool null_strides = false;

  const DLTensor* tensor(const Tensor& t) {
    if (!t.given()) return nullptr;
    Held& held = tensors_.emplace_back(Held{{}, t});
    DLTensor& dl = held.dl;
    dl.data = t.data == nullptr ? nullptr : static_cast<char*>(t.data) - byte_offset;
    dl.byte_offset = byte_offset;
    dl.device = {t.device.type == DeviceType::cuda ? kDLCUDA : kDLCPU, t.device.index};
    dl.ndim = t.rank;
    dl.dtype = dl_type(t.dtype);
    dl.shape = held.tensor.shape;
    dl.strides = null_strides && compact(t) ? nullptr : held.tensor.stride;
    return &dl;
  }

  const keysieve_bounds* bounds(const Bounds& b) {
    return &bounds_.emplace_back(keysieve_bounds{
        .struct_size = sizeof(keysieve_bounds),
        .form = b.form == BoundsForm::ends ? KEYSIEVE_BOUNDS_ENDS : KEYSIEVE_BOUNDS_LENGTHS,
        .unit = b.unit == LengthUnit::tokens ? KEYSIEVE_UNIT_TOKENS : KEYSIEVE_UNIT_COMPRESSED,
        .start = tensor(b.start),
        .end = tensor(b.end),
        .row_repeat = b.row_repeat,
        .next_n = b.next_n,
        .ratio = b.ratio});
  }

  const keysieve_page_map* page_map(const PageMap& m) {
    return &page_maps_.emplace_back(keysieve_page_map{.struct_size = sizeof(keysieve_page_map),
                                                      .page_table = tensor(m.page_table),
                                                      .row_to_request = tensor(m.row_to_request),
                                                      .table_start = tensor(m.table_start),
                                                      .page_size = m.page_size,
                                                      .pool_pages = m.pool_pages,
                                                      .next_n = m.next_n});
  }

  // Every DLTensor, or every nested struct, handed out so far: for tests that break them.
  template <class F>
  void visit(F&& f) {
    for (Held& held : tensors_) f(held.dl);
  }
  template <class F>
  void visit_structs(F&& f) {
    for (auto& b : bounds_) f(b);
    for (auto& m : page_maps_) f(m);
  }

 private:
  struct Held {
    DLTensor dl;
    Tensor tensor;
  };
  static bool compact(const Tensor& t) {
    std::int64_t step = 1;
    if (t.rank > Tensor::kMaxRank) return false;
    for (int axis = t.rank - 1; axis >= 0; --axis) {
      if (t.stride[axis] != step) return false;
      // Sizes whose product does not fit are no compact tensor's.
      if (__builtin_mul_overflow(step, t.shape[axis], &step)) return false;
    }
    return true;
  }
  std::deque<Held> tensors_;  // a deque: addresses stay
  std::deque<keysieve_bounds> bounds_;
  std::deque<keysieve_page_map> page_maps_;
};

inline keysieve_lse_form lse_form(const LseForm& f) {
  return {.base = f.base == LseBase::natural ? KEYSIEVE_LSE_NATURAL : KEYSIEVE_LSE_BASE_TWO,
          .empty = f.empty == LseEmpty::minus_infinity ? KEYSIEVE_LSE_EMPTY_MINUS_INFINITY
                                                       : KEYSIEVE_LSE_EMPTY_PLUS_INFINITY,
          .with_sink = f.with_sink ? 1 : 0,
          .reserved = 0};
}

inline keysieve_mqa_logits_args to_c(const MqaLogitsArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_mqa_logits_args),
          .q = v.tensor(a.q),
          .weights = v.tensor(a.weights),
          .keys = v.tensor(a.keys),
          .key_scales = v.tensor(a.key_scales),
          .cache = v.tensor(a.cache),
          .page_table = v.tensor(a.page_table),
          .page_tokens = a.page_tokens,
          .bounds = v.bounds(a.bounds),
          .tail = a.tail == Tail::untouched ? KEYSIEVE_TAIL_UNTOUCHED : KEYSIEVE_TAIL_NEG_INF,
          .reserved = 0,
          .scores = v.tensor(a.scores)};
}

inline keysieve_candidate_blocks_args to_c(const CandidateBlocksArgs& a, CView& v) {
  return {
      .struct_size = sizeof(keysieve_candidate_blocks_args),
      .scores = v.tensor(a.scores),
      .bounds = v.bounds(a.bounds),
      .block_size = a.block_size,
      .nan = a.nan == NanPolicy::keep   ? KEYSIEVE_NAN_KEEP
             : a.nan == NanPolicy::drop ? KEYSIEVE_NAN_DROP
                                        : KEYSIEVE_NAN_IGNORE,
      .order = a.order == CandidateOrder::ascending_id ? KEYSIEVE_ORDER_ASCENDING : KEYSIEVE_ORDER_BY_SCORE,
      .candidates = v.tensor(a.candidates)};
}

inline keysieve_candidate_mask_args to_c(const CandidateMaskArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_candidate_mask_args),
          .scores = v.tensor(a.scores),
          .bounds = v.bounds(a.bounds),
          .candidates = v.tensor(a.candidates),
          .block_size = a.block_size,
          .write_range = a.write_range == WriteRange::live   ? KEYSIEVE_WRITE_LIVE
                         : a.write_range == WriteRange::full ? KEYSIEVE_WRITE_FULL
                                                             : KEYSIEVE_WRITE_WINDOW,
          .edge = a.edge ? 1 : 0};
}

inline keysieve_topk_args to_c(const TopkArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_topk_args),
          .scores = v.tensor(a.scores),
          .bounds = v.bounds(a.bounds),
          .k = a.k,
          .order = a.order == TopkOrder::by_score ? KEYSIEVE_ORDER_BY_SCORE : KEYSIEVE_ORDER_ASCENDING,
          .keep_neg_inf = a.skip_neg_inf ? 0 : 1,
          .candidates = v.tensor(a.candidates),
          .block_size = a.block_size,
          .layout = a.layout == ScoreLayout::dense ? KEYSIEVE_LAYOUT_DENSE : KEYSIEVE_LAYOUT_COMPACT,
          .space = a.space == TopkSpace::local      ? KEYSIEVE_SPACE_LOCAL
                   : a.space == TopkSpace::absolute ? KEYSIEVE_SPACE_ABSOLUTE
                   : a.space == TopkSpace::offset   ? KEYSIEVE_SPACE_OFFSET
                                                    : KEYSIEVE_SPACE_PAGED,
          .offset = v.tensor(a.offset),
          .pages = v.page_map(a.pages),
          .out = v.tensor(a.out),
          .values = v.tensor(a.values),
          .counts = v.tensor(a.counts),
          .raw = v.tensor(a.raw)};
}

inline keysieve_index_store_args to_c(const IndexStoreArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_index_store_args),
          .keys = v.tensor(a.keys),
          .slots = v.tensor(a.slots),
          .cache = v.tensor(a.cache),
          .page_tokens = a.page_tokens,
          .format = a.format == KeyFormat::fp8 ? KEYSIEVE_KEYS_FP8 : KEYSIEVE_KEYS_MXFP4,
          .scale = a.scale == KeyScale::exact ? KEYSIEVE_SCALE_EXACT : KEYSIEVE_SCALE_UE8M0,
          .reciprocal = a.reciprocal,
          .ties_down = a.ties_down};
}

inline keysieve_index_gather_args to_c(const IndexGatherArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_index_gather_args),
          .cache = v.tensor(a.cache),
          .page_tokens = a.page_tokens,
          .format = a.format == KeyFormat::fp8 ? KEYSIEVE_KEYS_FP8 : KEYSIEVE_KEYS_MXFP4,
          .reserved = 0,
          .page_table = v.tensor(a.page_table),
          .table_offsets = v.tensor(a.table_offsets),
          .row_offsets = v.tensor(a.row_offsets),
          .start = v.tensor(a.start),
          .keys = v.tensor(a.keys),
          .scales = v.tensor(a.scales)};
}

inline keysieve_prepare_queries_args to_c(const PrepareQueriesArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_prepare_queries_args),
          .q = v.tensor(a.q),
          .weights = v.tensor(a.weights),
          .cos_sin = v.tensor(a.cos_sin),
          .positions = v.tensor(a.positions),
          .pairing = a.pairing == RopePairing::halves ? KEYSIEVE_ROPE_HALVES : KEYSIEVE_ROPE_ADJACENT,
          .place = a.place == RopePlace::first ? KEYSIEVE_ROPE_FIRST : KEYSIEVE_ROPE_LAST,
          .hadamard = a.hadamard,
          .format = a.format == KeyFormat::fp8 ? KEYSIEVE_KEYS_FP8 : KEYSIEVE_KEYS_MXFP4,
          .scale = a.scale == KeyScale::exact ? KEYSIEVE_SCALE_EXACT : KEYSIEVE_SCALE_UE8M0,
          .reciprocal = a.reciprocal,
          .ties_down = a.ties_down,
          .tiny_floor = a.tiny_floor,
          .softmax_scale = a.softmax_scale,
          .head_scale = a.head_scale,
          .codes = v.tensor(a.codes),
          .scales = v.tensor(a.scales),
          .folded = v.tensor(a.folded)};
}

inline keysieve_translate_args to_c(const TranslateArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_translate_args),
          .indices = v.tensor(a.indices),
          .pages = v.page_map(a.pages),
          .mode = a.mode == TranslateMode::compact ? KEYSIEVE_TRANSLATE_COMPACT : KEYSIEVE_TRANSLATE_KEEP,
          .reserved = 0,
          .slots = v.tensor(a.slots),
          .counts = v.tensor(a.counts),
          .raw = v.tensor(a.raw)};
}

inline keysieve_packed_mask_args to_c(const PackedMaskArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_packed_mask_args),
          .q_start = v.tensor(a.q_start),
          .key_first = v.tensor(a.key_first),
          .key_count = v.tensor(a.key_count),
          .indices = v.tensor(a.indices),
          .candidates = v.tensor(a.candidates),
          .block_size = a.block_size,
          .scores = v.tensor(a.scores),
          .thresholds = v.tensor(a.thresholds),
          .bounds = v.bounds(a.bounds),
          .mask = v.tensor(a.mask),
          .any = v.tensor(a.any),
          .all = v.tensor(a.all)};
}

inline keysieve_mask_indices_args to_c(const MaskIndicesArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_mask_indices_args),
          .q_start = v.tensor(a.q_start),
          .key_first = v.tensor(a.key_first),
          .key_count = v.tensor(a.key_count),
          .mask = v.tensor(a.mask),
          .out = v.tensor(a.out),
          .counts = v.tensor(a.counts)};
}

inline keysieve_masked_mha_args to_c(const MaskedMhaArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_masked_mha_args),
          .q = v.tensor(a.q),
          .k = v.tensor(a.k),
          .v = v.tensor(a.v),
          .q_start = v.tensor(a.q_start),
          .k_start = v.tensor(a.k_start),
          .mask = v.tensor(a.mask),
          .key_offset = v.tensor(a.key_offset),
          .q_offset = v.tensor(a.q_offset),
          .causal = a.causal ? 1 : 0,
          .softmax_scale = a.softmax_scale,
          .out = v.tensor(a.out),
          .lse = v.tensor(a.lse),
          .q_total = v.tensor(a.q_total),
          .k_total = v.tensor(a.k_total),
          .sink = v.tensor(a.sink),
          .lse_form = lse_form(a.lse_form)};
}

inline keysieve_sparse_mla_args to_c(const SparseMlaArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_sparse_mla_args),
          .q = v.tensor(a.q),
          .cache = v.tensor(a.cache),
          .indices = v.tensor(a.indices),
          .lengths = v.tensor(a.lengths),
          .extra_cache = v.tensor(a.extra_cache),
          .extra_indices = v.tensor(a.extra_indices),
          .extra_lengths = v.tensor(a.extra_lengths),
          .sink = v.tensor(a.sink),
          .softmax_scale = a.softmax_scale,
          .reserved = 0,
          .out = v.tensor(a.out),
          .lse = v.tensor(a.lse),
          .lse_form = lse_form(a.lse_form)};
}

inline keysieve_merge_states_args to_c(const MergeStatesArgs& a, CView& v) {
  return {.struct_size = sizeof(keysieve_merge_states_args),
          .outs = v.tensor(a.outs),
          .lses = v.tensor(a.lses),
          .sink = v.tensor(a.sink),
          .out = v.tensor(a.out),
          .lse = v.tensor(a.lse),
          .lses_form = lse_form(a.lses_form),
          .lse_form = lse_form(a.lse_form)};
}

// The four functions of each operation, chosen by the type of their arguments.
template <class CArgs>
struct CFunctions {
  int (*run)(const CArgs*, const keysieve_options*, void*, size_t, keysieve_error*);
  int (*workspace_bytes)(const CArgs*, const keysieve_options*, size_t*, keysieve_error*);
  int (*supports)(const CArgs*, const keysieve_options*, keysieve_error*);
  size_t (*explain)(const CArgs*, const keysieve_options*, char*, size_t);
};

#define KEYSIEVE_TEST_FUNCTIONS(operation)                                                                 \
  inline CFunctions<keysieve_##operation##_args> c_functions(const keysieve_##operation##_args&) {         \
    return {keysieve_##operation, keysieve_##operation##_workspace_bytes, keysieve_##operation##_supports, \
            keysieve_##operation##_explain};                                                               \
  }
KEYSIEVE_TEST_FUNCTIONS(index_store)
KEYSIEVE_TEST_FUNCTIONS(index_gather)
KEYSIEVE_TEST_FUNCTIONS(prepare_queries)
KEYSIEVE_TEST_FUNCTIONS(mqa_logits)
KEYSIEVE_TEST_FUNCTIONS(candidate_blocks)
KEYSIEVE_TEST_FUNCTIONS(candidate_mask)
KEYSIEVE_TEST_FUNCTIONS(topk)
KEYSIEVE_TEST_FUNCTIONS(translate)
KEYSIEVE_TEST_FUNCTIONS(packed_mask)
KEYSIEVE_TEST_FUNCTIONS(mask_indices)
KEYSIEVE_TEST_FUNCTIONS(masked_mha)
KEYSIEVE_TEST_FUNCTIONS(sparse_mla)
KEYSIEVE_TEST_FUNCTIONS(merge_states)
#undef KEYSIEVE_TEST_FUNCTIONS

}  // namespace keysieve::test

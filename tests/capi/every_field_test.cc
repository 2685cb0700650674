// C reaches every field. A structured binding names all fields of a struct: one that was added does not
// compile here until it stands in keysieve.h, src/capi, to_c.hpp and below.
#include "capi/to_c.hpp"

namespace keysieve::test {
namespace {

[[maybe_unused]] void fields(const Bounds& a) {
  [[maybe_unused]] const auto& [form, start, end, row_repeat, next_n, ratio, unit] = a;
}
[[maybe_unused]] void fields(const PageMap& a) {
  [[maybe_unused]] const auto& [page_table, row_to_request, table_start, page_size, pool_pages, next_n] = a;
}
[[maybe_unused]] void fields(const LseForm& a) { [[maybe_unused]] const auto& [base, empty, with_sink] = a; }
[[maybe_unused]] void fields(const IndexStoreArgs& a) {
  [[maybe_unused]] const auto& [keys, slots, cache, page_tokens, format, scale, reciprocal, ties_down] = a;
}
[[maybe_unused]] void fields(const IndexGatherArgs& a) {
  [[maybe_unused]] const auto& [cache, page_tokens, format, page_table, table_offsets, row_offsets, start,
                                keys, scales] = a;
}
[[maybe_unused]] void fields(const PrepareQueriesArgs& a) {
  [[maybe_unused]] const auto& [q, weights, cos_sin, positions, pairing, place, hadamard, format, scale,
                                reciprocal, ties_down, tiny_floor, softmax_scale, head_scale, codes, scales,
                                folded] = a;
}
[[maybe_unused]] void fields(const MqaLogitsArgs& a) {
  [[maybe_unused]] const auto& [q, weights, keys, key_scales, cache, page_tokens, page_table, bounds, tail,
                                scores] = a;
}
[[maybe_unused]] void fields(const CandidateBlocksArgs& a) {
  [[maybe_unused]] const auto& [scores, bounds, block_size, nan, order, candidates] = a;
}
[[maybe_unused]] void fields(const CandidateMaskArgs& a) {
  [[maybe_unused]] const auto& [scores, bounds, candidates, block_size, write_range, edge] = a;
}
[[maybe_unused]] void fields(const TopkArgs& a) {
  [[maybe_unused]] const auto& [scores, bounds, k, order, skip_neg_inf, candidates, block_size, layout, space,
                                offset, pages, out, values, counts, raw] = a;
}
[[maybe_unused]] void fields(const TranslateArgs& a) {
  [[maybe_unused]] const auto& [indices, pages, mode, slots, counts, raw] = a;
}
[[maybe_unused]] void fields(const PackedMaskArgs& a) {
  [[maybe_unused]] const auto& [q_start, key_first, key_count, indices, candidates, block_size, scores,
                                thresholds, bounds, mask, any, all] = a;
}
[[maybe_unused]] void fields(const MaskIndicesArgs& a) {
  [[maybe_unused]] const auto& [q_start, key_first, key_count, mask, out, counts] = a;
}
[[maybe_unused]] void fields(const MaskedMhaArgs& a) {
  [[maybe_unused]] const auto& [q, k, v, q_start, k_start, mask, key_offset, q_offset, q_total, k_total,
                                causal, softmax_scale, sink, out, lse, lse_form] = a;
}
[[maybe_unused]] void fields(const SparseMlaArgs& a) {
  [[maybe_unused]] const auto& [q, cache, indices, lengths, extra_cache, extra_indices, extra_lengths,
                                softmax_scale, sink, out, lse, lse_form] = a;
}
[[maybe_unused]] void fields(const MergeStatesArgs& a) {
  [[maybe_unused]] const auto& [outs, lses, lses_form, sink, out, lse, lse_form] = a;
}

}  // namespace
}  // namespace keysieve::test

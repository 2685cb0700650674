// cpu.topk.filter: threshold from a sample, one filtering pass, exact cut among the survivors; see
// topk_row-inl.hpp for the method. Takes every shape; one task a row, so that neither the batch nor the
// number of threads can change a result (TOP-34).
//
// Scratch per worker: the survivors' list (columns and keys), the candidates and, for the order by score, k
// words twice; topk_scratch.hpp adds it up.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/topk_filter.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "cpu/topk_emit.hpp"
#include "cpu/topk_row-inl.hpp"
#include "cpu/topk_view.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace keysieve::cpu::HWY_NAMESPACE {

// `count` stored scores as floats.
HWY_INLINE void widen(const std::uint16_t* HWY_RESTRICT from, std::int64_t count, float* HWY_RESTRICT to) {
  const hn::ScalableTag<std::uint32_t> du;
  const hn::Rebind<std::uint16_t, decltype(du)> dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(du));
  auto* bits = reinterpret_cast<std::uint32_t*>(to);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, from + i))), du, bits + i);
  for (; i < count; ++i) bits[i] = std::uint32_t{from[i]} << 16;
}

HWY_INLINE void widen(const float* HWY_RESTRICT from, std::int64_t count, float* HWY_RESTRICT to) {
  const hn::CappedTag<float, 8> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

// Score i of the row is scores[i].
template <class T>
struct WholeRow {
  const T* scores;

  HWY_INLINE const float* fetch(std::int64_t first, std::int64_t count, float* buffer) const {
    if constexpr (sizeof(T) == 4) return scores + first;
    widen(scores + first, count, buffer);
    return buffer;
  }
};

// The row's scores lie in its candidate blocks: block b at scores[starts[b] * size].
template <class T>
struct ListedBlocks {
  const T* scores;
  const std::int32_t* starts;  // null: one after the other
  std::int64_t size;
  int shift;

  HWY_INLINE const T* block(std::int64_t b) const {
    return scores + (starts != nullptr ? starts[b] : b) * size;
  }
  HWY_INLINE const float* fetch(std::int64_t first, std::int64_t count, float* HWY_RESTRICT buffer) const {
    std::int64_t b = shift >= 0 ? first >> shift : first / size;
    std::int64_t inside = first - b * size;
    std::int64_t done = 0;
    // The usual block is one vector: without a loop over its scores, 3 times as fast.
    if (size == 8 && inside == 0)
      for (; done + 8 <= count; done += 8) widen(block(b++), 8, buffer + done);
    for (; done < count; ++b, inside = 0) {
      const std::int64_t take = size - inside < count - done ? size - inside : count - done;
      widen(block(b) + inside, take, buffer + done);
      done += take;
    }
    return buffer;
  }
};

// From places in the blocks' scores to local columns, after which the view needs no blocks. Half the time of
// doing it one by one.
HWY_INLINE void to_local_columns(RowView& view, std::int32_t* columns, std::int64_t count) {
  const hn::ScalableTag<std::int32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  if (view.block_shift >= 0 && view.block_shift < 31) {
    const auto inside = hn::Set(d, (std::int32_t{1} << view.block_shift) - 1);
    for (; i + lanes <= count; i += lanes) {
      const auto at = hn::LoadU(d, columns + i);
      const auto id = hn::GatherIndex(d, view.blocks.ids, hn::ShiftRightSame(at, view.block_shift));
      hn::StoreU(hn::Or(hn::ShiftLeftSame(id, view.block_shift), hn::And(at, inside)), d, columns + i);
    }
  }
  for (; i < count; ++i) columns[i] = static_cast<std::int32_t>(view.local_column(columns[i]));
  view.blocks = {};
}

// Says in `view` what the row chooses among and leaves the places of its best k in s.columns, ascending.
std::int64_t select_in_view(const TopkArgs& a, std::int64_t row, const RowScratch& s, RowView& view) {
  view = row_view(a, row, s);
  const std::int64_t k = a.k < view.size ? a.k : view.size;
  const auto select = [&](const auto* scores) HWY_ATTR -> std::int64_t {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(scores)>>;
    if (view.blocks.ids == nullptr) return select_row(WholeRow<T>{scores}, view.size, k, s);
    const std::int32_t* starts = view.compact ? view.blocks.places : view.blocks.ids;
    return select_row(ListedBlocks<T>{scores, starts, view.block_size, view.block_shift}, view.size, k, s);
  };
  std::int64_t count = 0;
  // Where every visible score is returned in column order, none needs to be read.
  if (k > 0 && (a.skip_neg_inf || k < view.size))
    count = view.bf16 ? select(static_cast<const std::uint16_t*>(view.scores))
                      : select(static_cast<const float*>(view.scores));
  if (!a.skip_neg_inf && count < k) {
    fill_with_minus_infinity(s.columns, count, k);
    count = k;
  }
  // Where the scores are looked at again, their places are needed.
  if (view.blocks.ids != nullptr && !a.values.given() && a.order == TopkOrder::ascending_column)
    to_local_columns(view, s.columns, count);
  return count;
}

}  // namespace keysieve::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "contract/sizes.hpp"
#include "cpu/denormals.hpp"
#include "cpu/parallel.hpp"

namespace keysieve::cpu {
namespace {

HWY_EXPORT(select_in_view);

void topk_row(const TopkArgs& a, std::int64_t row, const RowScratch& s) {
  RowView view;
  const std::int64_t count = HWY_DYNAMIC_DISPATCH(select_in_view)(a, row, s, view);
  if (a.order == TopkOrder::by_score) order_by_score(view, s, count);
  emit_row(a, row, view, s, count);
}

const char* refuses(const TopkArgs&) { return nullptr; }

std::size_t workspace_bytes(const TopkArgs& a, std::int32_t concurrency) {
  return size_product(scratch_sizes(a).bytes, static_cast<std::size_t>(concurrency));
}

Status run(const TopkArgs& a, const Launch& launch) {
  const ScratchSizes sizes = scratch_sizes(a);
  for_each_task(launch, a.scores.shape[0], [&](std::int64_t row, int worker) {
    const KeepDenormals keep_denormals;
    topk_row(a, row, carve_scratch(worker_scratch<char>(launch, worker, sizes.bytes), sizes));
  });
  return {};
}

}  // namespace

extern const Kernel<TopkArgs> kTopkKernels[] = {{"cpu.topk.filter", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu
#endif  // HWY_ONCE

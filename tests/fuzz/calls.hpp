// calls: arguments made of fuzzer input. Each starts from a small legal call and has a few things changed, so
// that most inputs get past some rules and many reach a kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "contract/candidate_blocks.hpp"
#include "contract/candidate_mask.hpp"
#include "contract/index_gather.hpp"
#include "contract/index_store.hpp"
#include "contract/masked_mha.hpp"
#include "contract/merge_states.hpp"
#include "contract/mqa_logits.hpp"
#include "contract/packed_mask.hpp"
#include "contract/prepare_queries.hpp"
#include "contract/sparse_mla.hpp"
#include "contract/topk.hpp"
#include "contract/translate.hpp"

namespace keysieve::fuzz {

// Input bytes, one after the other, and zeros behind them.
class Source {
 public:
  Source(const std::uint8_t* data, std::size_t bytes) : next_(data), end_(data + bytes) {}
  [[nodiscard]] bool empty() const { return next_ == end_; }
  std::uint8_t byte() { return empty() ? 0 : *next_++; }
  // Below n.
  std::int64_t below(std::int64_t n) { return byte() % n; }
  bool coin() { return (byte() & 1) != 0; }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  // A number where sums and products go wrong.
  std::int64_t edge() {
    const std::int64_t bases[] = {
        0, 1, 2, 7, 64, 512, 1LL << 31, 1LL << 32, 1LL << 40, 1LL << 61, INT64_MAX - 2, INT64_MIN + 2};
    const std::uint8_t pick = byte();
    if (pick % 16 == 15) return static_cast<std::int64_t>(word());
    const std::int64_t base = bases[pick % 12];
    const std::int64_t step = below(5) - 2;
    return (pick & 0x80) != 0 && base > INT64_MIN + 2 ? -base + step : base + step;
  }

 private:
  const std::uint8_t* next_;
  const std::uint8_t* end_;
};

// A tensor of these extents, compact or with gaps.
inline Tensor shaped(Source& in, DType dtype, std::initializer_list<std::int64_t> extents,
                     bool free_columns = false) {
  Tensor t = Tensor::dense(nullptr, dtype, extents);
  const std::uint8_t gaps = in.byte();
  if (free_columns && gaps % 8 == 7)
    for (int axis = 0; axis < t.rank; ++axis) t.stride[axis] *= 2;
  if (gaps % 4 == 3 && t.rank > 1) t.stride[0] += gaps / 16;
  return t;
}

inline DType either(Source& in, DType a, DType b) { return in.coin() ? b : a; }

inline Bounds bounds(Source& in, std::int64_t rows) {
  Bounds b;
  const DType dtype = either(in, DType::i32, DType::i64);
  switch (in.below(4)) {
    case 0:
      b.form = BoundsForm::lengths;
      b.next_n = rows > 0 && in.coin() ? rows : 1;
      b.ratio = 1 + in.below(4);
      b.end = in.coin() ? shaped(in, dtype, {rows / b.next_n, b.next_n}, true)
                        : shaped(in, dtype, {rows / b.next_n}, true);
      b.unit = in.coin() ? LengthUnit::compressed : LengthUnit::tokens;
      break;
    case 1:
      b.start = shaped(in, either(in, DType::i32, DType::i64), {rows}, true);
      [[fallthrough]];
    default:
      b.row_repeat = b.start.given() ? 1 : 1 + in.below(3);
      b.end = shaped(in, dtype, {(rows + b.row_repeat - 1) / b.row_repeat}, true);
  }
  return b;
}

inline PageMap page_map(Source& in, std::int64_t rows) {
  PageMap m;
  m.next_n = 1 + in.below(3);
  m.page_table = shaped(in, DType::i32, {1 + in.below(4), in.below(20)}, true);
  if (in.coin()) m.row_to_request = shaped(in, DType::i32, {rows}, true);
  if (in.coin()) m.table_start = shaped(in, either(in, DType::i32, DType::i64), {rows}, true);
  m.page_size = 1 + in.below(70);
  m.pool_pages = in.below(40) - 1;
  return m;
}

inline void make(Source& in, IndexStoreArgs& a) {
  const std::int64_t tokens = in.below(6), dim = 32 << in.below(3);
  a.keys = shaped(in, either(in, DType::f32, DType::bf16), {tokens, dim});
  a.slots = shaped(in, either(in, DType::i32, DType::i64), {tokens}, true);
  a.page_tokens = 1 + in.below(5);
  if (in.coin()) a.format = KeyFormat::mxfp4;
  if (a.format == KeyFormat::fp8 && in.coin()) a.scale = KeyScale::ue8m0;
  a.reciprocal = a.format == KeyFormat::fp8 && in.coin();
  a.ties_down = a.format == KeyFormat::mxfp4 && in.coin();
  a.cache =
      shaped(in, DType::u8, {in.below(4), a.page_tokens * index_token_bytes(a.format, dim) + in.below(9)});
}

inline void make(Source& in, IndexGatherArgs& a) {
  const std::int64_t requests = in.below(4), rows = in.below(20), dim = 32 << in.below(3);
  a.page_tokens = 1 + in.below(5);
  if (in.coin()) a.format = KeyFormat::mxfp4;
  const bool fp8 = a.format == KeyFormat::fp8;
  a.cache =
      shaped(in, DType::u8, {in.below(4), a.page_tokens * index_token_bytes(a.format, dim) + in.below(9)});
  if (in.coin()) {
    a.page_table = shaped(in, DType::i32, {in.below(20)}, true);
    a.table_offsets = shaped(in, either(in, DType::i32, DType::i64), {requests + 1}, true);
  } else {
    a.page_table = shaped(in, DType::i32, {requests, in.below(8)}, true);
  }
  a.row_offsets = shaped(in, either(in, DType::i32, DType::i64), {requests + 1}, true);
  if (in.coin()) a.start = shaped(in, either(in, DType::i32, DType::i64), {requests}, true);
  a.keys = shaped(in, DType::u8, {rows, fp8 ? dim : dim / 2});
  a.scales = fp8 ? shaped(in, DType::f32, {rows}, true) : shaped(in, DType::u8, {rows, dim / 32});
}

inline void make(Source& in, PrepareQueriesArgs& a) {
  const std::int64_t rows = in.below(4), heads = 1 + in.below(4), dim = 32 << in.below(3);
  a.q = shaped(in, either(in, DType::f32, DType::bf16), {rows, heads, dim});
  a.weights = shaped(in, either(in, DType::f32, DType::bf16), {rows, heads}, true);
  if (dim >= 64 && in.coin()) {
    a.cos_sin = shaped(in, DType::f32, {in.below(9), 64});
    a.positions = shaped(in, either(in, DType::i32, DType::i64), {rows}, true);
  }
  a.pairing = in.coin() ? RopePairing::adjacent : RopePairing::halves;
  a.place = in.coin() ? RopePlace::last : RopePlace::first;
  a.hadamard = dim == 128 && in.coin();
  if (in.coin()) a.format = KeyFormat::mxfp4;
  const bool fp8 = a.format == KeyFormat::fp8;
  if (fp8 && in.coin()) a.scale = KeyScale::ue8m0;
  a.reciprocal = fp8 && in.coin();
  a.tiny_floor = fp8 && in.coin();
  a.ties_down = !fp8 && in.coin();
  a.codes = shaped(in, DType::u8, {rows, heads, fp8 ? dim : dim / 2});
  if (!fp8) a.scales = shaped(in, DType::u8, {rows, heads, dim / 32});
  a.folded = shaped(in, DType::f32, {rows, heads}, true);
}

inline void make(Source& in, MqaLogitsArgs& a) {
  const bool fp8 = in.coin();
  const std::int64_t requests = 1 + in.below(2), rows = requests * in.below(3), heads = 1 + in.below(5);
  const std::int64_t dim = 32 << in.below(3), width = in.below(80);
  const DType operand = fp8 ? DType::u8 : DType::bf16;
  a.q = shaped(in, operand, {rows, heads, dim});
  a.weights = shaped(in, either(in, DType::f32, DType::bf16), {rows, heads});
  if (in.coin()) {
    a.page_tokens = 1 << in.below(6);
    a.cache = fp8 ? shaped(in, operand, {1 + in.below(4), a.page_tokens * (dim + 4)})
                  : shaped(in, operand, {1 + in.below(4), a.page_tokens, dim});
    a.page_table = shaped(in, DType::i32, {requests, in.below(6)}, true);
  } else {
    a.keys = shaped(in, operand, {width + in.below(3), dim});
    if (fp8) a.key_scales = shaped(in, DType::f32, {a.keys.shape[0]});
  }
  a.bounds = bounds(in, rows);
  a.tail = in.coin() ? Tail::neg_inf : Tail::untouched;
  a.scores = shaped(in, either(in, DType::f32, DType::bf16), {rows, width});
}

inline void make(Source& in, CandidateBlocksArgs& a) {
  const std::int64_t rows = in.below(4), width = in.byte();
  a.scores = shaped(in, either(in, DType::f32, DType::bf16), {rows, width}, true);
  a.bounds = bounds(in, rows);
  a.block_size = 1 + in.below(20);
  a.nan = static_cast<NanPolicy>(in.below(3));
  a.order = in.coin() ? CandidateOrder::by_score : CandidateOrder::ascending_id;
  a.candidates = shaped(in, DType::i32, {rows, in.below(30)}, true);
}

inline void make(Source& in, CandidateMaskArgs& a) {
  const std::int64_t rows = in.below(4), width = in.byte();
  a.scores = shaped(in, either(in, DType::f32, DType::bf16), {rows, width}, true);
  a.bounds = bounds(in, rows);
  a.candidates = shaped(in, DType::i32, {rows, in.below(30)}, true);
  a.block_size = 1 + in.below(20);
  a.write_range = static_cast<WriteRange>(in.below(3));
  a.edge = in.coin();
}

inline void make(Source& in, TopkArgs& a) {
  const std::int64_t rows = in.below(4);
  std::int64_t width = in.byte();
  a.block_size = 1 + in.below(12);
  if (in.coin()) {
    const std::int64_t candidates = in.below(20);
    a.candidates = shaped(in, DType::i32, {rows, candidates}, true);
    if (in.coin()) {
      a.layout = ScoreLayout::compact;
      width = candidates * a.block_size;
    }
  }
  a.scores = shaped(in, either(in, DType::f32, DType::bf16), {rows, width});
  a.bounds = bounds(in, rows);
  a.k = in.below(40);
  a.order = in.coin() ? TopkOrder::by_score : TopkOrder::ascending_column;
  a.skip_neg_inf = in.coin();
  a.space = static_cast<TopkSpace>(in.below(4));
  const bool paged = a.space == TopkSpace::paged;
  if (a.space == TopkSpace::offset) a.offset = shaped(in, either(in, DType::i32, DType::i64), {rows}, true);
  if (paged) a.pages = page_map(in, rows);
  a.out = shaped(in, paged ? either(in, DType::i32, DType::i64) : DType::i32, {rows, a.k});
  if (in.coin()) a.values = shaped(in, DType::f32, {rows, a.k});
  if (in.coin()) a.counts = shaped(in, DType::i32, {rows});
  if (paged && in.coin()) a.raw = shaped(in, DType::i32, {rows, a.k});
}

inline void make(Source& in, TranslateArgs& a) {
  const std::int64_t rows = in.below(5), k = in.below(40);
  a.indices = shaped(in, DType::i32, {rows, k}, true);
  a.pages = page_map(in, rows);
  a.mode = in.coin() ? TranslateMode::keep : TranslateMode::compact;
  a.slots = shaped(in, either(in, DType::i32, DType::i64), {rows, k});
  if (in.coin()) a.counts = shaped(in, DType::i32, {rows});
  if (in.coin()) a.raw = shaped(in, DType::i32, {rows, k});
}

// Requests of a packed mask over `tokens` rows.
template <class Args>
std::int64_t mask_requests(Source& in, Args& a, std::int64_t tokens) {
  const std::int64_t requests = 1 + in.below(3), words = 4 * in.below(6);
  a.q_start = shaped(in, either(in, DType::i32, DType::i64), {requests + 1});
  if (in.coin()) a.key_first = shaped(in, either(in, DType::i32, DType::i64), {requests});
  a.key_count = shaped(in, either(in, DType::i32, DType::i64), {requests});
  a.mask = shaped(in, either(in, DType::u32, DType::i32), {requests, in.below(2) * 64 + tokens, words});
  return words;
}

inline void make(Source& in, PackedMaskArgs& a) {
  const std::int64_t tokens = in.below(6);
  const std::int64_t words = mask_requests(in, a, tokens);
  a.block_size = 1 + in.below(20);
  const std::int64_t source = in.below(3);
  if (source == 0) a.indices = shaped(in, DType::i32, {tokens, in.below(30)}, true);
  if (source == 1) a.candidates = shaped(in, DType::i32, {tokens, in.below(30)}, true);
  if (source == 2) {
    a.scores = shaped(in, either(in, DType::f32, DType::bf16), {tokens, in.byte()}, true);
    a.thresholds = shaped(in, DType::f32, {tokens}, true);
  }
  if (source != 0 && in.coin()) a.bounds = bounds(in, tokens);
  const std::int64_t requests = a.mask.shape[0], tiles = (words + 127) / 128,
                     bands = (a.mask.shape[1] + 127) / 128;
  if (in.coin()) a.any = shaped(in, DType::u32, {requests, bands, tiles});
  if (in.coin()) a.all = shaped(in, DType::u32, {requests, bands, tiles});
}

inline void make(Source& in, MaskIndicesArgs& a) {
  const std::int64_t tokens = in.below(6);
  mask_requests(in, a, tokens);
  a.out = shaped(in, DType::i32, {tokens, in.below(40)});
  if (in.coin()) a.counts = shaped(in, DType::i32, {tokens});
}

inline void make(Source& in, MaskedMhaArgs& a) {
  const std::int64_t sizes[][2] = {{192, 128}, {128, 128}, {256, 256}};
  const auto& [dqk, dv] = sizes[in.below(3)];
  const std::int64_t tokens = in.below(4), keys = in.below(20), heads = 1 + in.below(2),
                     requests = 1 + in.below(2);
  a.q = shaped(in, DType::bf16, {tokens, heads, dqk});
  a.k = shaped(in, DType::bf16, {keys, heads, dqk});
  a.v = shaped(in, DType::bf16, {keys, heads, dv});
  a.q_start = shaped(in, either(in, DType::i32, DType::i64), {requests + 1});
  a.k_start = shaped(in, either(in, DType::i32, DType::i64), {requests + 1});
  if (in.coin()) a.mask = shaped(in, either(in, DType::u32, DType::i32), {requests, 4, 4 * in.below(3)});
  if (in.coin()) a.key_offset = shaped(in, either(in, DType::i32, DType::i64), {requests});
  if (in.coin()) a.q_offset = shaped(in, either(in, DType::i32, DType::i64), {requests});
  if (in.coin()) a.q_total = shaped(in, either(in, DType::i32, DType::i64), {requests});
  if (in.coin()) a.k_total = shaped(in, either(in, DType::i32, DType::i64), {requests});
  if (in.coin()) a.sink = shaped(in, DType::f32, {heads});
  a.causal = in.coin();
  a.softmax_scale = 0.1f;
  a.out = shaped(in, either(in, DType::bf16, DType::f32), {tokens, heads, dv});
  if (in.coin()) a.lse = shaped(in, DType::f32, {tokens, heads});
}

inline void make(Source& in, SparseMlaArgs& a) {
  const std::int64_t rows = in.below(3), heads = 1 + in.below(3), dim = in.coin() ? 512 : 576;
  const auto pool = [&](Tensor& cache, Tensor& indices, Tensor& lengths) {
    cache = shaped(in, DType::bf16, {1 + in.below(2), 1 + in.below(3), dim});
    indices = shaped(in, either(in, DType::i32, DType::i64), {rows, in.below(12)}, true);
    if (in.coin()) lengths = shaped(in, DType::i32, {rows});
  };
  a.q = shaped(in, DType::bf16, {rows, heads, dim});
  pool(a.cache, a.indices, a.lengths);
  if (in.coin()) pool(a.extra_cache, a.extra_indices, a.extra_lengths);
  if (in.coin()) a.sink = shaped(in, DType::f32, {heads});
  a.softmax_scale = 0.1f;
  a.out = shaped(in, either(in, DType::bf16, DType::f32), {rows, heads, 512});
  if (in.coin()) a.lse = shaped(in, DType::f32, {rows, heads});
}

inline void make(Source& in, MergeStatesArgs& a) {
  const std::int64_t parts = in.below(4), rows = in.below(4), heads = 1 + in.below(3), dv = 1 + in.below(40);
  a.outs = shaped(in, either(in, DType::bf16, DType::f32), {parts, rows, heads, dv});
  a.lses = shaped(in, DType::f32, {parts, rows, heads});
  if (in.coin()) a.sink = shaped(in, DType::f32, {heads});
  a.out = shaped(in, either(in, DType::bf16, DType::f32), {rows, heads, dv});
  if (in.coin()) a.lse = shaped(in, DType::f32, {rows, heads});
}

// Every number of the arguments that is not a tensor.
template <class F>
void visit_numbers(Bounds& b, F&& f) {
  f(b.row_repeat), f(b.next_n), f(b.ratio);
}
template <class F>
void visit_numbers(PageMap& m, F&& f) {
  f(m.page_size), f(m.pool_pages), f(m.next_n);
}
template <class Args, class F>
void visit_numbers(Args& a, F&& f) {
  if constexpr (requires { a.k + 1; }) f(a.k);
  if constexpr (requires { a.block_size; }) f(a.block_size);
  if constexpr (requires { a.page_tokens; }) f(a.page_tokens);
  if constexpr (requires { a.bounds; }) visit_numbers(a.bounds, f);
  if constexpr (requires { a.pages; }) visit_numbers(a.pages, f);
}

inline void spoil(Source& in, Tensor& t) {
  const auto axis = in.below(Tensor::kMaxRank);
  switch (in.below(8)) {
    case 0:
      t.shape[axis] = in.edge();
      break;
    case 1:
      t.stride[axis] = in.edge();
      break;
    case 2:
      (void)__builtin_sub_overflow(0, t.stride[axis], &t.stride[axis]);
      break;
    case 3:
      t.dtype = static_cast<DType>(in.below(7));
      break;
    case 4:
      t.rank = static_cast<std::int32_t>(in.below(7)) - 1;
      break;
    case 5:
      t.device = {DeviceType::cuda, static_cast<std::int32_t>(in.below(2))};
      break;
    case 6:
      t.shape[axis] += in.below(3) - 1;
      break;
    default:
      t = {};
  }
}

// Up to four changes; none for every other input.
template <class Args>
void spoil(Source& in, Args& args) {
  for (std::int64_t changes = in.coin() ? 0 : in.below(5); changes > 0; --changes) {
    std::int64_t which = in.byte() % 24;
    visit_tensors(args, [&](const char*, const Tensor& t, Access) {
      if (which-- == 0) spoil(in, const_cast<Tensor&>(t));
    });
    visit_numbers(args, [&](std::int64_t& number) {
      if (which-- == 0) number = in.edge();
    });
  }
}

// Calls body(args) with arguments of the operation that the input picks.
template <class Body>
void with_call(Source& in, Body&& body) {
  const auto call = [&](auto args) {
    make(in, args);
    spoil(in, args);
    body(args);
  };
  switch (in.below(13)) {
    case 12:
      return call(PrepareQueriesArgs{});
    case 11:
      return call(IndexGatherArgs{});
    case 10:
      return call(IndexStoreArgs{});
    case 0:
      return call(MqaLogitsArgs{});
    case 1:
      return call(CandidateBlocksArgs{});
    case 2:
      return call(CandidateMaskArgs{});
    case 3:
      return call(TopkArgs{});
    case 4:
      return call(TranslateArgs{});
    case 5:
      return call(PackedMaskArgs{});
    case 6:
      return call(MaskIndicesArgs{});
    case 7:
      return call(MaskedMhaArgs{});
    case 8:
      return call(SparseMlaArgs{});
    default:
      return call(MergeStatesArgs{});
  }
}

// ---- memory for a call: each tensor in a block of its own, without a byte to spare ----

// Where a tensor's elements lie, in elements from its data; count < 0: more than a fuzzer should touch.
struct Footprint {
  std::int64_t first = 0, count = 0;
  bool overlaps = false;  // two of its elements may be one
};

inline Footprint footprint(const Tensor& t) {
  constexpr __int128 kMost = 1 << 14;
  __int128 low = 0, high = 0, elements = 1;
  if (t.rank < 0 || t.rank > Tensor::kMaxRank) return {0, -1};
  for (int axis = 0; axis < t.rank; ++axis) {
    elements *= t.shape[axis];
    if (t.shape[axis] < 0 || elements > kMost) return {0, -1};
    const __int128 reach = static_cast<__int128>(t.shape[axis] - 1) * t.stride[axis];
    (reach < 0 ? low : high) += reach;
  }
  if (elements == 0) return {};
  if (high - low >= kMost) return {0, -1};
  Footprint f{static_cast<std::int64_t>(low), static_cast<std::int64_t>(high - low + 1)};
  // Sound, if not exact: axes by size, each stepping past all that lies within the smaller ones.
  std::int64_t axes[Tensor::kMaxRank] = {0, 1, 2, 3}, inside = 0;
  const auto step = [&](std::int64_t axis) { return t.shape[axis] > 1 ? std::abs(t.stride[axis]) : 0; };
  std::sort(axes, axes + t.rank, [&](auto a, auto b) { return step(a) < step(b); });
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[axes[i]] > 1 && step(axes[i]) <= inside) f.overlaps = true;
    inside += (t.shape[axes[i]] - 1) * step(axes[i]);
  }
  return f;
}

template <class Args>
class Memory {
 public:
  // Gives every tensor of the arguments memory, filled the same way for the same seed. False: too large, or
  // not host memory; then nothing may run.
  bool attach(Args& args, std::uint64_t seed) {
    bool fits = true;
    visit_tensors(args, [&](const char*, const Tensor& t, Access access) {
      if (!t.given() || !fits) return;
      const Footprint f = footprint(t);
      fits = f.count >= 0 && t.device.type == DeviceType::cpu;
      if (!fits) return;
      const auto bytes = static_cast<std::size_t>(f.count * dtype_bytes(t.dtype));
      sizes_.push_back(bytes);
      if (bytes == 0) {
        // Nothing to point to: callers that allocate nothing hand over null.
        blocks_.emplace_back(nullptr, std::free);
        const_cast<Tensor&>(t).data = nullptr;
        return;
      }
      blocks_.emplace_back(static_cast<unsigned char*>(std::malloc(bytes)), std::free);
      overlaps_ = overlaps_ || (f.overlaps && access != Access::read);
      fill(t.dtype, blocks_.back().get(), f.count, seed + blocks_.size());
      const_cast<Tensor&>(t).data = blocks_.back().get() - f.first * dtype_bytes(t.dtype);
    });
    return fits;
  }
  // An output whose elements share memory holds whatever was written last.
  [[nodiscard]] bool overlaps() const { return overlaps_; }
  [[nodiscard]] bool equals(const Memory& other) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (sizes_[i] > 0 && std::memcmp(blocks_[i].get(), other.blocks_[i].get(), sizes_[i]) != 0)
        return false;
    return true;
  }

 private:
  static void fill(DType dtype, unsigned char* at, std::int64_t count, std::uint64_t seed) {
    const auto random = [&] {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::uint32_t>(seed >> 33);
    };
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t r = random();
      switch (dtype) {
        case DType::f32: {
          const std::uint32_t odd[] = {0x7fc00000, 0xff800001, 0x7f800000, 0xff800000,
                                       0x80000000, 0,          1,          0xff7fffff};
          float value = static_cast<float>(static_cast<int>(r % 64) - 32) * 0.25f;
          if (r % 256 < 8) std::memcpy(&value, &odd[r % 8], 4);
          std::memcpy(at + i * 4, &value, 4);
          break;
        }
        case DType::bf16: {
          const std::uint16_t odd[] = {0x7fc0, 0xff81, 0x7f80, 0xff80, 0x8000, 0, 1, 0xff7f};
          const auto value = static_cast<std::uint16_t>(
              r % 256 < 8 ? odd[r % 8] : 0x3f80 + r % 128 + (r >> 16) % 2 * 0x8000);
          std::memcpy(at + i * 2, &value, 2);
          break;
        }
        case DType::i32:
        case DType::u32: {
          const std::int32_t odd[] = {-1, INT32_MIN, INT32_MAX, 1 << 20};
          const std::int32_t value =
              r % 16 == 0 ? odd[(r >> 8) % 4] : static_cast<std::int32_t>((r >> 8) % 90);
          std::memcpy(at + i * 4, &value, 4);
          break;
        }
        case DType::i64: {
          const std::int64_t odd[] = {-1, INT64_MIN, INT64_MAX, 1LL << 40};
          const std::int64_t value =
              r % 16 == 0 ? odd[(r >> 8) % 4] : static_cast<std::int64_t>((r >> 8) % 90);
          std::memcpy(at + i * 8, &value, 8);
          break;
        }
        default:
          at[i] = static_cast<unsigned char>(r);
      }
    }
  }
  std::vector<std::unique_ptr<unsigned char, void (*)(void*)>> blocks_;
  std::vector<std::size_t> sizes_;
  bool overlaps_ = false;
};

// A workspace of exactly `bytes`, on 64 bytes, filled with rubbish.
inline std::unique_ptr<void, void (*)(void*)> workspace(std::size_t bytes) {
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (memory != nullptr) std::memset(memory, 0xFF, bytes);
  return {memory, std::free};
}

}  // namespace keysieve::fuzz

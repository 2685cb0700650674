// Rules of mqa_logits that the host judges: MQA-01 .. MQA-30.
#include "contract/mqa_logits.hpp"

#include "contract/general.hpp"

namespace keysieve {
namespace {

constexpr Device kHost{};

constexpr MqaLogitsArgs ragged() {
  MqaLogitsArgs a;
  a.q = Tensor::dense(nullptr, DType::u8, {6, 64, 128});
  a.weights = Tensor::dense(nullptr, DType::f32, {6, 64});
  a.keys = Tensor::dense(nullptr, DType::u8, {1000, 128});
  a.key_scales = Tensor::dense(nullptr, DType::f32, {1000});
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {6});
  a.scores = Tensor::dense(nullptr, DType::f32, {6, 1000});
  return a;
}

constexpr MqaLogitsArgs paged(DType dtype) {
  MqaLogitsArgs a = ragged();
  a.keys = a.key_scales = {};
  a.q.dtype = dtype;
  a.cache = dtype == DType::u8 ? Tensor::dense(nullptr, DType::u8, {99, 64 * 132})
                               : Tensor::dense(nullptr, DType::bf16, {99, 64, 128});
  a.page_table = Tensor::dense(nullptr, DType::i32, {3, 16});
  a.bounds.form = BoundsForm::lengths;
  a.bounds.next_n = 2;
  a.bounds.end = Tensor::dense(nullptr, DType::i32, {3});
  return a;
}

static_assert(judge(ragged()).ok() && judge_tensors(ragged(), "mqa_logits").ok());
static_assert(judge(paged(DType::u8)).ok() && judge(paged(DType::bf16)).ok());
static_assert(device_of(ragged()) == kHost);

template <class Change>
constexpr bool breaks(const char* id, MqaLogitsArgs a, Change change) {
  change(a);
  const Status s = judge(a);
  if (s.ok()) return false;
  for (int i = 0; i < 6; ++i)
    if (s.rule[i] != id[i]) return false;
  return true;
}
template <class Change>
constexpr bool breaks_ragged(const char* id, Change change) {
  return breaks(id, ragged(), change);
}
template <class Change>
constexpr bool breaks_paged(const char* id, Change change, DType dtype = DType::u8) {
  return breaks(id, paged(dtype), change);
}

static_assert(breaks_ragged("MQA-01", [](auto& a) { a.q.rank = 2; }));
static_assert(breaks_ragged("MQA-02", [](auto& a) { a.q.dtype = DType::f32; }));
static_assert(breaks_ragged("MQA-03", [](auto& a) { a.weights.shape[1] = 32; }));
static_assert(breaks_ragged("MQA-03", [](auto& a) { a.weights = {}; }));
static_assert(breaks_ragged("MQA-04", [](auto& a) { a.weights.dtype = DType::i32; }));
static_assert(breaks_ragged("MQA-05", [](auto& a) { a.scores.shape[0] = 5; }));
static_assert(breaks_ragged("MQA-06", [](auto& a) { a.scores.dtype = DType::i32; }));
static_assert(breaks_ragged("MQA-07", [](auto& a) { a.scores.stride[1] = 2; }));
static_assert(breaks_ragged("MQA-08", [](auto& a) { a.q.shape[1] = a.weights.shape[1] = 129; }));
static_assert(breaks_ragged("MQA-08", [](auto& a) { a.q.shape[1] = a.weights.shape[1] = 0; }));
static_assert(breaks_ragged("MQA-09", [](auto& a) { a.q.shape[2] = a.keys.shape[1] = 96; }));
static_assert(breaks_ragged("MQA-10", [](auto& a) { a.q.stride[2] = 2; }));
static_assert(breaks_ragged("MQA-11", [](auto& a) { a.keys = {}; }));
static_assert(breaks_ragged("MQA-11", [](auto& a) { a.cache = paged(DType::u8).cache; }));
static_assert(breaks_ragged("MQA-12", [](auto& a) { a.keys.shape[1] = 64; }));
static_assert(breaks_ragged("MQA-13", [](auto& a) { a.keys.dtype = DType::bf16; }));
static_assert(breaks_ragged("MQA-14", [](auto& a) { a.keys.stride[1] = 3; }));
static_assert(breaks_ragged("MQA-15", [](auto& a) { a.scores.shape[1] = 1001; }));
static_assert(breaks_ragged("MQA-16", [](auto& a) { a.key_scales = {}; }));
static_assert(breaks_ragged("MQA-16", [](auto& a) { a.q.dtype = a.keys.dtype = DType::bf16; }));
static_assert(breaks_ragged("MQA-17", [](auto& a) { a.key_scales.shape[0] = 999; }));
static_assert(breaks_ragged("MQA-18", [](auto& a) { a.key_scales.dtype = DType::bf16; }));
static_assert(breaks_ragged("MQA-19", [](auto& a) { a.page_table = paged(DType::u8).page_table; }));
static_assert(breaks_paged("MQA-20", [](auto& a) { a.page_tokens = 0; }));
static_assert(breaks_paged("MQA-21", [](auto& a) { a.cache.dtype = DType::bf16; }));
static_assert(breaks_paged("MQA-22", [](auto& a) { a.key_scales = ragged().key_scales; }));
static_assert(breaks_paged("MQA-23", [](auto& a) { a.page_table = {}; }));
static_assert(breaks_paged("MQA-24", [](auto& a) { a.page_table.dtype = DType::i64; }));
static_assert(breaks_paged(
    "MQA-25", [](auto& a) { a.page_tokens = 32; }, DType::bf16));
static_assert(breaks_paged("MQA-26", [](auto& a) { a.cache.rank = 3; }));
static_assert(breaks_paged("MQA-27", [](auto& a) { a.cache.stride[1] = 2; }));
static_assert(breaks_paged(
    "MQA-27", [](auto& a) { a.cache.stride[2] = 2; }, DType::bf16));
static_assert(breaks_paged("MQA-28", [](auto& a) { a.page_tokens = 65; }));
static_assert(breaks_paged("MQA-20", [](auto& a) { a.page_tokens = std::int64_t{1} << 62; }));
static_assert(breaks_paged("MQA-29", [](auto& a) { a.page_table.shape[0] = 4; }));
static_assert(breaks_paged("MQA-30", [](auto& a) { a.page_table.shape[0] = 2; }));
static_assert(breaks_paged("BND-14", [](auto& a) { a.bounds.end.shape[0] = 5; }));
// Neither a next_n that no rule has bounded yet nor a table of more requests than rows is multiplied with.
static_assert(breaks_paged("BND-05", [](auto& a) { a.bounds.next_n = INT64_MAX; }));
static_assert(breaks_paged("MQA-30", [](auto& a) {
  a.q.shape[0] = a.weights.shape[0] = a.scores.shape[0] = 0;
  a.page_table.shape[0] = std::int64_t{1} << 50;
  a.page_table.stride[0] = 0;
  a.bounds.end.shape[0] = 0;
  a.bounds.next_n = (std::int64_t{1} << 31) - 1;
}));

// A page may be wider than its tokens need, and rows may follow each other at any distance.
static_assert(judge([] {
                auto a = paged(DType::u8);
                a.cache.shape[1] += 100;
                a.cache.stride[0] = 40001;
                a.scores.stride[0] = 1 << 20;
                a.q.stride[0] = a.weights.stride[1] = 1 << 16;
                return a;
              }())
                  .ok());
// Ends of rows may come with a page table too, then every request has the same number of rows.
static_assert(judge([] {
                auto a = paged(DType::u8);
                a.bounds = {};
                a.bounds.end = Tensor::dense(nullptr, DType::i64, {6});
                return a;
              }())
                  .ok());

}  // namespace
}  // namespace keysieve

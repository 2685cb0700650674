// Rules TRN-01 to TRN-08 and PGM-01 to PGM-09, each broken alone. PGM-10 to PGM-12, TRN-09 and TRN-10 hold
// for any data: tests/parity/translate_test.cc.
#include "contract/translate.hpp"

#include <gtest/gtest.h>

namespace keysieve {
namespace {

constexpr TranslateArgs good_args() {
  TranslateArgs a;
  a.indices = Tensor::dense(nullptr, DType::i32, {6, 5});
  a.pages.page_table = Tensor::dense(nullptr, DType::i32, {3, 4});
  a.pages.row_to_request = Tensor::dense(nullptr, DType::i32, {6});
  a.pages.table_start = Tensor::dense(nullptr, DType::i64, {6});
  a.slots = Tensor::dense(nullptr, DType::i64, {6, 5});
  a.counts = Tensor::dense(nullptr, DType::i32, {6});
  a.raw = Tensor::dense(nullptr, DType::i32, {6, 5});
  return a;
}

static_assert(judge(good_args()).ok());

template <class Change>
constexpr bool breaks(const char* id, Change change) {
  TranslateArgs a = good_args();
  change(a);
  const Status s = judge(a);
  if (s.ok()) return false;
  for (int i = 0; i < 6; ++i)
    if (s.rule[i] != id[i]) return false;
  return true;
}

static_assert(breaks("TRN-01", [](auto& a) { a.indices.rank = 1; }));
static_assert(breaks("TRN-02", [](auto& a) { a.indices.dtype = DType::i64; }));
static_assert(breaks("TRN-03", [](auto& a) { a.slots.shape[1] = 6; }));
static_assert(breaks("TRN-04", [](auto& a) { a.slots.dtype = DType::f32; }));
static_assert(breaks("TRN-05", [](auto& a) { a.counts.shape[0] = 5; }));
static_assert(breaks("TRN-06", [](auto& a) { a.counts.dtype = DType::i64; }));
static_assert(breaks("TRN-07", [](auto& a) { a.raw.shape[0] = 5; }));
static_assert(breaks("TRN-08", [](auto& a) { a.raw.dtype = DType::i64; }));
static_assert(breaks("PGM-01", [](auto& a) { a.pages.page_table = {}; }));
static_assert(breaks("PGM-02", [](auto& a) { a.pages.page_table.dtype = DType::i64; }));
static_assert(breaks("PGM-03", [](auto& a) { a.pages.page_size = 0; }));
static_assert(breaks("PGM-03", [](auto& a) { a.pages.page_size = std::int64_t{1} << 31; }));
static_assert(breaks("PGM-04", [](auto& a) { a.pages.next_n = 0; }));
static_assert(breaks("PGM-05", [](auto& a) { a.pages.pool_pages = -2; }));
static_assert(breaks("PGM-06", [](auto& a) { a.pages.row_to_request.dtype = DType::i64; }));
static_assert(breaks("PGM-07", [](auto& a) { a.pages.row_to_request.shape[0] = 5; }));
static_assert(breaks("PGM-08", [](auto& a) { a.pages.table_start.dtype = DType::u32; }));
static_assert(breaks("PGM-09", [](auto& a) { a.pages.table_start.shape[0] = 3; }));

TEST(TranslateContract, MessagesNameRuleArgumentAndValue) {
  TranslateArgs a = good_args();
  a.pages.page_size = -3;
  const std::string message = judge(a).message();
  for (const char* part : {"translate", "page_size", "PGM-03", "-3"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

}  // namespace
}  // namespace keysieve

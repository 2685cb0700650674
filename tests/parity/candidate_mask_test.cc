#include "keysieve/candidate_mask.hpp"

#include <gtest/gtest.h>

#include "support/families.hpp"
#include "support/parity.hpp"

namespace keysieve::test {
namespace {

struct MaskCall {
  TensorBox scores, end, candidates;
  CandidateMaskArgs extra;

  CandidateMaskArgs args() {
    CandidateMaskArgs a = extra;
    a.scores = scores.tensor();
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    return a;
  }
  std::vector<TensorBox*> boxes() { return {&scores, &end, &candidates}; }
};

MaskCall make_call(DType dtype, std::int64_t width, std::int64_t column_stride, WriteRange range, bool edge) {
  MaskCall call{TensorBox(dtype, {5, width}, 3, column_stride),
                TensorBox::of<std::int64_t>(DType::i32, {width, 0, -3, width / 2, width + 9}),
                TensorBox(DType::i32, {5, 6}),
                {}};
  const std::vector<float> values = make_scores(Family::nan, 5 * width, 1);
  call.scores.fill([&](auto i, auto j) { return values[static_cast<std::size_t>(i * width + j)]; });
  call.candidates.fill([&](auto i, auto j) { return j == 0 ? -1 : (i * 7 + j * 5) % (width / 4 + 2); });
  call.extra.write_range = range;
  call.extra.edge = edge;
  return call;
}

TEST(CandidateMask, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {1, 7, 64, 1000})
      for (const std::int64_t column_stride : {1, 2})
        for (const WriteRange range : {WriteRange::full, WriteRange::live, WriteRange::window})
          for (const bool edge : {false, true})
            expect_parity([&] { return make_call(dtype, width, column_stride, range, edge); });
}

}  // namespace
}  // namespace keysieve::test

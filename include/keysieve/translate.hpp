// translate: a selection's local indices to cache slots, as topk's `paged` space does it.
//
//   indices  i32 [rows, k]          any strides; negative entries are unused
//   pages    see page_map.hpp       an index without a slot is dropped
//   slots    i32|i64 [rows, k]      unused places hold -1
//   counts   i32 [rows]             optional: slots found in each row
//   raw      i32 [rows, k]          optional: the index behind each slot, -1 where there is none
//
// Result.  `keep`: slots[r][t] belongs to indices[r][t]. `compact`: found slots first, in order, then -1.
// Cost.    Reads each index and one table entry for it. Streams. run() only enqueues.
#pragma once

#include "keysieve/page_map.hpp"
#include "keysieve/plan.hpp"
#include "keysieve/tensor.hpp"

namespace [[gnu::visibility("default")]] keysieve {

enum class TranslateMode : std::uint8_t { keep, compact };

struct TranslateArgs {
  Tensor indices;
  PageMap pages;
  TranslateMode mode = TranslateMode::compact;
  Tensor slots;
  Tensor counts;
  Tensor raw;
};

using TranslatePlan = Plan<TranslateArgs>;

}  // namespace keysieve

// breaks: does a change to good arguments break just the rule that it should? For static_asserts.
#pragma once

#include "contract/general.hpp"

namespace keysieve::test {

constexpr bool has_id(const Status& status, const char* id) {
  for (int i = 0; i < 6; ++i)
    if (status.ok() || status.rule[i] != id[i]) return false;
  return true;
}

template <class Args, class Change>
constexpr bool breaks(Args args, const char* id, Change change) {
  change(args);
  const Status own = judge(args);
  return has_id(own.ok() ? judge_tensors(args, own.operation) : own, id);
}

}  // namespace keysieve::test

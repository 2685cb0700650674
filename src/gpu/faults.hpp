// faults: mutant() for device code. The host asks which fault is on and passes its number along; in every
// library that is installed the struct is empty and the question a constant.
#pragma once

#include <initializer_list>

#include "contract/mutant.hpp"

namespace keysieve::gpu {

#ifdef KEYSIEVE_MUTANTS
#if defined(__CUDACC__) || defined(__HIPCC__)
#define KEYSIEVE_ON_BOTH __host__ __device__
#else
#define KEYSIEVE_ON_BOTH
#endif
struct Faults {
  int active = -1;
  KEYSIEVE_ON_BOTH bool on(int fault) const { return active == fault; }
};
// The place in the list of the fault that is on.
inline Faults active_fault(std::initializer_list<const char*> names) {
  int at = 0;
  for (const char* name : names) {
    if (mutant(name)) return {at};
    ++at;
  }
  return {};
}
#else
struct Faults {
#if defined(__CUDACC__) || defined(__HIPCC__)
  __host__ __device__
#endif
      constexpr bool
      on(int) const {
    return false;
  }
};
inline Faults active_fault(std::initializer_list<const char*>) { return {}; }
#endif

}  // namespace keysieve::gpu

// mutant: places where a test may break a kernel on purpose, to prove that the suite notices. In every
// library that is installed the question is a constant `false` and costs nothing; the test-only library asks
// at run time.
#pragma once

namespace keysieve {

#ifdef KEYSIEVE_MUTANTS
[[nodiscard]] bool mutant(const char* name);  // tests/mutant.cc
#else
[[nodiscard]] constexpr bool mutant(const char*) { return false; }
#endif

}  // namespace keysieve

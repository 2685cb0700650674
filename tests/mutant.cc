// The run-time switch behind mutant(): KEYSIEVE_MUTANT names the one fault that is on.
#include "contract/mutant.hpp"

#include <cstdlib>
#include <cstring>

namespace keysieve {

bool mutant(const char* name) {
  static const char* const active = std::getenv("KEYSIEVE_MUTANT");
  return active != nullptr && std::strcmp(active, name) == 0;
}

}  // namespace keysieve

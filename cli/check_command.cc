#include <ostream>

#include "commands.hpp"
namespace keysieve::cli {
int check_command(const CheckCommand&, const Console& console) {
  console.err << "keysieve: check is not there yet\n";
  return kUsage;
}
}  // namespace keysieve::cli

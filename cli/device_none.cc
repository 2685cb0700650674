#include "device.hpp"

namespace keysieve::cli {

std::unique_ptr<StageDevice> open_device(const std::string&, std::string&) { return nullptr; }

}  // namespace keysieve::cli

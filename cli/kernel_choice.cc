#include "kernel_choice.hpp"

#include <algorithm>

namespace keysieve::cli {

std::string KernelChoice::parse(const std::string& list) {
  std::vector<std::string> known;
  for (const std::string& name : backend_names()) {
    for (const std::string& kernel : kernel_names(name.c_str())) known.push_back(kernel);
  }
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::string name = list.substr(at, comma - at);
    at = comma + 1;
    if (name.empty()) continue;
    const bool forbid = name[0] == '-';
    if (forbid) name.erase(0, 1);
    if (std::find(known.begin(), known.end(), name) == known.end())
      return "no kernel is called '" + name + "'";
    (forbid ? forbidden : only).push_back(std::move(name));
  }
  return "";
}

KernelChoice KernelChoice::on_host() const {
  KernelChoice host = *this;
  if (on_device()) host.backend = "cpu";
  return host;
}

PlannedChoice::PlannedChoice(const KernelChoice& choice, const std::string& operation,
                             const Executor* executor) {
  options.backend = choice.backend.c_str();
  options.concurrency = executor != nullptr ? executor->concurrency : 1;
  for (const std::string& name : choice.only) {
    // "cpu.topk.filter" and "reference.topk" belong to "topk".
    if ((name + ".").find("." + operation + ".") != std::string::npos) options.kernel = name.c_str();
  }
  for (const std::string& name : choice.forbidden) forbidden_.push_back(name.c_str());
  options.forbid = forbidden_;
}

}  // namespace keysieve::cli

// translate, as defined: the slot of each index, in place or moved to the front.
#include "keysieve/translate.hpp"

#include <utility>
#include <vector>

#include "reference/access.hpp"
#include "reference/page_map.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

Status run(const TranslateArgs& a, const Launch&) {
  const std::int64_t k = a.indices.shape[1];
  for (std::int64_t row = 0; row < a.indices.shape[0]; ++row) {
    std::vector<std::pair<std::int64_t, std::int64_t>> entries;  // slot, local index
    std::int64_t found = 0;
    for (std::int64_t t = 0; t < k; ++t) {
      const std::int64_t local = integer_at(a.indices, row, t);
      const std::int64_t slot = slot_of(a.pages, row, local, a.slots.dtype);
      if (slot >= 0) ++found;
      if (slot >= 0)
        entries.emplace_back(slot, local);
      else if (a.mode == TranslateMode::keep)
        entries.emplace_back(-1, -1);
    }
    entries.resize(static_cast<std::size_t>(k), {-1, -1});
    for (std::int64_t t = 0; t < k; ++t) {
      set_integer(a.slots, entries[static_cast<std::size_t>(t)].first, row, t);
      if (a.raw.given()) set_integer(a.raw, entries[static_cast<std::size_t>(t)].second, row, t);
    }
    if (a.counts.given()) set_integer(a.counts, found, row);
  }
  return {};
}

}  // namespace

extern const Kernel<TranslateArgs> kTranslateKernels[] = {
    {"reference.translate", [](const TranslateArgs&) -> const char* { return nullptr; },
     [](const TranslateArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

// cpu.translate.rows: one task a row; a table look-up for each index.
#include <cstdint>

#include "contract/mutant.hpp"
#include "cpu/page_map.hpp"
#include "cpu/parallel.hpp"
#include "keysieve/translate.hpp"

namespace keysieve::cpu {
namespace {

void translate_row(const TranslateArgs& a, std::int64_t row) {
  const RowPages pages(a.pages, row, a.slots);
  const std::int64_t k = a.indices.shape[1];
  const bool compact = a.mode == TranslateMode::compact && !mutant("translate.compact");
  std::int64_t found = 0;
  // TRN-09: entry t is read before any place at or after t is written, so one output may be the input itself.
  // TRN-10: found slots keep their order.
  for (std::int64_t t = 0; t < k; ++t) {
    const std::int64_t local = load_int(a.indices, row, t);
    const std::int64_t slot = pages.slot(local);
    if (slot < 0 && compact) continue;
    const std::int64_t place = compact ? found : t;
    store_int(a.slots, slot, row, place);
    if (a.raw.given()) store_int(a.raw, slot >= 0 ? local : -1, row, place);
    found += slot >= 0;
  }
  if (a.counts.given()) store_int(a.counts, found, row);
  if (!compact) return;
  for (std::int64_t t = found; t < k; ++t) {
    store_int(a.slots, -1, row, t);
    if (a.raw.given()) store_int(a.raw, -1, row, t);
  }
}

const char* refuses(const TranslateArgs&) { return nullptr; }

std::size_t workspace_bytes(const TranslateArgs&, std::int32_t) { return 0; }

Status run(const TranslateArgs& a, const Launch& launch) {
  for_each_task(launch, a.indices.shape[0], [&](std::int64_t row, int) { translate_row(a, row); });
  return {};
}

}  // namespace

extern const Kernel<TranslateArgs> kTranslateKernels[] = {
    {"cpu.translate.rows", refuses, workspace_bytes, run}};

}  // namespace keysieve::cpu

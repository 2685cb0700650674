#include <algorithm>
#include <bit>

#include "checker.hpp"

namespace keysieve::cli {

// What the engine selected: its own list, or the file's, or the reference's.
std::optional<Checker::Selection> Checker::selection() const {
  if (dumped_.indices != nullptr)
    return Selection{dumped_.indices->as<std::int32_t>(), dumped_.indices->shape.back()};
  if (step_.selection.given())
    return Selection{static_cast<const std::int32_t*>(step_.selection.data), step_.selection.shape[1]};
  if (reference_indices_.empty()) return std::nullopt;
  return Selection{reference_indices_.data(), step_.topk};
}

void Checker::check_counts() {
  const std::optional<Selection> selected = selection();
  if (!selected) return unchecked("counts", "the file holds no selection");
  const auto [keys, k] = *selected;
  for (std::int64_t row = 0; row < step_.rows; ++row) {
    ++finding("counts").rows;
    const auto used =
        std::count_if(keys + row * k, keys + (row + 1) * k, [](std::int32_t key) { return key >= 0; });
    const std::int32_t count = dumped_.counts->as<std::int32_t>()[row];
    if (count == used) continue;
    return breaks("counts", row, "CHK-10 out_counts counts the used places",
                  printed("%d for %lld used places", count, static_cast<long long>(used)));
  }
}

std::int64_t Checker::dumped_slot(std::int64_t at) const {
  return dumped_.slots->dtype == io::FileDType::i64 ? dumped_.slots->as<std::int64_t>()[at]
                                                    : dumped_.slots->as<std::int32_t>()[at];
}

void Checker::check_slots() {
  if (!step_.has_attention) return unchecked("translate", "the file holds no latent cache");
  if (dumped_.indices == nullptr && !step_.selection.given())
    return unchecked("translate", "out_slots needs out_indices beside it");
  const auto [keys, k] = *selection();
  if (dumped_.slots->shape.back() != k) {
    return breaks("translate", 0, "CHK-11 out_slots holds the slot of each selected key",
                  printed("%lld columns for %lld selected keys",
                          static_cast<long long>(dumped_.slots->shape.back()), static_cast<long long>(k)));
  }
  for (std::int64_t row = 0; row < step_.rows; ++row) {
    ++finding("translate").rows;
    for (std::int64_t t = 0; t < k; ++t) {
      const std::int64_t key = keys[row * k + t], slot = dumped_slot(row * k + t);
      const std::int64_t wanted = key < 0 ? -1 : step_.latent.slot(request(row), key);
      if (slot == wanted || (slot < 0 && wanted < 0)) continue;
      return breaks("translate", row, "CHK-11 out_slots holds the slot of each selected key",
                    printed("key %lld has slot %lld, its row lies in slot %lld", static_cast<long long>(key),
                            static_cast<long long>(slot), static_cast<long long>(wanted)));
    }
  }
}

void Checker::check_mask() {
  const std::optional<Selection> selected = selection();
  if (!selected) return unchecked("packed_mask", "the file holds no selection");
  const auto [keys, k] = *selected;
  const std::int64_t padded = dumped_.mask->shape[1], words = dumped_.mask->shape[2];
  std::vector<std::uint32_t> wanted(static_cast<std::size_t>(words));
  for (std::int64_t b = 0; b < step_.requests; ++b) {
    const std::int64_t first = step_.q_start[static_cast<std::size_t>(b)];
    const std::int64_t count = step_.q_start[static_cast<std::size_t>(b) + 1] - first;
    if (count > padded) {
      return breaks("packed_mask", first, "CHK-12 the mask keeps every selected key",
                    printed("%lld mask rows for %lld query rows", static_cast<long long>(padded),
                            static_cast<long long>(count)));
    }
    for (std::int64_t i = 0; i < padded; ++i) {
      std::fill(wanted.begin(), wanted.end(), 0);
      for (std::int64_t t = 0; i < count && t < k; ++t) {
        const std::int64_t key = keys[(first + i) * k + t];
        if (key >= 0 && key / 32 < words) wanted[static_cast<std::size_t>(key / 32)] |= 1u << (key % 32);
      }
      if (i < count) ++finding("packed_mask").rows;
      const std::uint32_t* seen = dumped_.mask->as<std::uint32_t>() + (b * padded + i) * words;
      for (std::int64_t w = 0; w < words; ++w) {
        const std::uint32_t difference = seen[w] ^ wanted[static_cast<std::size_t>(w)];
        if (difference == 0) continue;
        const int bit = std::countr_zero(difference);
        const bool missing = (wanted[static_cast<std::size_t>(w)] >> bit & 1) != 0;
        return breaks(
            "packed_mask", i < count ? first + i : -1,
            missing ? "CHK-12 the mask keeps every selected key" : "CHK-13 the mask keeps nothing else",
            printed("request %lld, mask row %lld%s: bit of key %lld is %d", static_cast<long long>(b),
                    static_cast<long long>(i), i < count ? "" : " (padding)",
                    static_cast<long long>(w * 32 + bit), missing ? 0 : 1));
      }
    }
  }
}

}  // namespace keysieve::cli

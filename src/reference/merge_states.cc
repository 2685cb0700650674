// merge_states, as defined: each part that has keys weighs exp(its LSE).
#include "keysieve/merge_states.hpp"

#include "reference/attention.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

double natural_lse(float written, const LseForm& form) {
  if (form.empty == LseEmpty::plus_infinity && written == -kMinusInfinity) return kNoKeys;
  return form.base == LseBase::two ? double{written} * std::log(2.0) : double{written};
}

Status run(const MergeStatesArgs& a, const Launch&) {
  const std::int64_t columns = a.out.shape[2];
  for (std::int64_t row = 0; row < a.out.shape[0]; ++row) {
    for (std::int64_t head = 0; head < a.out.shape[1]; ++head) {
      std::vector<double> lse;
      std::vector<std::int64_t> part;
      for (std::int64_t i = 0; i < a.outs.shape[0]; ++i) {
        const double natural = natural_lse(at<float>(a.lses, i, row, head), a.lses_form);
        if (natural == kNoKeys) continue;  // MRG-11
        lse.push_back(natural);
        part.push_back(i);
      }
      const Attended merged = attend(lse, columns, [&](std::size_t i, std::int64_t c) {
        return double{real_at(a.outs, part[i], row, head, c)};
      });
      const double sink = a.sink.given() ? double{at<float>(a.sink, head)} : kNoKeys;
      const bool empty = merged.lse == kNoKeys;
      for (std::int64_t c = 0; c < columns; ++c) {
        const double mean = merged.mean[static_cast<std::size_t>(c)];
        set_real(a.out, static_cast<float>(empty ? 0.0 : mean * sink_share(merged.lse, sink)), row, head, c);
      }
      if (a.lse.given()) at<float>(a.lse, row, head) = written_lse(merged.lse, a.lse_form, sink);
    }
  }
  return {};
}

}  // namespace

extern const Kernel<MergeStatesArgs> kMergeStatesKernels[] = {
    {"reference.merge_states", [](const MergeStatesArgs&) -> const char* { return nullptr; },
     [](const MergeStatesArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference

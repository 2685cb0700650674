#include <cmath>

#include "agreement.hpp"
#include "checker.hpp"

namespace keysieve::cli {

void Checker::check_attention() {
  const std::optional<Selection> selected = selection();
  const std::int64_t k = dumped_.slots != nullptr ? dumped_.slots->shape.back() : selected ? selected->k : 0;
  if (dumped_.slots == nullptr && !selected) {
    return unchecked(dumped_.out != nullptr ? "sparse_mla" : "lse", "the file holds no selection");
  }
  Buffer<std::int32_t> slots(step_.rows * k);
  for (std::int64_t row = 0; row < step_.rows; ++row) {
    for (std::int64_t t = row * k; t < (row + 1) * k; ++t) {
      // The engine's own slots, also wrong ones: this stage is judged on what went into it.
      const std::int64_t slot =
          dumped_.slots != nullptr ? dumped_slot(t) : step_.latent.slot(request(row), selected->keys[t]);
      slots[t] = slot < 0 || slot >= step_.latent.slots() ? -1 : static_cast<std::int32_t>(slot);
    }
  }
  const std::int64_t heads = step_.heads;
  Buffer<float> out(step_.rows * heads * 512), lse(step_.rows * heads);
  std::string why;
  if (!reference("sparse_mla",
                 attention_args(step_, {0, step_.rows}, matrix(slots.data(), DType::i32, step_.rows, k),
                                Tensor::dense(out.data(), DType::f32, {step_.rows, heads, 512}),
                                matrix(lse.data(), DType::f32, step_.rows, heads)),
                 why)) {
    return unchecked(dumped_.out != nullptr ? "sparse_mla" : "lse", why);
  }
  if (dumped_.out != nullptr) compare_attention("sparse_mla", io::view(*dumped_.out, 1), out, heads, 512);
  if (dumped_.lse != nullptr) compare_attention("lse", io::view(*dumped_.lse, 1), lse, heads, 1);
}

void Checker::compare_attention(const char* stage, const Tensor& seen, const Buffer<float>& expected,
                                std::int64_t heads, std::int64_t width) {
  for (std::int64_t row = 0; row < step_.rows; ++row) {
    ++finding(stage).rows;
    for (std::int64_t h = 0; h < heads; ++h) {
      double xy = 0, xx = 0, yy = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        const std::int64_t at = (row * heads + h) * width + c;
        const double x = static_cast<double>(expected[at]), y = static_cast<double>(real(seen, at));
        xy += x * y, xx += x * x, yy += y * y;
        if (width > 1 ? near_output(x, y) : near_lse(x, y)) continue;
        return breaks(
            stage, row,
            width > 1 ? "CHK-14 the output equals the reference within tolerance"
                      : "CHK-15 the LSE equals the reference within tolerance",
            printed("head %lld%s has %.7g, the reference %.7g", static_cast<long long>(h),
                    width > 1 ? printed(", element %lld,", static_cast<long long>(c)).c_str() : "", y, x));
      }
      if (width > 1 && xx + yy > 0 && 1 - 2 * xy / (xx + yy) > kOutputCosine) {
        return breaks(stage, row, "CHK-14 the output equals the reference within tolerance",
                      printed("head %lld lies %.3g from the reference as a vector, allowed %.3g",
                              static_cast<long long>(h), 1 - 2 * xy / (xx + yy), kOutputCosine));
      }
    }
  }
}

}  // namespace keysieve::cli

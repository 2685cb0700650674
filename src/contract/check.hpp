// check: judges an operation's arguments rule by rule and keeps the first that breaks. Everything is
// constexpr, so contract tests are static_asserts, and nothing allocates, so run() may judge again.
//
//   Dim rows, width;
//   return Check("topk")
//       .shape("scores", a.scores, {&rows, &width}, "TOP-02 scores is [rows, width]")
//       .that(a.k >= 0, "k", "TOP-01 k >= 0", a.k)
//       .status();
#pragma once

#include <cstdint>
#include <initializer_list>

#include "keysieve/status.hpp"
#include "keysieve/tensor.hpp"

namespace keysieve {

// Appends words and numbers to a Status' fixed buffer; cuts what does not fit.
class SeenText {
 public:
  constexpr explicit SeenText(Status& status) : status_(status) {
    while (status_.seen[at_] != 0) ++at_;
  }
  constexpr SeenText& text(const char* words) {
    while (*words != 0 && at_ < Status::kSeenCapacity - 1) status_.seen[at_++] = *words++;
    status_.seen[at_] = 0;
    return *this;
  }
  constexpr SeenText& number(std::int64_t value) {
    char digits[24] = {0};
    int first = 23;
    std::uint64_t rest =
        value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    do {
      digits[--first] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    if (value < 0) digits[--first] = '-';
    return text(digits + first);
  }
  constexpr SeenText& list(const std::int64_t* values, int count) {
    text("[");
    for (int i = 0; i < count; ++i) {
      if (i > 0) text(", ");
      number(values[i]);
    }
    return text("]");
  }

 private:
  Status& status_;
  int at_ = 0;
};

// A size that several arguments must share: bound by the first shape that mentions it, compared afterwards.
struct Dim {
  std::int64_t value = -1;
};

inline constexpr std::int64_t kAnyExtent = -1;

// One axis of a wanted shape: a Dim, a fixed size, or kAnyExtent.
struct Extent {
  Dim* dim = nullptr;
  std::int64_t size = kAnyExtent;
  constexpr Extent(Dim* d) : dim(d) {}           // NOLINT(google-explicit-constructor)
  constexpr Extent(std::int64_t s) : size(s) {}  // NOLINT(google-explicit-constructor)
  constexpr Extent(int s) : size(s) {}           // NOLINT(google-explicit-constructor)
  [[nodiscard]] constexpr std::int64_t wanted() const { return dim != nullptr ? dim->value : size; }
};

class Check {
 public:
  constexpr explicit Check(const char* operation) { status_.operation = operation; }

  [[nodiscard]] constexpr bool holds() const { return status_.ok(); }
  [[nodiscard]] constexpr Status status() const { return status_; }

  constexpr Check& that(bool holds, const char* argument, const char* rule, std::int64_t seen) {
    if (status_.ok() && !holds) fail(argument, rule).number(seen);
    return *this;
  }
  constexpr Check& that(bool holds, const char* argument, const char* rule, const char* seen) {
    if (status_.ok() && !holds) fail(argument, rule).text(seen);
    return *this;
  }

  // A count that data are multiplied with: 31 bits, so that no product with a column or a page id leaves 63.
  constexpr Check& positive(const char* argument, std::int64_t value, const char* rule) {
    return that(value >= 1 && value < (std::int64_t{1} << 31), argument, rule, value);
  }

  constexpr Check& given(const char* argument, const Tensor& t, const char* rule) {
    return that(t.given(), argument, rule, "nothing");
  }

  constexpr Check& dtype(const char* argument, const Tensor& t, std::initializer_list<DType> allowed,
                         const char* rule) {
    if (!t.given()) return *this;
    for (const DType d : allowed)
      if (d == t.dtype) return *this;
    return that(false, argument, rule, dtype_name(t.dtype));
  }

  constexpr Check& shape(const char* argument, const Tensor& t, std::initializer_list<Extent> extents,
                         const char* rule) {
    if (!status_.ok()) return *this;
    if (!t.given()) return that(false, argument, rule, "nothing");
    const int rank = static_cast<int>(extents.size());
    bool fits = t.rank == rank;
    for (int axis = 0; fits && axis < rank; ++axis) {
      const Extent& extent = extents.begin()[axis];
      const std::int64_t seen = t.shape[axis];
      if (extent.dim != nullptr && extent.dim->value < 0) extent.dim->value = seen;
      fits = seen >= 0 && (extent.wanted() < 0 || seen == extent.wanted());
    }
    if (fits) return *this;
    SeenText seen = fail(argument, rule);
    seen.list(t.shape, t.rank < 0 || t.rank > Tensor::kMaxRank ? 0 : t.rank);
    if (t.rank != rank) return *this;
    std::int64_t wanted[Tensor::kMaxRank] = {};
    for (int axis = 0; axis < rank; ++axis) wanted[axis] = extents.begin()[axis].wanted();
    seen.text(" where ").list(wanted, rank).text(" would fit (-1: any)");
    return *this;
  }
  constexpr Check& optional_shape(const char* argument, const Tensor& t,
                                  std::initializer_list<Extent> extents, const char* rule) {
    return t.given() ? shape(argument, t, extents, rule) : *this;
  }

  // Elements along `axis` lie next to each other. DLPack rewrites the stride of size-1 axes, so those pass.
  constexpr Check& contiguous(const char* argument, const Tensor& t, int axis, const char* rule) {
    if (!status_.ok() || !t.given() || t.shape[axis] <= 1 || t.stride[axis] == 1) return *this;
    fail(argument, rule).text("stride ").number(t.stride[axis]);
    return *this;
  }

 private:
  constexpr SeenText fail(const char* argument, const char* rule) {
    status_.code = Code::invalid_argument;
    status_.argument = argument;
    status_.rule = rule;
    return SeenText(status_);
  }

  Status status_;
};

// How an operation uses a tensor: what visit_tensors(args, f) tells f(name, tensor, access).
enum class Access { read, write, update };

}  // namespace keysieve

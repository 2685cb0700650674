// Rules that hold for every operation's tensors, whatever their role: judged from visit_tensors() alone.
#pragma once

#include <cstdint>

#include "contract/check.hpp"

namespace keysieve {

// Neither the number of elements nor the distance between two of them overflows, also where an axis is empty.
constexpr bool addressable(const Tensor& t) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  std::int64_t elements = dtype_bytes(t.dtype), reach = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    const std::int64_t extent = t.shape[axis] > 1 ? t.shape[axis] : 1;
    const std::int64_t stride = t.stride[axis] < 0 ? -(t.stride[axis] + 1) : t.stride[axis];
    if (extent >= kMost / elements) return false;
    elements *= extent;
    // An axis with one element takes no step, and DLPack lets its stride be anything.
    if (extent > 1 && stride >= (kMost / dtype_bytes(t.dtype) - reach) / extent) return false;
    if (extent > 1) reach += extent * stride;
  }
  return true;
}

// What shapes alone can show: called by plan() and run() before the operation's own rules.
template <class Args>
constexpr Status judge_tensors(const Args& args, const char* operation) {
  Check check(operation);
  bool first = true;
  Device device;
  visit_tensors(args, [&](const char* name, const Tensor& t, Access access) {
    if (!t.given()) return;
    check.that(t.rank >= 1 && t.rank <= Tensor::kMaxRank, name, "GEN-01 a tensor has 1 to 4 axes", t.rank);
    check.that(dtype_bytes(t.dtype) > 0, name, "GEN-14 a dtype is one of DType's",
               static_cast<std::int64_t>(t.dtype));
    if (!check.holds()) return;
    check.that(addressable(t), name, "GEN-13 a tensor spans less than 2^60 bytes",
               "sizes and strides of more");
    for (int axis = 0; axis < t.rank; ++axis) {
      check.that(t.shape[axis] >= 0, name, "GEN-02 sizes are not negative", t.shape[axis]);
      // Whoever writes must know who owns what. Dense empty tensors have strides of 0.
      check.that(access == Access::read || t.shape[axis] <= 1 || t.stride[axis] != 0 || t.elements() == 0,
                 name, "GEN-03 an output's elements do not share memory", "stride 0");
    }
    if (first) device = t.device;
    first = false;
    check.that(t.device == device, name, "GEN-04 all tensors live on one device",
               t.device.type == device.type ? "another device of that type" : "another type of device");
  });
  return check.status();
}

// However many rows such a call claims, it has nothing to do.
template <class Args>
constexpr bool writes_nothing(const Args& args) {
  bool nothing = true;
  visit_tensors(args, [&](const char*, const Tensor& t, Access access) {
    nothing = nothing && (access == Access::read || t.elements() == 0);
  });
  return nothing;
}

// What only run() can see: addresses.
template <class Args>
Status judge_addresses(const Args& args, const char* operation) {
  Check check(operation);
  visit_tensors(args, [&](const char* name, const Tensor& t, Access) {
    if (!t.given() || t.elements() == 0) return;
    const auto address = reinterpret_cast<std::uintptr_t>(t.data);
    check.that(address != 0, name, "GEN-05 a tensor with elements has memory", "a null pointer");
    check.that(address % static_cast<std::uintptr_t>(dtype_bytes(t.dtype)) == 0, name,
               "GEN-06 memory is aligned to its element", static_cast<std::int64_t>(address % 16));
  });
  return check.status();
}

template <class Args>
constexpr Device device_of(const Args& args) {
  Device device;
  bool found = false;
  visit_tensors(args, [&](const char*, const Tensor& t, Access) {
    if (t.given() && !found) device = t.device;
    found = found || t.given();
  });
  return device;
}

}  // namespace keysieve

// DLPack's tensors as keysieve's. ABI-17: that shape and strides have ndim entries cannot be seen here.
#include "capi/reader.hpp"

#include <cstring>

namespace keysieve::capi {
namespace {

// Codes of DLPack 1.1, which older headers do not name.
constexpr int kFloat8E4m3fn = 10;
constexpr int kFloat8E8m0fnu = 14;

DType dtype_of(DLDataType type) {
  if (type.lanes != 1) return DType::none;
  const auto is = [&](int code, int bits) { return type.code == code && type.bits == bits; };
  if (is(kDLFloat, 32)) return DType::f32;
  if (is(kDLBfloat, 16)) return DType::bf16;
  if (is(kDLInt, 32)) return DType::i32;
  if (is(kDLInt, 64)) return DType::i64;
  if (is(kDLUInt, 32)) return DType::u32;
  if (is(kDLUInt, 8) || is(kFloat8E4m3fn, 8) || is(kFloat8E8m0fnu, 8)) return DType::u8;
  return DType::none;
}

}  // namespace

Tensor Reader::tensor(const char* name, const DLTensor* given) {
  Tensor t;
  if (given == nullptr || !holds()) return t;
  const DLDataType type = given->dtype;
  t.dtype = dtype_of(type);
  if (t.dtype == DType::none) {
    const std::int64_t numbers[] = {type.code, type.bits, type.lanes};
    Status words;
    SeenText(words).text("code, bits, lanes ").list(numbers, 3);
    check_.that(
        false, name,
        "ABI-04 dtype is float32, bfloat16, int32, int64, uint8, uint32, float8_e4m3fn or float8_e8m0fnu",
        words.seen);
    return {};
  }
  // Enumerators of a header newer than ours may arrive here, and rubbish; to load such an enum is undefined
  // in C++.
  std::int32_t device;
  static_assert(sizeof(device) == sizeof(given->device.device_type));
  std::memcpy(&device, &given->device.device_type, sizeof(device));
  check_
      .that(device == kDLCPU || device == kDLCUDAHost || device == kDLCUDA, name,
            "ABI-05 device is kDLCPU, kDLCUDAHost or kDLCUDA", device)
      .that(given->ndim >= 1 && given->ndim <= Tensor::kMaxRank, name, "ABI-06 a tensor has 1 to 4 axes",
            given->ndim)
      .that(given->shape != nullptr, name, "ABI-07 a tensor has a shape", "a null pointer");
  if (!holds()) return {};
  if (device == kDLCUDA) t.device = {DeviceType::cuda, given->device.device_id};
  t.rank = given->ndim;
  std::int64_t compact = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.shape[axis] = given->shape[axis];
    t.stride[axis] = given->strides != nullptr ? given->strides[axis] : compact;
    if (given->strides == nullptr &&
        __builtin_mul_overflow(compact, std::max<std::int64_t>(1, t.shape[axis]), &compact))
      check_.that(false, name, "ABI-08 a compact tensor's elements can be counted in 63 bits", "more");
  }
  // As numbers: an offset that wraps around is found out as a wrong address, not as undefined behaviour here.
  if (given->data != nullptr)
    t.data = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(given->data) + given->byte_offset);
  return t;
}

}  // namespace keysieve::capi

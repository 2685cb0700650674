// The dtypes of the format, and what a tensor's name, shape and dtype say without its data.
#include <algorithm>
#include <array>
#include <limits>

#include "io/safetensors.hpp"

namespace keysieve::io {
namespace {

struct DTypeRow {
  const char* name;
  int bytes;
  DType tensor;
};
// In the order of FileDType.
constexpr std::array<DTypeRow, 15> kDTypes = {{{"F64", 8, DType::none},
                                               {"F32", 4, DType::f32},
                                               {"F16", 2, DType::none},
                                               {"BF16", 2, DType::bf16},
                                               {"I64", 8, DType::i64},
                                               {"I32", 4, DType::i32},
                                               {"I16", 2, DType::none},
                                               {"I8", 1, DType::none},
                                               {"U64", 8, DType::none},
                                               {"U32", 4, DType::u32},
                                               {"U16", 2, DType::none},
                                               {"U8", 1, DType::u8},
                                               {"BOOL", 1, DType::u8},
                                               {"F8_E4M3", 1, DType::u8},
                                               {"F8_E5M2", 1, DType::none}}};

}  // namespace

const char* file_dtype_name(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
int file_dtype_bytes(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bytes; }
DType tensor_dtype(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].tensor; }

std::string FileTensor::describe() const {
  std::string text = std::string(file_dtype_name(dtype)) + " [";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

bool find_file_dtype(std::string_view name, FileDType& out) {
  const auto* row =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeRow& r) { return name == r.name; });
  if (row == kDTypes.end()) return false;
  out = static_cast<FileDType>(row - kDTypes.begin());
  return true;
}

// Extents of 0 are left out of the judgement, so that no product of some of the axes overflows either.
std::int64_t shape_elements(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(extent, 1), &count)) return -1;
  }
  if (count > std::numeric_limits<std::int64_t>::max() / 8) return -1;
  return std::find(shape.begin(), shape.end(), 0) != shape.end() ? 0 : count;
}

}  // namespace keysieve::io

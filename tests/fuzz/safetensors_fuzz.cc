// The file readers over arbitrary bytes. With clang: -fsanitize=fuzzer,address,undefined. The test
// io_mutation calls the same function with seeded mutations of good files, so that every compiler runs it.
#include <cstddef>
#include <cstdint>

#include "io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  keysieve::io::SafetensorsFile file;
  const keysieve::Status status = keysieve::io::SafetensorsFile::parse(data, bytes, file);
  if (!status.ok())
    return status.code == keysieve::Code::bad_file && status.seen[0] != '\0' ? 0 : (__builtin_trap(), 0);
  // Every view must be readable to its last byte and lie where its elements may.
  volatile std::uint8_t sink = 0;
  for (const keysieve::io::FileTensor& tensor : file.tensors()) {
    if (tensor.bytes > static_cast<std::int64_t>(bytes) || file.find(tensor.name) != &tensor)
      __builtin_trap();
    if (reinterpret_cast<std::uintptr_t>(tensor.data) % keysieve::io::file_dtype_bytes(tensor.dtype))
      __builtin_trap();
    std::int64_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= extent;
    if (count != tensor.elements()) __builtin_trap();
    for (std::int64_t i = 0; i < tensor.bytes; ++i) sink = sink ^ static_cast<std::uint8_t>(tensor.data[i]);
  }
  return 0;
}

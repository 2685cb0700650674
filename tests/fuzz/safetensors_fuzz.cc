// The file readers over arbitrary bytes: libFuzzer drives it (tools/fuzz.sh), and tests/io calls the same
// function with seeded mutations of good files, so that every compiler runs it.
#include <cstddef>
#include <cstdint>

#include "io/safetensors.hpp"
#include "io/step_file.hpp"

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
  // The same bytes as a step: views inside the file, borders inside the views.
  keysieve::io::StepFile steps;
  if (!keysieve::io::StepFile::parse(data, bytes, steps).ok()) return 0;
  for (const keysieve::io::Step& step : steps.steps()) {
    for (std::int64_t row = 0; row < step.rows && step.has_bounds(); ++row) {
      if (step.visible(row) < 0 || step.first_column[static_cast<std::size_t>(row)] < 0) __builtin_trap();
      if (step.has_index && step.end_column[static_cast<std::size_t>(row)] > step.width) __builtin_trap();
      if (!step.has_attention) continue;
      const std::int64_t request = step.row_request[static_cast<std::size_t>(row)];
      for (const std::int64_t position : {std::int64_t{0}, step.visible(row) - 1, step.visible(row)}) {
        if (step.latent.slot(request, position) >= step.latent.slots()) __builtin_trap();
      }
    }
  }
  return 0;
}

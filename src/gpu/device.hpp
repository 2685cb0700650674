// device: what the host side of every device kernel shares: facts about the machine, the current device, and
// errors as Status.
#pragma once

#include "gpu/vendor.hpp"
#include "keysieve/status.hpp"
#include "registry/kernel.hpp"

namespace keysieve::gpu {

struct DeviceFacts {
  int processors = 0;
  int architecture = 0;          // 90 for compute capability 9.0
  std::size_t shared_bytes = 0;  // most that one thread block may have
};

// Why no kernel can run on this device, or nullptr. Asks the driver once per process.
[[nodiscard]] const char* device_refusal(Device device);

// Call only where device_refusal() returned nullptr.
[[nodiscard]] const DeviceFacts& device_facts(Device device);

[[nodiscard]] Status device_error(const char* operation, Error error);

// Makes the tensors' device current, and the previous one again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  [[nodiscard]] Error error() const { return error_; }

 private:
  int previous_ = -1;
  Error error_ = kSuccess;
};

struct Grid {
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;
  std::size_t shared_bytes = 0;
  bool chained = false;
  bool room_for_next = false;  // keep shared memory free for the chained kernel that follows
};

#if defined(__CUDACC__) || defined(__HIPCC__)
// Enqueues one kernel on the call's stream; an empty grid is no launch.
template <class... Parameters, class... Arguments>
Status launch_kernel(const char* operation, const Launch& launch, const Grid& grid,
                     void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (grid.blocks == 0) return {};
  const CurrentDevice current(launch.device);
  if (current.error() != kSuccess) return device_error(operation, current.error());
  const Error error =
      enqueue(kernel, grid.blocks, grid.threads, grid.shared_bytes, device_facts(launch.device).shared_bytes,
              grid.chained, grid.room_for_next, static_cast<StreamHandle>(launch.stream), arguments...);
  return error == kSuccess ? Status{} : device_error(operation, error);
}
#endif

}  // namespace keysieve::gpu

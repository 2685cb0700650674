// device: the memory and the clock of the device behind `--backend cuda`. Programs that were built without one
// have none.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "keysieve/status.hpp"

namespace keysieve::cli {

class StageDevice {
 public:
  virtual ~StageDevice() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  // Bytes read plus bytes written per second by a large copy.
  [[nodiscard]] virtual double copy_bandwidth() = 0;
  // Memory that stays until release(); null where there is not enough.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release() = 0;
  [[nodiscard]] virtual Status upload(void* to, const void* from, std::size_t bytes) = 0;
  [[nodiscard]] virtual Status download(void* to, const void* from, std::size_t bytes) = 0;
  // Captures what `enqueue` puts on the stream and replays it `repeats` times after a first time; the best.
  [[nodiscard]] virtual Status time(const std::function<Status(void* stream)>& enqueue, int repeats,
                                    double& seconds) = 0;
};

// Null where `backend` works on the host. Without a device: null too, and `refusal` says why.
[[nodiscard]] std::unique_ptr<StageDevice> open_device(const std::string& backend, std::string& refusal);

}  // namespace keysieve::cli

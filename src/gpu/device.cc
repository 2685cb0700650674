#include "gpu/device.hpp"

#include <cstring>

#include "contract/check.hpp"

namespace keysieve::gpu {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kOldestArchitecture = 80;

struct Machine {
  int devices = 0;
  Error error = kSuccess;
  DeviceFacts facts[kMaxDevices];

  Machine() {
    error = device_count(&devices);
    if (error != kSuccess) {
      (void)take_last_error();
      devices = 0;
    }
    if (devices > kMaxDevices) devices = kMaxDevices;
    for (int i = 0; i < devices; ++i) {
      facts[i].processors = device_attribute(Attribute::processors, i);
      facts[i].architecture =
          10 * device_attribute(Attribute::major, i) + device_attribute(Attribute::minor, i);
      facts[i].shared_bytes = static_cast<std::size_t>(device_attribute(Attribute::shared_bytes, i));
    }
  }
};

const Machine& machine() {
  static const Machine m;
  return m;
}

}  // namespace

const char* device_refusal(Device device) {
  const Machine& m = machine();
  if (m.error != kSuccess) return "no usable device: the driver is missing, too old or sees none";
  if (m.devices == 0) return "no device on this machine";
  if (device.index < 0 || device.index >= m.devices) return "no device of this index on this machine";
  if (m.facts[device.index].architecture < kOldestArchitecture)
    return "the device is older than compute capability 8.0";
  return nullptr;
}

const DeviceFacts& device_facts(Device device) {
  const Machine& m = machine();
  static const DeviceFacts kNone{1, kOldestArchitecture, std::size_t{48} * 1024};
  return device.index >= 0 && device.index < m.devices ? m.facts[device.index] : kNone;
}

Status device_error(const char* operation, Error error) {
  (void)take_last_error();
  Status status;
  status.code = Code::device_error;
  status.operation = operation;
  SeenText(status).text(error_text(error));
  return status;
}

CurrentDevice::CurrentDevice(Device device) {
  int current = -1;
  error_ = current_device(&current);
  if (error_ != kSuccess || current == device.index) return;
  error_ = set_device(device.index);
  if (error_ == kSuccess) previous_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (previous_ >= 0) (void)set_device(previous_);
}

}  // namespace keysieve::gpu

// address_space: gigabytes of zeros that cost memory only where they are touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace keysieve::test {

class AddressSpace {
 public:
  explicit AddressSpace(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) data_ = nullptr;
  }
  ~AddressSpace() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace keysieve::test

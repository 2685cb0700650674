// denormals: engines often run their threads with subnormals flushed to zero. Comparisons must still see
// them.
#pragma once

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif
#include <cstdint>

namespace keysieve::cpu {

// While it lives, this thread neither flushes subnormal results nor reads subnormals as zero.
class KeepDenormals {
 public:
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;
#if defined(__x86_64__) || defined(__i386__)
  KeepDenormals() : saved_(_mm_getcsr()) {
    if ((saved_ & kFlush) != 0) _mm_setcsr(saved_ & ~kFlush);
  }
  ~KeepDenormals() {
    if ((saved_ & kFlush) != 0) _mm_setcsr(saved_);
  }

 private:
  static constexpr std::uint32_t kFlush = 0x8040;  // FTZ and DAZ
  std::uint32_t saved_;
#elif defined(__aarch64__)
  KeepDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    if ((saved_ & kFlush) != 0) asm volatile("msr fpcr, %0" : : "r"(saved_ & ~kFlush));
  }
  ~KeepDenormals() {
    if ((saved_ & kFlush) != 0) asm volatile("msr fpcr, %0" : : "r"(saved_));
  }

 private:
  static constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;  // FZ
  std::uint64_t saved_ = 0;
#else
  KeepDenormals() = default;
#endif
};

}  // namespace keysieve::cpu

#include "support/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KEYSIEVE_COUNTS_ALLOCATIONS 1
#else
#define KEYSIEVE_COUNTS_ALLOCATIONS 0
#endif

namespace keysieve::test {
namespace {

thread_local bool watching = false;
std::atomic<std::int64_t> seen{0};

[[maybe_unused]] void note() {
  if (watching) ++seen;
}

}  // namespace

const bool kAllocationsCount = KEYSIEVE_COUNTS_ALLOCATIONS != 0;
std::int64_t allocations() { return seen; }
WatchAllocations::WatchAllocations(bool on) : before_(std::exchange(watching, on)) {}
WatchAllocations::~WatchAllocations() { watching = before_; }

}  // namespace keysieve::test

#if KEYSIEVE_COUNTS_ALLOCATIONS
// glibc's own names for what it replaces; free() needs no change.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  keysieve::test::note();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  keysieve::test::note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  keysieve::test::note();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  keysieve::test::note();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* got = memalign(alignment, bytes);
  if (got == nullptr) return ENOMEM;
  *memory = got;
  return 0;
}
}
#endif

// library: the functions of keysieve.h that belong to no operation.
#include <memory>
#include <new>

#include "capi/call.hpp"
#include "keysieve/packed_mask.hpp"
#include "registry/backend.hpp"

struct keysieve_thread_pool {
  explicit keysieve_thread_pool(int threads) : pool(threads) {
    const keysieve::Executor inner = pool.executor();
    executor = {sizeof executor, inner.self, inner.for_each, inner.concurrency, 0};
  }
  keysieve::ThreadPool pool;
  keysieve_executor executor;
};

namespace keysieve::capi {
namespace {

const Backend* find_backend(const char* name) {
  for (const Backend* backend : enabled_backends())
    if (name != nullptr && std::strcmp(backend->name, name) == 0) return backend;
  return nullptr;
}

// Calls visit(name) for every kernel of a backend, in pipeline order.
template <class Visit>
void for_each_kernel(const char* backend_name, Visit&& visit) {
  const Backend* backend = find_backend(backend_name);
  if (backend == nullptr) return;
  const auto visit_table = [&](const auto& table) {
    for (const auto& kernel : table) visit(kernel.name);
  };
  std::apply([&](const auto&... tables) { (visit_table(tables), ...); }, backend->kernels);
}

}  // namespace
}  // namespace keysieve::capi

using keysieve::capi::for_each_kernel;

extern "C" {

const char* keysieve_code_sentence(int code) { return keysieve::sentence(static_cast<keysieve::Code>(code)); }

const char* keysieve_version(void) { return keysieve::version(); }

size_t keysieve_backend_count(void) { return keysieve::enabled_backends().size(); }

const char* keysieve_backend_name(size_t index) {
  const auto backends = keysieve::enabled_backends();
  return index < backends.size() ? backends[index]->name : nullptr;
}

size_t keysieve_kernel_count(const char* backend) {
  std::size_t count = 0;
  for_each_kernel(backend, [&](const char*) { ++count; });
  return count;
}

const char* keysieve_kernel_name(const char* backend, size_t index) {
  const char* found = nullptr;
  for_each_kernel(backend, [&](const char* name) {
    if (index-- == 0) found = name;
  });
  return found;
}

keysieve_thread_pool* keysieve_thread_pool_create(int threads) {
  try {
    return new keysieve_thread_pool(threads);
  } catch (...) {
    return nullptr;
  }
}

const keysieve_executor* keysieve_thread_pool_executor(const keysieve_thread_pool* pool) {
  return pool == nullptr ? nullptr : &pool->executor;
}

void keysieve_thread_pool_destroy(keysieve_thread_pool* pool) { delete pool; }

void keysieve_packed_mask_shape(int64_t requests, int64_t max_queries, int64_t max_keys, int64_t row_multiple,
                                int32_t reserve_word, int64_t shape[3]) {
  const keysieve::PackedMaskShape s =
      keysieve::packed_mask_shape(requests, max_queries, max_keys, {row_multiple, reserve_word != 0});
  shape[0] = s.requests;
  shape[1] = s.rows;
  shape[2] = s.words;
}

}  // extern "C"

/* Opens libkeysieve_cuda at run time, as an engine with an optional CUDA path does: it loads where there is
 * no driver, lists its backends, and refuses a device that is not there in words. cuda_dlopen LIBRARY */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <keysieve/keysieve.h>
#include <stdio.h>
#include <string.h>

static void* library;

/* POSIX makes pointers to data and to functions the same size; C has no cast between them. */
static void find(const char* name, void* function) {
  void* symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
}

int main(int argc, char** argv) {
  library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "which library?");
    return 1;
  }
  size_t (*backend_count)(void);
  const char* (*backend_name)(size_t);
  int (*supports)(const keysieve_candidate_mask_args*, const keysieve_options*, keysieve_error*);
  find("keysieve_backend_count", &backend_count);
  find("keysieve_backend_name", &backend_name);
  find("keysieve_candidate_mask_supports", &supports);
  if (backend_count == NULL || backend_name == NULL || supports == NULL) return 2;
  int cuda = 0;
  for (size_t i = 0; i < backend_count(); ++i) cuda |= strcmp(backend_name(i), "cuda") == 0;
  if (!cuda) return 3;

  int64_t matrix[2] = {4, 1024}, vector[1] = {4}, list[2] = {4, 16};
  const DLDevice device = {kDLCUDA, 1000};
  DLTensor scores = {NULL, device, 2, {kDLFloat, 32, 1}, matrix, NULL, 0};
  DLTensor ends = {NULL, device, 1, {kDLInt, 32, 1}, vector, NULL, 0};
  DLTensor candidates = {NULL, device, 2, {kDLInt, 32, 1}, list, NULL, 0};
  keysieve_bounds bounds = {.struct_size = sizeof bounds, .end = &ends};
  keysieve_candidate_mask_args args = {
      .struct_size = sizeof args, .scores = &scores, .bounds = &bounds, .candidates = &candidates};
  keysieve_error error = {.struct_size = sizeof error};
  if (supports(&args, NULL, &error)) return 4;
  puts(error.text);
  if (error.code != KEYSIEVE_UNSUPPORTED || strstr(error.text, "cuda.candidate_mask") == NULL) return 5;
  return dlclose(library);
}

# Looks for nvcc 13 and enables CUDA; sets KEYSIEVE_CUDA_FOUND. Without it the build says so and goes on.
set(KEYSIEVE_CUDA_ARCHITECTURES "90a;80" CACHE STRING "CUDA architectures, as in the preset `release-cuda`")
set(KEYSIEVE_CUDA_FOUND OFF)
set(KEYSIEVE_OLDEST_CUDA 13.0)

find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND OR CUDAToolkit_VERSION VERSION_LESS KEYSIEVE_OLDEST_CUDA)
  message(STATUS "libkeysieve_cuda is not built: nvcc ${KEYSIEVE_OLDEST_CUDA} or newer was not found")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
set(CMAKE_CUDA_ARCHITECTURES ${KEYSIEVE_CUDA_ARCHITECTURES})
enable_language(CUDA)
if(KEYSIEVE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${KEYSIEVE_CCACHE})
endif()
set(KEYSIEVE_CUDA_FOUND ON)
message(STATUS "libkeysieve_cuda is built for ${KEYSIEVE_CUDA_ARCHITECTURES} with nvcc ${CUDAToolkit_VERSION}")

# CMake 3.25 does not know nvcc 13's flag for C++20 and would leave it out.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)

# What every .cu file of the library is compiled with. A kernel that spills registers is an error: hot loops must not go through memory.
# -fmad=false for the same reason as -ffp-contract=off: kernels ask for fused multiply-add by name.
set(KEYSIEVE_NVCC_OPTIONS -fmad=false -lineinfo -Xcompiler=-Wall,-Wextra,-fvisibility=hidden
  -Xptxas=--warn-on-spills,--warning-as-error)

# keysieve_library(NAME BACKENDS Cpu Reference ... SOURCES ... [DEFINITIONS ...] [EXTENDS LIBRARY])
# makes NAME (shared) and NAME_static from one set of objects, with the list of its backends. EXTENDS adds another
# library's objects, all but its list. .cu sources bring the CUDA runtime, linked statically, so that the library
# loads where there is no driver.
function(keysieve_library name)
  cmake_parse_arguments(ARG "" "EXTENDS" "BACKENDS;SOURCES;DEFINITIONS" ${ARGN})
  set(declarations "")
  set(addresses "")
  foreach(backend IN LISTS ARG_BACKENDS)
    string(APPEND declarations "extern const Backend k${backend}Backend;\n")
    string(APPEND addresses "&k${backend}Backend, ")
  endforeach()
  set(KEYSIEVE_BACKEND_DECLARATIONS "${declarations}")
  set(KEYSIEVE_BACKEND_ADDRESSES "${addresses}")
  set(list_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_enabled_backends.cc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/enabled_backends.cc.in ${list_file} @ONLY)

  set(private_libraries PkgConfig::HWY TBB::tbb Threads::Threads)
  set(objects $<TARGET_OBJECTS:${name}_objects>)
  set(uses_cuda OFF)
  if("${ARG_SOURCES}" MATCHES "\\.cu(;|$)")
    set(uses_cuda ON)
    list(APPEND private_libraries CUDA::cudart_static)
  endif()
  if(ARG_EXTENDS)
    list(APPEND objects $<TARGET_OBJECTS:${ARG_EXTENDS}_objects>)
  endif()

  add_library(${name}_objects OBJECT ${ARG_SOURCES})
  add_library(${name}_list OBJECT ${list_file})
  foreach(part IN ITEMS ${name}_objects ${name}_list)
    target_include_directories(${part} PRIVATE ${PROJECT_SOURCE_DIR}/src PUBLIC ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(${part} PRIVATE KEYSIEVE_VERSION="${PROJECT_VERSION}" ${ARG_DEFINITIONS}
      # Three targets are built on x86: portable code as the baseline, AVX2 and AVX-512. On ARM it is NEON: SVE's vectors
      # have no size, so that no struct or array can hold them, as the kernels' accumulators do.
      "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
    target_compile_options(${part} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wno-psabi;-ffp-contract=off>"
      "$<$<COMPILE_LANGUAGE:CUDA>:${KEYSIEVE_NVCC_OPTIONS}>")
    target_link_libraries(${part} PUBLIC ${private_libraries})
  endforeach()

  foreach(kind IN ITEMS SHARED STATIC)
    set(library ${name})
    if(kind STREQUAL STATIC)
      set(library ${name}_static)
    endif()
    add_library(${library} ${kind} ${objects} $<TARGET_OBJECTS:${name}_list>)
    target_include_directories(${library} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(${library} PUBLIC cxx_std_20)
    target_link_libraries(${library} PRIVATE ${private_libraries})
    set_target_properties(${library} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE CXX)
  endforeach()
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  if(uses_cuda)
    target_link_options(${name} PRIVATE -Wl,--exclude-libs,libcudart_static.a)
  endif()
endfunction()

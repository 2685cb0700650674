# What `cmake --install` lays down: headers, libkeysieve (shared and static), libkeysieve_cuda where it is built, a CMake
# package and pkg-config files.
include(CMakePackageConfigHelpers)

set(KEYSIEVE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/keysieve)
install(DIRECTORY include/keysieve DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

# keysieve_install(NAME "one line"): NAME and NAME_static, each in an export set of its own, since only the static
# library needs others at its user's link.
function(keysieve_install name description)
  # Inline functions and templates of the standard library would be exported otherwise.
  target_link_options(${name} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  foreach(library IN ITEMS ${name} ${name}_static)
    install(TARGETS ${library} EXPORT ${library}_targets)
    install(EXPORT ${library}_targets NAMESPACE keysieve:: DESTINATION ${KEYSIEVE_CMAKE_DIR})
  endforeach()
  # Relative, so that the tree may be moved or installed with another prefix.
  file(RELATIVE_PATH PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  set(PC_NAME ${name})
  set(PC_DESCRIPTION ${description})
  configure_file(cmake/keysieve.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

keysieve_install(keysieve "DeepSeek sparse attention: selection, masks and attention over selected keys")
if(TARGET keysieve_cuda)
  keysieve_install(keysieve_cuda "keysieve with CUDA kernels")
endif()

configure_package_config_file(cmake/keysieveConfig.cmake.in keysieveConfig.cmake INSTALL_DESTINATION ${KEYSIEVE_CMAKE_DIR})
# Until 1.0 every minor version may change the interface.
write_basic_package_version_file(keysieveConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/keysieveConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/keysieveConfigVersion.cmake
  DESTINATION ${KEYSIEVE_CMAKE_DIR})

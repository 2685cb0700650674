# Toolchain file for building on Debian for 64-bit ARM; docs/hacking.md has the commands.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# CTest runs the tests through the emulator.
find_program(KEYSIEVE_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(KEYSIEVE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${KEYSIEVE_QEMU})
endif()

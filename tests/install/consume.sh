#!/bin/sh
# consume KIND SOURCE PREFIX WORK: builds and runs an example against the installed tree alone.
set -eu
kind=$1 source=$2 prefix=$3 work=$4
libdir=$(dirname "$(find "$prefix" -name pkgconfig -type d)")
rm -rf "$work"
mkdir -p "$work"
cp "$source/examples/$kind"/* "$work"
cd "$work"
case $kind in
  c)
    export PKG_CONFIG_PATH="$libdir/pkgconfig"
    make
    LD_LIBRARY_PATH="$libdir" ./engine
    ;;
  cpp)
    cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
    cmake --build build
    build/decode_step
    build/decode_step_static
    ;;
esac
# Nothing but the C ABI and the C++ interface leaves the shared libraries.
for library in "$libdir"/libkeysieve*.so; do
  strangers=$(nm -DC --defined-only "$library" | awk '{ $1 = $2 = ""; print }' | grep -Ev '^ +(keysieve_|.*keysieve::)' || true)
  [ -z "$strangers" ] || { echo "$library exports: $strangers"; exit 1; }
done

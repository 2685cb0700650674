#!/bin/sh
# What building, running and testing keysieve needs on Debian 12. Does nothing where it is installed.
set -eu
. "$(dirname "$0")/debian_packages.sh"
debian_packages g++ cmake ninja-build pkg-config libhwy-dev libtbb-dev nlohmann-json3-dev libcli11-dev libdlpack-dev \
  libgtest-dev libbenchmark-dev make python3

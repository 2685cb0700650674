#!/bin/sh
# Builds everything and runs every test. KEYSIEVE_TEST_DATA may name a folder with larger learned data.
set -eu
cd "$(dirname "$0")/.."
tools/install_dependencies.sh
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DKEYSIEVE_CUDA="${KEYSIEVE_CUDA:-ON}"
cmake --build build
cmake --build build --target mutant_parity_tests
ctest --test-dir build --output-on-failure

#!/bin/sh
# sanitize address|thread [CTEST OPTIONS]: builds with the sanitizers and runs what they are good for: every quick test
# under the address and undefined behaviour sanitizers, those that run on several threads under ThreadSanitizer.
# Sanitized code needs little optimisation, no benches, no CUDA and no mutants.
set -eu
cd "$(dirname "$0")/.."
case "${1-}" in
  address) sanitizers=address,undefined targets=all tests=. ;;
  thread) sanitizers=thread targets="capi_tests parity_tests" tests='^(threads|parity)$' ;;
  *) sed -n '2p' "$0" >&2; exit 2 ;;
esac
build=build-$1
shift
tools/install_dependencies.sh
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1" -DKEYSIEVE_SANITIZE="$sanitizers" \
  -DKEYSIEVE_BENCH=OFF -DKEYSIEVE_CUDA=OFF >/dev/null
cmake --build "$build" --target $targets
ctest --test-dir "$build" --output-on-failure -j 2 -LE 'slow|gpu' -R "$tests" "$@"

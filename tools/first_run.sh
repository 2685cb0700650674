#!/bin/sh
# From a fresh checkout to a result: installs what is missing, builds the program, runs it on a step of a real model.
set -eu
cd "$(dirname "$0")/.."
tools/install_dependencies.sh
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DKEYSIEVE_CUDA=OFF >build.log 2>&1 || { cat build.log; exit 1; }
echo "building (a few minutes on two cores)"
cmake --build build --target keysieve_cli >>build.log 2>&1 || { tail -50 build.log; exit 1; }
rm -f build.log
step=samples/prefill.safetensors
echo "build/keysieve run $step --compare-dense"
build/cli/keysieve run "$step" --compare-dense

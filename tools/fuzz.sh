#!/bin/sh
# fuzz SECONDS: each fuzz target for so long, with clang, libFuzzer and the address and undefined behaviour sanitizers.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
. tools/debian_packages.sh
debian_packages clang-14 libclang-rt-14-dev
tools/install_dependencies.sh
cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1" -DCMAKE_CXX_COMPILER=clang++-14 \
  -DCMAKE_C_COMPILER=clang-14 -DKEYSIEVE_FUZZ=ON -DKEYSIEVE_BENCH=OFF -DKEYSIEVE_CUDA=OFF >/dev/null
targets="contract_fuzz capi_fuzz safetensors_fuzz"
cmake --build build-fuzz --target $targets
for target in $targets; do
  mkdir -p "build-fuzz/corpus/$target"
  log=build-fuzz/$target.log
  # The corpus stays between runs; a finding is written to build-fuzz and repeated by naming its file.
  "$(find build-fuzz/tests -type f -name "$target")" -max_total_time="$seconds" -rss_limit_mb=2048 -max_len=400 \
    -artifact_prefix=build-fuzz/ "build-fuzz/corpus/$target" >"$log" 2>&1 || { tail -n 100 "$log"; exit 1; }
  echo "$target: $(tail -n 1 "$log")"
done

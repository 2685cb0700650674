#!/bin/sh
# fuzz SECONDS: each fuzz target for so long, with clang, libFuzzer and the address and undefined behaviour sanitizers.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 \
  -DKEYSIEVE_FUZZ=ON -DKEYSIEVE_BENCH=OFF -DKEYSIEVE_CUDA=OFF >/dev/null
targets="contract_fuzz capi_fuzz safetensors_fuzz"
cmake --build build-fuzz --target $targets | tail -1
for target in $targets; do
  echo "$target, $seconds s"
  mkdir -p "build-fuzz/corpus/$target"
  # The corpus stays between runs; a finding is written to build-fuzz and repeated by naming its file.
  "$(find build-fuzz/tests -type f -name "$target")" -max_total_time="$seconds" -rss_limit_mb=2048 -max_len=400 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix=build-fuzz/ "build-fuzz/corpus/$target"
done

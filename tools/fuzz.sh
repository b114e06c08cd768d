#!/bin/bash
# Builds the libFuzzer targets in build-fuzz and runs each for SECONDS (default 10), seeded with the
# goldens. One line a target; exits 1 when one finds a crash and says where its input lies.
# usage: tools/fuzz.sh [SECONDS] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
shift $(($# > 0))
build=${MOTLEY_FUZZ_BUILD:-build-fuzz}

cmake -S . -B "$build" -G Ninja -DMOTLEY_FUZZ=ON -DMOTLEY_WORKER=OFF \
  -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=Fuzz -DCMAKE_CXX_FLAGS_FUZZ=-O1 -DMOTLEY_CCACHE=ON > "$build.log" 2>&1 || { cat "$build.log"; exit 1; }
mv -f "$build.log" "$build/configure.log"
if (($# == 0)); then
  for source in tests/fuzz/fuzz_*.cc; do
    name=${source##*/fuzz_}
    set -- "$@" "${name%.cc}"
  done
fi
cmake --build "$build" --target "${@/#/fuzz_}" > "$build/build.log" 2>&1 || { tail -40 "$build/build.log"; exit 1; }

run_one() {
  local build=$1 seconds=$2 name=$3
  local corpus=$build/corpus/$name log=$build/fuzz_$name.log seeds=() folder
  mkdir -p "$corpus"
  for folder in "tests/golden/$name" "tests/fuzz/seeds/$name"; do
    if [ -d "$folder" ]; then seeds+=("$folder"); fi
  done
  if "$build/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=100000 \
      -artifact_prefix="$build/crash-$name-" "$corpus" "${seeds[@]}" > "$log" 2>&1; then
    echo "fuzz $name: $(grep -oE '^Done [0-9]+ runs in [0-9]+ second' "$log" || echo done)(s), no crash"
  else
    echo "fuzz $name: FAILED, $(grep -m1 -oE 'ERROR: .*|SUMMARY: .*|check failed: .*' "$log")"
    echo "  input: $(ls -t "$build/crash-$name-"* | head -1)  log: $log"
    return 1
  fi
}
export -f run_one
printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -I{} bash -c 'run_one "$0" "$1" "$2"' "$build" "$seconds" {}

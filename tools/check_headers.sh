#!/usr/bin/env bash
# Every header that needs no PyTorch compiles alone. Those of tests know the source folder.
set -euo pipefail
cd "$(dirname "$0")/.."
check() { printf '#include "%s"\n' "$1" | g++ -std=c++20 -fsyntax-only -Wall -Wextra -Wno-missing-field-initializers -DMOTLEY_SOURCE_DIR='""' -I. -x c++ - || { echo "headers: $1 does not compile alone"; return 1; }; }
export -f check
git ls-files 'motley/*.h' 'peers/*.h' | grep -v '^motley/run/torch/' | xargs grep -L '"motley/run/torch/' | xargs -P "$(nproc)" -I{} bash -c 'check {}'
echo "headers: ok"

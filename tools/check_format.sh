#!/usr/bin/env bash
# Every C++ file is as clang-format 14 writes it. Prints the files that are not.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t bad < <(git ls-files '*.h' '*.cc' | xargs -P "$(nproc)" -n 40 clang-format-14 --dry-run -Werror 2>&1 |
  sed -nE 's/^([^: ]+):[0-9]+:.*/\1/p' | sort -u)
if ((${#bad[@]})); then
  printf 'format: %s\n' "${bad[@]}"
  echo "format: ${#bad[@]} files differ; run make format"
  exit 1
fi
echo "format: ok"

#!/usr/bin/env bash
# Every C++ file is as clang-format 14 writes it. Prints the files that are not.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=()
while read -r file; do
  clang-format-14 --dry-run -Werror "$file" >/dev/null 2>&1 || bad+=("$file")
done < <(git ls-files '*.h' '*.cc')
if ((${#bad[@]})); then
  printf 'format: %s\n' "${bad[@]}"
  echo "format: ${#bad[@]} files differ; run make format"
  exit 1
fi
echo "format: ok"

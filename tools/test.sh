#!/usr/bin/env bash
# The parts of `make test`, one after the other: what each took, how long the rest will take, and in the end a table.
# A part that fails does not keep the others from running; the exit status says whether all passed.
#   tools/test.sh [PART...]    some parts alone: exporter lowering units runs timed zoo
# Reads BUILD, JOBS, PYTHON. MOTLEY_SAMPLE: which third of the long sweeps (of this commit, by default).
set -uo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
JOBS=${JOBS:-$(nproc)}
PYTHON=${PYTHON:-.venv/bin/python}
export MOTLEY_BUILD=$PWD/$BUILD PYTHONPATH=$PWD/python OMP_NUM_THREADS=1
export MOTLEY_SAMPLE=${MOTLEY_SAMPLE:-$((16#0$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % 3))}

# Seconds on two cores (tests/README.md), of which the forecast is made: what has been run says how much slower or
# faster this machine is. A part of a minute comes first.
declare -A seconds=([exporter]=40 [lowering]=70 [units]=175 [runs]=380 [timed]=210 [zoo]=90)
parts=(exporter lowering units runs timed zoo)
if (($# > 0)); then parts=("$@"); fi

# Emulated devices sleep for most of a step, so one more process than cores keeps these busy.
tests() { "$PYTHON" -m pytest -q "$@"; }
computing=(tests/test_lowering.py tests/test_rules.py tests/test_program_interpreter.py)
run_part() {
  case $1 in
    units) ctest --test-dir "$BUILD" --output-on-failure -j "$JOBS" ;;
    exporter) tests -n "$JOBS" python/tests ;;
    lowering) tests -n "$JOBS" "${computing[@]}" ;;
    runs) tests -n "$((JOBS + 1))" --dist loadfile -m "not timed" tests "${computing[@]/#/--ignore=}" --ignore=tests/zoo --ignore=tests/gpu --ignore=tests/hosts ;;
    timed)
      tests -m timed tests --ignore=tests/zoo --ignore=tests/gpu --ignore=tests/hosts
      local code=$?
      tests tests/hosts && return "$code" ;;
    zoo) tools/setup.sh zoo && .venv-zoo/bin/python -m pytest -q -n "$JOBS" --dist loadfile tests/zoo ;;
    *) echo "test: no part '$1'; there are: ${!seconds[*]}" >&2; exit 2 ;;
  esac
}

minutes() { echo "$((($1 + 59) / 60)) min"; }
expected() { local sum=0 each; for each in "$@"; do sum=$((sum + ${seconds[$each]:-0})); done; echo "$sum"; }
rows=() failed=0 began=$SECONDS
echo "test: ${parts[*]}; about $(minutes "$(expected "${parts[@]}")") on two cores; MOTLEY_SAMPLE=$MOTLEY_SAMPLE"
for part in "${parts[@]}"; do
  start=$SECONDS
  if run_part "$part"; then result=passed; else result=FAILED failed=1; fi
  took=$((SECONDS - start)) all=$((SECONDS - began))
  rows+=("$(printf '  %-10s %6d s  %s' "$part" "$took" "$result")")
  done=$(expected "${parts[@]:0:${#rows[@]}}") left=$(expected "${parts[@]:${#rows[@]}}")
  echo "test: $part $result, $took s$( ((left > 0)) && echo "; about $(minutes $((left * all / done))) to go")"
done
printf '%s\n' "test: what each part took" "${rows[@]}" "$(printf '  %-10s %6d s' all $((SECONDS - began)))"
exit "$failed"

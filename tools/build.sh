#!/usr/bin/env bash
# Sets up what is missing and builds targets of CMake, saying what it does: steps and how far they
# are. What the compiler says goes to BUILD/build.log, and here when it fails. Does nothing, and says
# nothing, when nothing is to do.
#   tools/build.sh TARGET...        product (motley, motley-worker, libmotley_cuda.so), tests, bench_NAME
# Reads TORCH_VERSION, VENV, MOTLEY_PYTHON, BUILD, JOBS, CONFIGURE (further -D flags).
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
JOBS=${JOBS:-$(nproc)}
VENV=${VENV:-.venv}
python=${MOTLEY_PYTHON:-$PWD/$VENV/bin/python}
steps=4

step() { printf '[%s/%s] %s\n' "$1" "$steps" "$2"; }

configure() {  # FLAGS...: runs CMake unless it ran with the same flags
  local wanted
  wanted=$(printf '%s\n' "$python" "${CONFIGURE:-}" "$@"; ls -d "$VENV"/.motley-* 2>/dev/null || true)
  if [ -f "$BUILD/build.ninja" ] && [ "$wanted" = "$(cat "$BUILD/configured" 2>/dev/null)" ]; then return; fi
  mkdir -p "$BUILD"
  rm -f "$BUILD/configured"
  # shellcheck disable=SC2086
  cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMOTLEY_UNITY=ON -DMOTLEY_CCACHE=ON -DPython3_EXECUTABLE="$python" "$@" ${CONFIGURE:-} \
    > "$BUILD/configure.log" 2>&1 || { cat "$BUILD/configure.log" >&2; exit 1; }
  grep -h 'left out' "$BUILD/configure.log" | sed 's/^-- /      /' || true
  printf '%s\n' "$wanted" > "$BUILD/configured"
}

# Ninja's lines to the log; here TITLE once there is work, and a line each fifth of the way, or one
# that counts on a terminal.
progress() {  # TITLE
  local line began="" counts='^\[([0-9]+)/([0-9]+) ([0-9]+)'
  while IFS= read -r line; do
    printf '%s\n' "$line" >&3
    if [[ $line = *Re-checking* || $line = *Re-running* || ! $line =~ $counts ]]; then continue; fi
    local done=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]} seconds=${BASH_REMATCH[3]}
    if [ -z "$began" ]; then printf '%s\n' "$1"; began=yes; fi
    if [ -t 1 ]; then
      printf '\r      %s of %s, %s s ' "$done" "$all" "$seconds"
    elif ((done < all && 5 * done / all > 5 * (done - 1) / all)); then
      printf '      %s of %s, %s s\n' "$done" "$all" "$seconds"
    fi
  done 3> "$BUILD/build.log"
  if [ -n "$began" ] && [ -t 1 ]; then echo; fi
}

compile() {  # STEP WHAT TARGETS...
  local title
  title=$(step "$1" "$2")
  shift 2
  NINJA_STATUS='[%f/%t %e] ' ninja -C "$BUILD" -j "$JOBS" "$@" 2>&1 | progress "$title" || {
    sed -n '/^FAILED/,$p' "$BUILD/build.log" | head -60 >&2
    echo "build: failed; all of it is in $BUILD/build.log" >&2
    exit 1
  }
  local warnings
  warnings=$(grep -c 'warning:' "$BUILD/build.log" || true)
  if [ "$warnings" != 0 ]; then echo "      $warnings warnings, in $BUILD/build.log"; fi
}

lists=(tools/packages.txt tools/packages_test.txt)
case "$*" in product | "motley motley-worker") lists=(tools/packages.txt) ;; esac
missing=$(tools/setup.sh packages --check "${lists[@]}")
if [ -n "$missing" ]; then
  step 1 "Debian packages: $(wc -w <<< "$missing") are missing: $missing"
  tools/setup.sh packages "${lists[@]}"
fi
tests=ON
if [ -n "$(tools/setup.sh packages --check tools/packages_test.txt)" ]; then tests=OFF; fi

environment=$(tools/setup.sh python --check)
if [ -n "$environment" ]; then
  step 2 "$environment: about 3 GB to load, 6 GB on disk; meanwhile:"
  tools/setup.sh python > "$VENV.log" 2>&1 &
  setup=$!
  configure -DMOTLEY_TESTS=OFF -DMOTLEY_WORKER=OFF
  compile 3 "compiling what needs no PyTorch" motley_search
  wait "$setup" || { cat "$VENV.log" >&2; exit 1; }
  cat "$VENV.log"
  rm -f "$VENV.log"
fi
configure -DMOTLEY_TESTS=$tests -DMOTLEY_WORKER=ON
compile 4 "compiling: $*" "$@"

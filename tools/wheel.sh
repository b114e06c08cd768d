#!/usr/bin/env bash
# Builds the packages into BUILD/wheels, from the build that is there: `motley`, which needs no PyTorch, and
# `motley-worker-X-Y` for the PyTorch X.Y of the build. auditwheel puts what else they link into them.
# Reads BUILD, VENV, MOTLEY_PYTHON, TORCH_VERSION, JOBS as tools/build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
wheels=$PWD/$BUILD/wheels
environment=$wheels/environment
minor=${TORCH_VERSION:-2.15.0}
minor=${minor%.*}
python=${MOTLEY_PYTHON:-$PWD/${VENV:-.venv}/bin/python}

tools/build.sh product
mkdir -p "$wheels"
if ! cmp -s tools/requirements_wheel.txt "$environment/installed"; then
  echo "wheels: an environment to build them"
  python3 -m venv "$environment"
  "$environment/bin/pip" install -q -r tools/requirements_wheel.txt
  cp tools/requirements_wheel.txt "$environment/installed"
fi
export PATH=$environment/bin:$PATH

# Of PyTorch's own environment, not of these packages: left out, and found beside them.
theirs=(libtorch.so libtorch_cpu.so libtorch_cuda.so libc10.so libc10_cuda.so libgomp.so.1 libcuda.so.1)
for library in libcudart libnvrtc libcupti; do
  for major in 12 13; do theirs+=("$library.so.$major"); done
done

make_wheel() {  # FOLDER NAME
  local raw=$wheels/raw source=$wheels/source/$2
  rm -rf "$raw" "$source"
  mkdir -p "$source"
  cp -r "wheels/$1/." "$source"
  sed -i "s|\"../..\"|\"$PWD\"|; s/2-15/${minor/./-}/g; s/2\\.15/$minor/g" "$source/pyproject.toml"
  python -m build -w --no-isolation -o "$raw" "-Cbuild-dir=$PWD/$BUILD" \
    "-Ccmake.args=-DPython3_EXECUTABLE=$python;-DMOTLEY_UNITY=ON;-DMOTLEY_CCACHE=ON" "$source" > "$wheels/$2.log" 2>&1 || {
    tail -40 "$wheels/$2.log" >&2
    exit 1
  }
  auditwheel repair -w "$raw/repaired" "${theirs[@]/#/--exclude=}" "$raw"/*.whl >> "$wheels/$2.log" 2>&1 || {
    tail -20 "$wheels/$2.log" >&2
    exit 1
  }
  rm -f "$wheels/${2//-/_}"-*.whl
  with_paths "$raw"/repaired/*.whl
  rm -rf "$raw" "$wheels/source"
}

# auditwheel knows of no libraries outside the wheel: PyTorch's are those of the packages beside it.
with_paths() {  # WHEEL
  local folder=$wheels/raw/unpacked file own
  wheel unpack -d "$folder" "$1" > /dev/null
  for file in "$folder"/*/motley/bin/*; do
    if [[ ${file##*/} =~ ^(motley|libmotley.so|.*json)$ ]]; then continue; fi
    own=$(patchelf --print-rpath "$file")
    patchelf --set-rpath "${own:+$own:}\$ORIGIN/../../torch/lib:\$ORIGIN/../../nvidia/cu13/lib" "$file"
  done
  wheel pack -d "$wheels" "$folder"/* > /dev/null
}

make_wheel motley motley
make_wheel motley-worker "motley-worker-${minor/./-}"
ls -l "$wheels"/*.whl | awk '{ printf "wheels: %s, %.1f MB\n", $NF, $5 / 1e6 }'

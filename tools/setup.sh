#!/usr/bin/env bash
# Installs what is missing, and says nothing when nothing is.
#   tools/setup.sh packages LIST...  Debian packages of these lists (as root or with sudo; otherwise
#                                    names them and fails)
#   tools/setup.sh python            a virtual environment with PyTorch, unless MOTLEY_PYTHON names an
#                                    interpreter that has one
#   tools/setup.sh zoo               .venv-zoo: the packages of tests/zoo over the PyTorch of the one above
#   tools/setup.sh docs              .venv-docs: what builds the pages of docs/; it needs no PyTorch
#   tools/setup.sh                   packages and python, with all lists
# A line that --check prints in place of doing anything is what would be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
TORCH_VERSION=${TORCH_VERSION:-2.15.0}
VENV=${VENV:-.venv}

missing_packages() {
  grep -hv '^#' "$@" | while read -r package; do echo "$package"; done | sort > "$scratch/wanted"
  xargs dpkg-query -W -f='${Status} ${Package}\n' < "$scratch/wanted" 2>/dev/null |
    sed -n 's/^install ok installed //p' | sort > "$scratch/installed" || true
  comm -23 "$scratch/wanted" "$scratch/installed" | paste -sd ' '
}

install_packages() {
  local missing=$1 sudo=""
  if [ "$(id -u)" != 0 ]; then
    sudo=$(command -v sudo) || {
      echo "setup: these Debian packages are missing: $missing" >&2
      echo "setup: install them as root: apt-get install -y --no-install-recommends $missing" >&2
      exit 1
    }
  fi
  $sudo env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update && apt-get install -y --no-install-recommends $missing" \
    > "$scratch/log" 2>&1 || { tail -20 "$scratch/log" >&2; exit 1; }
}

# PyTorch's wheels for CUDA bring the toolkit's headers but for the folder crt/ and, before 2.12, nv/,
# which libmotley_cuda.so is compiled with too. Without them that library is left out, so that a
# machine whose index lacks the packages still builds the rest.
install_cuda_headers() {
  local wanted
  mapfile -t wanted < <("$VENV/bin/python" -c 'import importlib.util as u, pathlib, re
folder = pathlib.Path(u.find_spec("torch").origin).parent
found = re.search(r"^cuda\b.*= .([0-9]+[.][0-9]+)", (folder / "version.py").read_text(), re.M)
include = folder.parent / "nvidia/cu13/include"
if found and (include / "cuda_runtime_api.h").exists():
    for name, headers in (("crt", "crt"), ("cccl", "nv")):
        if not (include / headers).exists():
            print(f"nvidia-cuda-{name}=={found[1]}.*")')
  ((${#wanted[@]} > 0)) || return 0
  "$VENV/bin/pip" install -q --disable-pip-version-check --no-deps "${wanted[@]}" 2> "$scratch/log" ||
    echo "setup: no ${wanted[*]} ($(tail -1 "$scratch/log")): Motley is built without CUDA devices" >&2
}

python_stamp() { echo "$VENV/.motley-$TORCH_VERSION-$(cat requirements.txt | sha256sum | cut -c1-12)"; }

install_python() {
  if [ -n "${MOTLEY_PYTHON:-}" ]; then
    "$MOTLEY_PYTHON" -c 'import importlib.util as u, sys
sys.exit(any(u.find_spec(name) is None for name in ("torch", "numpy", "safetensors")))' ||
      { echo "setup: $MOTLEY_PYTHON lacks torch, numpy or safetensors" >&2; exit 1; }
    return
  fi
  [ ! -f "$(python_stamp)" ] || return 0
  [ -x "$VENV/bin/python" ] || "$(command -v /usr/bin/python3 || command -v python3)" -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check --no-compile "torch==$TORCH_VERSION" -r requirements.txt
  install_cuda_headers
  rm -f "$VENV"/.motley-*
  touch "$(python_stamp)"
}

# The packages are told to take the PyTorch that is there: torchvision's release may name another one.
install_zoo() {
  local list=tests/zoo/requirements.txt zoo=.venv-zoo stamp packages
  stamp=$zoo/.motley-$TORCH_VERSION-$(sha256sum < "$list" | cut -c1-12)
  [ ! -f "$stamp" ] || return 0
  [ -x "$zoo/bin/python" ] || "$VENV/bin/python" -m venv "$zoo"
  packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$packages" > "$("$zoo/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/motley.pth"
  "$zoo/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps -r "$list"
  rm -f "$zoo"/.motley-*
  touch "$stamp"
}

install_docs() {
  local list=docs/site/requirements.txt environment=.venv-docs
  cmp -s "$list" "$environment/installed" && return 0
  missing=$(missing_packages <(echo python3-venv))
  if [ -n "$missing" ]; then install_packages "$missing"; fi
  rm -rf "$environment"
  python3 -m venv "$environment"
  "$environment/bin/pip" install -q --disable-pip-version-check --no-deps -r "$list"
  cp "$list" "$environment/installed"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
what=${1:-all}
shift $(($# > 0))
check=
if [ "${1:-}" = --check ]; then check=1; shift; fi
lists=("$@")
if ((${#lists[@]} == 0)); then lists=(tools/packages.txt tools/packages_test.txt); fi
case $what in
  packages | all)
    missing=$(missing_packages "${lists[@]}")
    if [ -n "$missing" ]; then
      if [ -n "$check" ]; then echo "$missing"; else install_packages "$missing"; fi
    fi ;;&
  python | all)
    if [ -n "$check" ]; then
      [ -n "${MOTLEY_PYTHON:-}" ] || [ -f "$(python_stamp)" ] || echo "PyTorch $TORCH_VERSION in $VENV"
    else
      install_python
    fi ;;
  zoo) install_python && install_zoo ;;
  docs) install_docs ;;
esac

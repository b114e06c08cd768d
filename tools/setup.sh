#!/usr/bin/env bash
# Installs what is missing: Debian packages (as root or with sudo; otherwise names them) and a
# virtual environment with PyTorch, unless MOTLEY_PYTHON names an interpreter that has one.
set -euo pipefail
cd "$(dirname "$0")/.."
TORCH_VERSION=${TORCH_VERSION:-2.15.0}
VENV=${VENV:-.venv}

missing=()
while read -r package; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
done < <(grep -v '^#' tools/packages.txt)
if ((${#missing[@]})); then
  if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null; then sudo=sudo; else
    echo "setup: these Debian packages are missing: ${missing[*]}" >&2
    echo "setup: install them as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  log=$(mktemp)
  $sudo env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" \
    >"$log" 2>&1 || { tail -20 "$log" >&2; exit 1; }
  rm -f "$log"
fi

if [ -n "${MOTLEY_PYTHON:-}" ]; then
  "$MOTLEY_PYTHON" -c 'import torch, numpy, safetensors' || {
    echo "setup: $MOTLEY_PYTHON lacks torch, numpy or safetensors" >&2; exit 1; }
  exit 0
fi
stamp="$VENV/.motley-$TORCH_VERSION-$(sha256sum requirements.txt | cut -c1-12)"
if [ ! -f "$stamp" ]; then
  echo "setup: PyTorch $TORCH_VERSION in $VENV (about 5 GB, some minutes)"
  [ -x "$VENV/bin/python" ] || "$(command -v /usr/bin/python3 || command -v python3)" -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check "torch==$TORCH_VERSION" -r requirements.txt
  rm -f "$VENV"/.motley-*
  touch "$stamp"
fi

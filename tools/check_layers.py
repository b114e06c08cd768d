#!/usr/bin/env python3
"""Checks includes against tools/layers.txt, and third-party libraries against their one folder.

A folder of motley/ may include itself and what its row lists. Tests may also include
motley/testing and the folders named in CMakeLists.txt as TEST_USES. Prints file:line of each
violation; exit 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Library (prefix of the include) -> the place that may name it.
LIBRARIES = {
    "nlohmann/": "base",
    "tl/": "base",
    "xxhash": "base",
    "toml++/": "cluster",
    "sqlite3": "cost",
    "Eigen/": "cost",
    "zlib": "data",
    "CLI/": "cli",
    "ATen/": "run/torch",
    "c10/": "run/torch",
    "torch/": "run/torch",
    "gloo/": "run/torch",
}
TEST_USES = {"simulate": {"synth", "graph", "plan"}, "run": set()}


def read_layers():
    layers = {}
    for line in (ROOT / "tools/layers.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            folder, _, uses = line.partition(":")
            layers[folder] = set(uses.split())
    return layers


def violations():
    layers = read_layers()
    for path in sorted((ROOT / "motley").rglob("*.[hc]*")):
        if path.suffix not in (".h", ".cc"):
            continue
        relative = path.relative_to(ROOT / "motley")
        folder = relative.parts[0]
        is_test = path.stem.endswith("_test") or folder == "testing"
        if folder != "testing" and folder not in layers:
            yield f"{path.relative_to(ROOT)}:1: folder '{folder}' is not in tools/layers.txt"
            continue
        allowed = layers.get(folder, set()) | {folder}
        if is_test:
            allowed |= {"testing"} | TEST_USES.get(folder, set())
        if folder == "testing":
            allowed = set(layers) | {"testing"}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
            if not match:
                continue
            include = match.group(1)
            where = f"{path.relative_to(ROOT)}:{number}"
            if include.startswith("motley/"):
                target = include.split("/")[1]
                if target not in allowed:
                    yield f"{where}: '{folder}' may not include '{target}' ({include})"
                if include.startswith("motley/run/torch/") and not str(relative).startswith("run/torch/"):
                    yield f"{where}: only motley/run/torch may include {include}"
            for prefix, place in LIBRARIES.items():
                if include.startswith(prefix) and not str(relative).startswith(place + "/"):
                    yield f"{where}: {include} belongs to motley/{place}"


def main():
    found = list(violations())
    for line in found:
        print(f"layers: {line}")
    if found:
        return 1
    print("layers: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())

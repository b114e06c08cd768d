#!/usr/bin/env python3
"""Checks includes against tools/layers.txt, and third-party libraries against their one folder.

A row names a folder and the folders that it may include. A sub-folder with a row of its own is held
to that row; one without belongs to the row above it. A row's files include each other freely and
what the row lists: another top folder with all its sub-folders, or, within the same top folder,
exactly the row named. Rows may not form a circle. Tests, and nothing else, may also include what
any row of their top folder reaches, the helpers in testing and peers/testing, and the folders of
TEST_USES (CMakeLists.txt has the same). Prints file:line of each violation; exit 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Library (prefix of the include) -> the place that may name it, or several.
LIBRARIES = {
    "nlohmann/": "motley/base",
    "tl/": "motley/base",
    "xxhash": "motley/base",
    "toml++/": "motley/cluster",
    "sqlite3": "motley/cost/measured",
    "Eigen/": ("motley/cost/fit", "peers/steps"),
    "zlib": "motley/data",
    "CLI/": "motley/cli",
    "boost/": "motley/control/view/page_server.cc",
    "ATen/": "motley/run/torch",
    "c10/": "motley/run/torch",
    "torch/": "motley/run/torch",
    "gloo/": "motley/run/torch",
}
TESTING = {"testing", "peers/testing"}
TEST_USES = {"run": {"synth"}, "adapt": {"peers"}, "control": {"peers"}, "search": {"peers"}, "simulate": {"synth", "graph", "plan"}, "peers": {"peers/import", "program", "simulate", "trace"}}


def read_layers():
    layers = {}
    for line in (ROOT / "tools/layers.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            folder, _, uses = line.partition(":")
            layers[folder] = set(uses.split())
    return layers


def reached(layers, rows):
    """All that these rows use, and what that uses."""
    seen, todo = set(), list(rows)
    while todo:
        for used in layers.get(todo.pop(), ()):
            if used not in seen:
                seen.add(used)
                todo.append(used)
    return seen


def circles(layers):
    """Rows that reach themselves."""
    return [row for row in layers if row in reached(layers, [row])]


def row_of(folder, layers):
    """The row that a folder such as 'run/torch/cuda' is held to."""
    while folder not in layers and "/" in folder:
        folder = folder.rpartition("/")[0]
    return folder


def folder_of(path):
    """The folder of a path below the root, as rows name it: without 'motley/'."""
    folder = path.rpartition("/")[0]
    return folder.removeprefix("motley/")


def top(folder):
    return folder.partition("/")[0]


def is_allowed(row, target, layers, is_test):
    uses = layers[row] | {row}
    if is_test:
        uses |= TESTING | TEST_USES.get(top(row), set())
        own = {other for other in layers if top(other) == top(row)}
        uses |= own | reached(layers, own)
    if target in uses:
        return True
    if target in TESTING:
        return False
    if top(target) == top(row):
        return row == top(row)  # a top folder sees its own sub-folders
    return top(target) in uses


def violations():
    layers = read_layers()
    for row in circles(layers):
        yield f"tools/layers.txt: '{row}' is part of a circle"
    paths = [p for place in ("motley", "peers") for p in (ROOT / place).rglob("*.*")]
    for path in sorted(p for p in paths if p.suffix in (".h", ".cc")):
        relative = str(path.relative_to(ROOT))
        row = row_of(folder_of(relative), layers)
        if row not in layers:
            yield f"{relative}:1: folder '{row}' is not in tools/layers.txt"
            continue
        is_test = path.stem.endswith("_test") or row in TESTING
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
            if not match:
                continue
            include = match.group(1)
            where = f"{relative}:{number}"
            if include.startswith(("motley/", "peers/")):
                target = row_of(folder_of(include), layers)
                if not is_allowed(row, target, layers, is_test):
                    yield f"{where}: '{row}' may not include '{target}' ({include})"
                if target.startswith("run/torch") and not row.startswith(("run/torch", "testing")):
                    yield f"{where}: only motley/run/torch may include {include}"
            for prefix, place in LIBRARIES.items():
                if include.startswith(prefix) and not relative.startswith(place):
                    yield f"{where}: {include} belongs to {place}"


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

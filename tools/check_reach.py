#!/usr/bin/env python3
"""Fails on files that no program reaches.

A file reaches what it includes. A header reaches the source of the same name, and sources of its
top folder that include it and have no header of their own name. The product starts from the main programs in motley/, the C library (motley/c) and the CUDA library
(motley/run/torch/cuda): each file of motley/ outside testing/ must be reached from there. Helpers in
testing/ and files in peers/ and bench/ must be reached from a test or from any main program. Prints
each file that is not reached; exit 1 if there is one.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"((?:motley|peers|bench|tests)/[^"]+)"', re.M)
MAIN = re.compile(r"^int (?:main|LLVMFuzzerTestOneInput)\(", re.M)
LIBRARIES = ("motley/c/", "motley/run/torch/cuda/")
# Without suffix: a header and its source that wait for what will use them.
WAITING = {"motley/simulate/resimulation": "placement, which will simulate its moves again and again"}


def read_files():
    """Path -> what it includes of ours, and the paths that have a main function."""
    includes, mains = {}, set()
    for place in ("motley", "peers", "bench", "tests", "examples"):
        for path in sorted((ROOT / place).rglob("*.*")):
            if path.suffix not in (".h", ".cc", ".cu"):
                continue
            name, text = str(path.relative_to(ROOT)), path.read_text()
            includes[name] = INCLUDE.findall(text)
            if MAIN.search(text):
                mains.add(name)
    return includes, mains


def top(name):
    """Its folder, or its top folder in motley/."""
    parts = pathlib.PurePath(name).parts[:-1]
    return parts[:2] if parts[0] == "motley" else parts


def reached(roots, includes):
    sources = collections.defaultdict(list)  # of a header
    for name, included in includes.items():
        path = pathlib.PurePath(name)
        own = str(path.with_suffix(".h"))
        if path.suffix == ".h" or name.endswith("_test.cc"):
            continue
        for header in [own] if own in includes else [h for h in included if top(h) == top(name)]:
            sources[header].append(name)
    seen, todo = set(), list(roots)
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        todo += includes.get(name, ())
        todo += sources.get(name, ())
    return seen


def is_of_product(name):
    return name.startswith("motley/") and "/testing/" not in name and not name.endswith("_test.cc")


def main():
    includes, mains = read_files()
    product = {n for n in includes if is_of_product(n) and (n in mains or n.startswith(LIBRARIES))}
    by_product = reached(product, includes)
    by_any = reached(mains | {n for n in includes if n.endswith("_test.cc")}, includes)
    found = []
    for name in includes:
        is_reached = name in by_product or not is_of_product(name) and name in by_any
        is_waiting = name.rpartition(".")[0] in WAITING
        if not is_reached and not is_waiting:
            found.append(f"{name}: no {'main program' if is_of_product(name) else 'test and no program'} reaches it")
        if is_reached and is_waiting:
            found.append(f"{name}: waits for nothing any more, and is still in WAITING")
    for line in found:
        print(f"reach: {line}")
    if found:
        return 1
    print("reach: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())

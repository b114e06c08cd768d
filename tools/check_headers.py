#!/usr/bin/env python3
"""Every header that needs no PyTorch compiles alone.

What is most work of that, the standard library's headers, is compiled once for all; so of each
header it is checked apart that what it uses of the standard library comes from a header that it
includes, or that one of ours does which it includes. And a header is compiled behind others that it
includes itself, a chain at a time (chains). Prints each that fails; exit 1 if there is one.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-I."]
# Names of the standard library by the header that is for them.
NAMES = {
    "algorithm": "sort stable_sort find_if all_of any_of none_of min_element max_element clamp",
    "array": "array", "atomic": "atomic", "chrono": "chrono", "cstddef": "ptrdiff_t", "deque": "deque",
    "condition_variable": "condition_variable",
    "cstdint": "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t", "filesystem": "filesystem",
    "functional": "function", "limits": "numeric_limits", "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared", "mutex": "mutex lock_guard unique_lock",
    "optional": "optional nullopt", "queue": "queue priority_queue", "random": "mt19937_64", "set": "set multiset",
    "span": "span", "string": "string to_string", "string_view": "string_view", "thread": "thread", "tuple": "tuple tie",
    "unordered_map": "unordered_map", "unordered_set": "unordered_set", "utility": "pair move forward exchange",
    "variant": "variant get_if holds_alternative visit monostate", "vector": "vector",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


def includes(path, known={}):
    """Standard headers and those of ours that a header includes, with what these do."""
    if path not in known:
        known[path] = set(re.findall(r"^#include <(\w+)>", (ROOT / path).read_text(), re.M))
        for ours in re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.M):
            if (ROOT / ours).exists():
                known[path] |= {ours} | includes(ours)
    return known[path]


def chains(paths):
    """The headers in as few chains as there can be, in each of which a header includes all before it: to compile
    a chain in its order tests each of them alone. By Dilworth, whatever a largest matching of headers with the
    next in their chain leaves unmatched ends a chain."""
    following = {}

    def finds_one_before(path, tried):
        for earlier in sorted(includes(path).intersection(paths) - tried, key=lambda each: (-len(includes(each)), each)):
            if earlier in tried:
                continue
            tried.add(earlier)
            if earlier not in following or finds_one_before(following[earlier], tried):
                following[earlier] = path
                return True
        return False

    firsts = [path for path in paths if not finds_one_before(path, set())]
    found = [[first] for first in firsts]
    for chain in found:
        while chain[-1] in following:
            chain.append(following[chain[-1]])
    return found


def missing(path):
    """(name, header) of what is used without its header."""
    code = COMMENT.sub("", re.sub(r"^#include.*", "", (ROOT / path).read_text(), flags=re.M))
    used = {name for name in re.findall(r"\bstd::(\w+)", code) if name in HEADER_OF}
    return sorted((name, HEADER_OF[name]) for name in used if HEADER_OF[name] not in includes(path))


def compile_chain(chain, std):
    source = "".join(f'#include "{path}"\n' for path in chain)
    done = subprocess.run(["g++", "-fsyntax-only", *FLAGS, "-include", std, "-x", "c++", "-"], input=source, text=True,
                          capture_output=True, cwd=ROOT)
    return done.stderr if done.returncode != 0 else ""


def main():
    listed = subprocess.run(["git", "ls-files", "motley/*.h", "peers/*.h"], cwd=ROOT, text=True, capture_output=True,
                            check=True).stdout.split()
    paths = [path for path in listed
             if not path.startswith("motley/run/torch/") and '"motley/run/torch/' not in (ROOT / path).read_text()]
    faults = [f"{path} uses std::{name} without <{header}>" for path in paths for name, header in missing(path)]
    with tempfile.TemporaryDirectory() as folder:
        std = f"{folder}/std.h"
        pathlib.Path(std).write_text("".join(f"#include <{header}>\n" for header in NAMES))
        subprocess.run(["g++", *FLAGS, "-x", "c++-header", std, "-o", std + ".gch"], check=True, cwd=ROOT)
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = chains(paths)
            for chain, said in zip(found, pool.map(lambda chain: compile_chain(chain, std), found)):
                if said:
                    faults.append(f"{' or '.join(chain)} does not compile alone\n{said}")
    for fault in faults:
        print("headers:", fault, file=sys.stderr)
    if not faults:
        print("headers: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

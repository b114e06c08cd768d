#!/usr/bin/env python3
"""Types and constants of unnamed namespaces have names of their own within a folder, its tests apart.

Sources of a folder are compiled several at a time (MOTLEY_UNITY), where two of one name clash; and a
reader who knows one would take the other for it. Functions may be overloads, so only those that are
declared with the same line count.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.DOTALL | re.MULTILINE)
TYPE = re.compile(r"(?:struct|class|enum class|enum) (\w+)")
CONSTANT = re.compile(r"[^(]*?\b(k[A-Z]\w*)\b(?:\[\])?(?: =|\{)")
FUNCTION = re.compile(r"[\w:<>,&* ]+[ &*]\w+\(.*\{")


def names(text):
    """What the unnamed namespaces of a file define at their outermost level."""
    for body in UNNAMED.findall(text):
        for line in body.splitlines():
            if not line or line[0] in " /#}" or line.startswith(("using ", "TEST", "RC_GTEST")):
                continue
            found = TYPE.match(line) or CONSTANT.match(line)
            if found:
                yield found[1]
            elif FUNCTION.match(line):
                yield line


def main():
    files = subprocess.run(
        ["git", "ls-files", "motley/*.cc", "peers/*.cc"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    places = collections.defaultdict(list)
    for file in files:
        parts = pathlib.Path(file).parts
        folder = parts[1] if parts[0] == "motley" else parts[0]
        if parts[:3] == ("motley", "run", "torch"):
            folder = "run/torch/cuda" if "cuda" in parts else "run/torch"
        if file.endswith("_main.cc"):
            continue
        for name in set(names((ROOT / file).read_text())):
            places[folder, file.endswith("_test.cc"), name].append(file)
    clashes = [(name, where) for (_, _, name), where in sorted(places.items()) if len(where) > 1]
    for name, where in clashes:
        print(f"names: '{name}' is defined in {' and '.join(where)}; name them apart, or share one")
    if clashes:
        sys.exit(1)
    print("names: ok")


if __name__ == "__main__":
    main()

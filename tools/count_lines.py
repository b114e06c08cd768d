#!/usr/bin/env python3
"""Lines of C++ in the working tree: the core (no tests, benches, guests in peers/ or test helpers),
how many of its lines are comments, and each folder's lines of tests to lines of code.
"""
import collections
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
APART = re.compile(r"_test\.cc$|^(bench|peers|tests|examples)/|/testing/|/fuzz/")
TOGETHER = {"cli": "cli+control", "control": "cli+control"}


def main():
    files = subprocess.run(["git", "ls-files", "*.h", "*.cc", "*.cu"], cwd=ROOT, capture_output=True, text=True,
                           check=True).stdout.split()
    code, tests, comments = collections.Counter(), collections.Counter(), 0
    for file in files:
        lines = (ROOT / file).read_text().splitlines()
        folder = file.split("/")[1] if file.startswith("motley/") else "-"
        folder = TOGETHER.get(folder, folder)
        if file.endswith("_test.cc") and file.startswith("motley/"):
            tests[folder] += len(lines)
        elif not APART.search(file):
            code[folder] += len(lines)
            comments += sum(line.lstrip().startswith("//") for line in lines)
    total = sum(code.values())
    print(f"core {total} lines, {100 * comments / total:.1f} % of them comments")
    for folder in sorted(code):
        print(f"{folder:<12} {code[folder]:>6} lines, tests {tests[folder]:>5}, {tests[folder] / code[folder]:.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Fails on functions over 60 lines and headers over 150 (tests' helpers, which are all code, over
200): a reason to look twice at what grew.

A function is counted from its first line to the brace that closes it; classes, namespaces and
tables are not functions. Tests are not counted. Prints file:line of each; exit 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_FUNCTION, MOST_HEADER, MOST_HELPER = 60, 150, 200
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
# What may stand between a function's parameters and its body.
HEAD = re.compile(r"\)\s*(?:const|noexcept|override|final|mutable|&|->[^;{}()]*|\s)*$")


def blanked(text):
    """The source with comments and literals blanked, lines kept."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def functions(text):
    """(first line, last line) of each body whose head ends with parameters or initialisers."""
    text = blanked(re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                          text, flags=re.M))
    open_braces = []  # (line of the head, is it a function?)
    start = 0  # where the current statement begins
    depth_of_functions = 0
    for at, char in enumerate(text):
        if char in ";}{":
            head = text[start:at]
            if char == "{":
                is_function = depth_of_functions == 0 and is_head(head)
                first = text.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
                open_braces.append((first, is_function))
                depth_of_functions += is_function
            elif char == "}" and open_braces:
                first, is_function = open_braces.pop()
                depth_of_functions -= is_function
                if is_function:
                    yield first, text.count("\n", 0, at) + 1
            start = at + 1


def is_head(head):
    if re.match(r"\s*(?:class|struct|enum|union|namespace|extern)\b", head) and ")" not in head:
        return False
    return HEAD.search(head) is not None or re.search(r"\)\s*:\s*\w[^;]*$", head) is not None


def long_ones():
    for place in ("motley", "peers", "bench", "examples"):
        for path in sorted((ROOT / place).rglob("*.*")):
            if path.suffix not in (".h", ".cc") or path.stem.endswith("_test"):
                continue
            text = path.read_text()
            where = path.relative_to(ROOT)
            lines = text.count("\n")
            most = MOST_HELPER if "testing" in where.parts else MOST_HEADER
            if path.suffix == ".h" and lines > most:
                yield f"{where}:1: header of {lines} lines, at most {most}"
            for first, last in functions(text):
                if last - first + 1 > MOST_FUNCTION:
                    yield f"{where}:{first}: function of {last - first + 1} lines, at most {MOST_FUNCTION}"


def main():
    found = list(long_ones())
    for line in found:
        print(f"sizes: {line}")
    if found:
        return 1
    print("sizes: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())

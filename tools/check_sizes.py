#!/usr/bin/env python3
"""Prints what is large: functions, headers, files, classes, structs, folders and constants of one file, each
with its change since main. Each limit is a reason to look twice; nothing fails.

A class is counted by the lines of its methods and by its members that are not const, a folder by its
ideas (file names without suffix, tests and sub-folders apart). Tests are not counted.
"""
import collections
import io
import pathlib
import re
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACES = ("motley", "peers", "bench", "examples")
LIMITS = {"functions by lines": 60, "headers by lines": 150, "files by lines": 500,
          "classes by lines of methods": 300, "classes by members": 12, "structs by fields": 12,
          "folders by ideas": 25, "constants of a file": 10}
MOST_ROWS = 12  # of a table; all that changed are shown
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
# What may stand between a function's parameters and its body.
BODY = re.compile(r"\)\s*(?:const|noexcept|override|final|mutable|&|->[^;{}()]*|\s)*$|\)\s*:\s*\w[^;]*$")
TYPE = re.compile(r"(?:template\s*<[^{}]*>\s*)?(class|struct)\s+(?:\[\[\w+\]\]\s*)?(\w+)\s*(?:final\s*)?(?::[^{}]*)?$")
METHOD = re.compile(r"(\w+)::~?\w+\s*\(")
FIELD = re.compile(r"\w[&*]*\s+[*&]?\w+(?:\[\w*\])*$")
NO_FIELD = re.compile(r"(?:using|typedef|friend|static|constexpr|enum|return|template|namespace|class|struct)\b")
CONSTANT = re.compile(r"^(?:static |inline )*constexpr\b[^=;{(]*?\b(k[A-Z]\w*)", re.M)


def blanked(text):
    """The source with comments, literals and directives blanked, lines kept."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0))
    return DIRECTIVE.sub(blank, TOKEN.sub(blank, text))


def fields_in(head):
    """How many fields a statement of a class declares; one behind a braced value begins with a comma."""
    head = re.sub(r"^(?:\w+\s*:(?!:)\s*)+", "", head)
    while (shorter := re.sub(r"<[^<>]*>", "", head)) != head:
        head = shorter
    if NO_FIELD.match(head) or "(" in re.sub(r"=[^,]*", "", head):
        return 0
    first, *more = (re.sub(r"\s*=.*", "", piece, flags=re.S).strip() for piece in head.split(","))
    return bool(FIELD.search(first)) + sum(bool(re.fullmatch(r"[*&]?\w+(?:\[\w*\])*", name)) for name in more)


def scan(text):
    """Yields ("function", name or "", class or "", lines, line), ("field", type, class or struct, how many, line)."""
    scopes, start = [], 0  # of open braces: (kind, name, first line, head)
    for at, char in enumerate(text):
        if char not in ";}{":
            continue
        head, line = text[start:at].strip(), text.count("\n", 0, at) + 1
        kind, name = scopes[-1][:2] if scopes else ("", "")
        if char == "{":
            type_of = TYPE.search(head)
            if kind == "function" or kind == "other":
                scopes.append(("other", "", line))
            elif type_of and ")" not in type_of.group(0):
                scopes.append((type_of.group(1), type_of.group(2), line))
            elif re.match(r"(?:inline\s+)?namespace\b|extern\b", head):
                scopes.append(("namespace", "", line))
            elif not re.match(r"enum\b|union\b", head) and BODY.search(head):
                first = text.count("\n", 0, start + len(text[start:at]) - len(text[start:at].lstrip())) + 1
                method = METHOD.search(head)
                owner = name if kind in ("class", "struct") else method.group(1) if method else ""
                scopes.append(("function", owner, first))
            else:
                if kind in ("class", "struct") and (count := fields_in(head)):
                    yield "field", kind, name, 0 if head.startswith("const ") else count, count
                scopes.append(("other", "", line))
        elif char == "}" and scopes:
            kind, name, first = scopes.pop()
            if kind == "function":
                yield "function", first, name, line - first + 1, 0
        elif kind in ("class", "struct") and (count := fields_in(head)):
            is_const = re.sub(r"^\w+\s*:\s*", "", head).startswith("const ")
            yield "field", kind, name, 0 if is_const else count, count
        start = at + 1


def measure(files):
    """{kind of thing: {name: how much}} of {path: text}."""
    found = {kind: collections.Counter() for kind in LIMITS}
    ideas = collections.defaultdict(set)
    for path, text in files.items():
        folder, _, name = path.rpartition("/")
        ideas[folder].add(name.partition(".")[0])
        found["headers by lines" if path.endswith(".h") else "files by lines"][path] = text.count("\n")
        text = blanked(text)
        found["constants of a file"][path] = len(set(CONSTANT.findall(text)))
        longest = collections.Counter()
        for what, detail, owner, count, fields in scan(text):
            if what == "function":
                longest[path] = max(longest[path], count)
                found["functions by lines"][f"{path}, longest"] = longest[path]
            if owner and what == "function":
                found["classes by lines of methods"][f"{folder}: {owner}"] += count
            if what == "field" and detail == "class":
                found["classes by members"][f"{folder}: {owner}"] += count
            if what == "field" and detail == "struct":
                found["structs by fields"][f"{folder}: {owner}"] += fields
    found["folders by ideas"].update({folder: len(names) for folder, names in ideas.items()})
    return found


def is_counted(path):
    return path.startswith(PLACES) and path.endswith((".h", ".cc", ".cu")) and not re.search(r"_test\.cc$|/testing/", path)


def files_here():
    paths = (str(p.relative_to(ROOT)) for place in PLACES for p in sorted((ROOT / place).rglob("*.*")))
    return {path: (ROOT / path).read_text() for path in paths if is_counted(path)}


def files_of_main():
    """As they were where this branch left main; none where git does not know it."""
    git = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True)
    for name in ("main", "origin/main"):
        base = git("merge-base", "HEAD", name)
        if base.returncode == 0:
            archive = git("archive", base.stdout.decode().strip(), *PLACES)
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
                return {m.name: tar.extractfile(m).read().decode() for m in tar if m.isfile() and is_counted(m.name)}
    return {}


def main():
    here, base = measure(files_here()), measure(files_of_main())
    for kind, limit in LIMITS.items():
        now, before = here[kind], base[kind]
        large = [name for name, _ in now.most_common() if max(now[name], before[name]) > limit]
        was = f", {sum(count > limit for count in before.values())} in main" if before else ""
        print(f"{kind}: {sum(count > limit for count in now.values())} over {limit}{was}")
        for place, name in enumerate(large):
            change = now[name] - before[name] if before else 0
            if place < MOST_ROWS or change:
                print(f"{now[name]:8} {f'{change:+}' if change else '':>6}  {name}")


if __name__ == "__main__":
    main()

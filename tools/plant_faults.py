#!/usr/bin/env python3
"""Plants faults in a copy of the sources, all at once, each behind a switch, and asks which tests find them.

  tools/plant_faults.py plant TREE --count 60 --seed 44   changes sources of TREE (a copy, with a configured build); writes TREE/faults.json
  (build TREE)
  tools/plant_faults.py units TREE                        C++ tests: who reaches which fault, who finds it
  tools/plant_faults.py suite TREE -- PYTEST WORDS        the same with pytest, for faults that were not found yet
  tools/plant_faults.py table TREE                        what became of each

A fault is another operator in a condition or a value, a condition turned round, or a call left out, on one
line. Faults are drawn over all folders: one in each, then by lines of code. A test finds a fault when it
fails with MOTLEY_FAULT=NUMBER in its environment, and passes without. Where MOTLEY_FAULT_LOG names a folder,
what is reached leaves a file there, so only tests that reach a fault are asked for it.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import time

SWAPS = [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "),
         (" && ", " || "), (" || ", " && "), (" + ", " - "), (" - ", " + "), (" * ", " / "), ("std::max(", "std::min("),
         ("std::min(", "std::max("), (" and ", " or "), (" or ", " and "), (" is None", " is not None")]
HEADER = """#pragma once
#include <fcntl.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <string>
namespace motley {
// Is this fault switched on? Leaves a mark where marks are wanted.
inline bool planted(int fault) {
  static const char* on = std::getenv("MOTLEY_FAULT");
  static const int wanted = on == nullptr ? -1 : std::atoi(on);
  static const char* log = std::getenv("MOTLEY_FAULT_LOG");
  static std::atomic<bool> seen[1000];
  if (log != nullptr && !seen[fault].exchange(true))
    ::close(::open((std::string(log) + "/" + std::to_string(fault)).c_str(), O_CREAT | O_WRONLY, 0666));
  return fault == wanted;
}
}  // namespace motley
"""
MODULE = """import os
_ON = int(os.environ.get("MOTLEY_FAULT", -1))
_LOG = os.environ.get("MOTLEY_FAULT_LOG")
seen = set()
def planted(fault):
    if _LOG and fault not in seen:
        seen.add(fault)
        open(f"{_LOG}/{fault}", "w").close()
    return fault == _ON
"""


def balanced(text):
    depth = 0
    for each in text:
        depth += (each in "([{") - (each in ")]}")
        if depth < 0:
            return False
    return depth == 0 and text.count('"') % 2 == 0


def changed(text, draw):
    """The expression with one operator swapped; None: it has none."""
    places = [(match.start(), old, new) for old, new in SWAPS for match in re.finditer(re.escape(old), text)
              if text[:match.start()].count('"') % 2 == 0]
    if not places:
        return None
    at, old, new = draw.choice(places)
    return text[:at] + new + text[at + len(old):]


def cpp_fault(line, number, draw):
    """The line with a switched fault in it; None: nothing to change."""
    switch = f"::motley::planted({number})"
    if match := re.fullmatch(r"(\s+(?:\} else )?if \()(.+)(\)(?: \{| [^;{}]+;)?)", line):
        head, condition, tail = match.groups()
        if not balanced(condition) or ";" in condition or re.search(r"[^=!<>]=[^=]", condition) or condition.startswith("constexpr"):
            return None
        other = changed(condition, draw) or f"!({condition})"
        return f"{head}{switch} ? ({other}) : ({condition}){tail}"
    if match := re.fullmatch(r"(\s+(?:return |[^()\"]* [+*-]?= ))([^{}]+)(;)", line):
        head, value, tail = match.groups()
        if not balanced(value) or re.search(r"[^=!<>]=[^=]|auto&|\[&|\[=", head.rstrip()[:-1] + value) or not (other := changed(value, draw)):
            return None
        return f"{head}({switch} ? ({other}) : ({value})){tail}"
    if re.fullmatch(r"\s+[a-z_][\w.>:-]*\(.*\);", line) and balanced(line.strip()) and not re.match(r"\s+(return|co_|throw|delete|static_assert|assert|fmt::print)", line):
        return re.sub(r"^(\s+)", rf"\1if (!{switch}) ", line)
    return None


def python_fault(line, number, draw):
    if match := re.fullmatch(r"(\s+(?:if|elif|while) )([^#]+)(:)", line):
        head, value, tail = match.groups()
        if not balanced(value) or ":=" in value:
            return None
        return f"{head}(({changed(value, draw) or f'not ({value})'}) if _planted({number}) else ({value})){tail}"
    if match := re.fullmatch(r"(\s+(?:return |[a-z_.]+ [+*-]?= ))([^#]+)", line):
        head, value = match.groups()
        if not balanced(value) or not (other := changed(value, draw)):
            return None
        return f"{head}(({other}) if _planted({number}) else ({value}))"
    return None


class Compiler:
    """Says whether a changed source compiles, by the flags of its folder's objects."""

    def __init__(self, tree):
        commands = json.loads((tree / "build/compile_commands.json").read_text())
        self.tree, self.commands = tree, {}
        for each in commands:
            if target := re.search(r"-o CMakeFiles/(\w+)\.dir/", each["command"]):
                self.commands.setdefault(target[1], each["command"])

    def accepts(self, path):
        folder = path.relative_to(self.tree).parts[1]
        target = "motley_run_torch" if "run/torch" in str(path) else f"motley_{folder}"
        words = shlex.split(self.commands[target])
        words = words[next(i for i, word in enumerate(words) if word.endswith("++")):]
        words = words[: words.index("-o")]
        if "-include" in words:  # precompiled headers, which may not be there yet
            del words[words.index("-include") : words.index("-include") + 2]
        words += ["-O0", "-fsyntax-only", str(path)]
        return subprocess.run(words, cwd=self.tree / "build", capture_output=True).returncode == 0


def plant(tree, count, seed):
    draw = random.Random(seed)
    sources = {}
    for pattern in ("motley/**/*.cc", "python/motley/**/*.py"):
        for path in sorted(tree.glob(pattern)):
            if not re.search(r"_test\.cc|_main\.cc|/testing/|/cuda/|planted", str(path)):
                sources.setdefault(path.parent, []).append(path)
    folders = sorted(sources)
    (tree / "found.json").unlink(missing_ok=True)
    lines = {folder: sum(path.read_text().count("\n") for path in paths) for folder, paths in sources.items()}
    first = sorted(folders, key=lambda folder: -lines[folder])[:count]
    wanted = first + draw.choices(folders, [lines[folder] for folder in folders], k=count - len(first))
    (tree / "motley/base/planted.h").write_text(HEADER)
    (tree / "python/motley/planted.py").write_text(MODULE)
    compiler, faults = Compiler(tree), []
    for folder in wanted:
        for _ in range(200):
            path = draw.choice(sources[folder])
            text = path.read_text().split("\n")
            at = draw.randrange(len(text))
            make = cpp_fault if path.suffix == ".cc" else python_fault
            line = make(text[at], len(faults), draw)
            if line is None or "planted" in text[at]:
                continue
            old = path.read_text()
            text[at] = line
            if path.suffix == ".cc":
                text = text if "motley/base/planted.h" in old else ['#include "motley/base/planted.h"', *text]
                path.write_text("\n".join(text))
                good = compiler.accepts(path)
            else:
                body = "\n".join(text)
                if "_planted" not in old:  # behind the docstring and what comes from the future
                    body = re.sub(r"^((?:import|from) (?!__future__))", r"from motley.planted import planted as _planted\n\1", body, count=1, flags=re.M)
                path.write_text(body)
                good = subprocess.run([sys.executable, "-m", "py_compile", str(path)], capture_output=True).returncode == 0
            if good:
                faults.append({"number": len(faults), "file": str(path.relative_to(tree)), "line": at + 1,
                               "was": old.split("\n")[at].strip(), "is": line.strip()})
                print(len(faults) - 1, faults[-1]["file"], line.strip(), flush=True)
                break
            path.write_text(old)
    (tree / "faults.json").write_text(json.dumps(faults, indent=1))


def results(tree):
    path = tree / "found.json"
    return json.loads(path.read_text()) if path.exists() else {}


def note(tree, number, where):
    found = results(tree)
    found[str(number)] = where
    (tree / "found.json").write_text(json.dumps(found, indent=1))


def units(tree):
    """Each C++ test program: once to see what it reaches, then with each fault that it reaches."""
    listed = json.loads(subprocess.run(["ctest", "--test-dir", tree / "build", "--show-only=json-v1"], capture_output=True, text=True).stdout)
    programs = []
    for test in listed["tests"]:
        variables = next((p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"), [])
        environment = dict(os.environ, GTEST_FAIL_FAST="1", **dict(each.split("=", 1) for each in variables))
        log = tree / "reached" / test["name"]
        log.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        code = subprocess.run(test["command"], env={**environment, "MOTLEY_FAULT_LOG": str(log)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tree / "build").returncode
        programs.append((time.monotonic() - start, test, environment, {int(path.name) for path in log.iterdir()}))
        print(f"{test['name']}: {programs[-1][0]:.0f} s, exit {code}, reaches {len(programs[-1][3])}", flush=True)
        if code:
            programs.pop()  # it proves nothing
    for fault in json.loads((tree / "faults.json").read_text()):
        number = fault["number"]
        if str(number) in results(tree):
            continue
        for seconds, test, environment, reached in sorted(programs, key=lambda each: each[0]):
            if number not in reached:
                continue
            try:
                code = subprocess.run(test["command"], env={**environment, "MOTLEY_FAULT": str(number)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      cwd=tree / "build", timeout=60 + 4 * seconds).returncode
            except subprocess.TimeoutExpired:
                code = -1
            if code:
                note(tree, number, test["name"])
                print(f"{number} {fault['file']}: {test['name']}", flush=True)
                break
        else:
            print(f"{number} {fault['file']}: not by C++ tests", flush=True)


def suite(tree, words):
    """pytest, faults that nobody found yet: a first run says which test reaches what (skipped where `reached.json`
    is there), then each fault's tests, the fastest first."""
    plugin = ["-p", "plant_faults", "-p", "no:cacheprovider"]
    environment = dict(os.environ, PYTHONPATH=f"{tree}/tools:{tree}/python", MOTLEY_BUILD=str(tree / "build"), MOTLEY_FAULT_MARKS=str(tree / "marks"))
    lines = tree / "marks/tests.jsonl"
    if not lines.exists():
        (tree / "marks").mkdir(exist_ok=True)
        subprocess.run([*words, *plugin], env=environment, cwd=tree)
    tests = [json.loads(line) for line in lines.read_text().splitlines()]
    tests = sorted((test for test in tests if test["outcome"] == "passed"), key=lambda test: test["seconds"])
    environment.pop("MOTLEY_FAULT_MARKS")
    python = words[: words.index("pytest") + 1]
    for fault in json.loads((tree / "faults.json").read_text()):
        number = fault["number"]
        reaching = [test for test in tests if number in test["reached"]][:40]
        if str(number) in results(tree):
            continue
        for test in reaching:
            try:
                code = subprocess.run([*python, "-q", "-x", "-p", "no:cacheprovider", test["name"]], env={**environment, "MOTLEY_FAULT": str(number)},
                                      cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300).returncode
            except subprocess.TimeoutExpired:
                code = -1
            if code not in (0, 5):
                note(tree, number, test["name"])
                print(f"{number} {fault['file']}: {test['name']}", flush=True)
                break
        else:
            print(f"{number} {fault['file']}: not by pytest ({len(reaching)} tests reach it)", flush=True)


def table(tree):
    found = results(tree)
    faults = json.loads((tree / "faults.json").read_text())
    for fault in faults:
        print(f"| {fault['number']} | {fault['file']}:{fault['line']} | `{fault['was']}` | {found.get(str(fault['number']), 'not found')} |")
    print(f"{len(found)} of {len(faults)} found")


# As a pytest plugin: what each test reaches, by a link that leads to the folder of the test that runs.

if MARKS := os.environ.get("MOTLEY_FAULT_MARKS"):
    LINK = pathlib.Path(MARKS) / f"now-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    os.environ["MOTLEY_FAULT_LOG"] = str(LINK)
    _seconds = {}

    def pytest_runtest_logreport(report):
        if "PYTEST_XDIST_WORKER" not in os.environ and hasattr(report, "node"):
            return
        seconds, outcome = _seconds.get(report.nodeid, (0, "passed"))
        _seconds[report.nodeid] = (seconds + report.duration, report.outcome if report.outcome != "passed" else outcome)

    def pytest_runtest_logstart(nodeid):
        folder = pathlib.Path(MARKS) / re.sub(r"\W", "_", nodeid)[-180:]
        folder.mkdir(exist_ok=True)
        LINK.unlink(missing_ok=True)
        LINK.symlink_to(folder)
        if "motley.planted" in sys.modules:
            sys.modules["motley.planted"].seen.clear()

    def pytest_runtest_logfinish(nodeid):
        if nodeid not in _seconds or not LINK.is_symlink():
            return
        seconds, outcome = _seconds[nodeid]
        reached = sorted(int(path.name) for path in LINK.resolve().iterdir())
        with open(pathlib.Path(MARKS) / "tests.jsonl", "a") as out:
            out.write(json.dumps({"name": nodeid, "seconds": round(seconds, 2), "outcome": outcome, "reached": reached}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plant", "units", "suite", "table"])
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    tree = given.tree.resolve()
    if given.what == "plant":
        plant(tree, given.count, given.seed)
    elif given.what == "suite":
        suite(tree, [word for word in given.words if word != "--"])
    else:
        {"units": units, "table": table}[given.what](tree)


if __name__ == "__main__":
    main()

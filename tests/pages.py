"""Pages whose commands are run: files, commands, and what these are to print.

A file is a labelled code block whose first line is a comment with its name. A command stands in a block without a label
behind `$ `, and goes on where its line ends with a backslash; what follows is what it prints. Numbers, processors and the
worst tensor may differ there, and `...` stands for any lines.
"""

import re

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?(:\d+)*( ?[num]?s\b| ?[KMG]i?B\b| ?[kMG]bps\b| ?%)?")


def files(text):
    """(name, text) of each file."""
    for language, block in BLOCK.findall(text):
        name = re.match(r"# (\S+\.\w+)\n", block)
        if language and name:
            yield name[1], block


def commands(text):
    """(command, the lines that it prints) of each command, in order."""
    for language, block in BLOCK.findall(text):
        if language:
            continue
        found = []
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append([line[2:], []])
            elif found and found[-1][0].endswith("\\"):
                found[-1][0] = found[-1][0][:-1] + line
            elif found:
                found[-1][1].append(line)
        yield from ((command, shown) for command, shown in found)


def masked(line):
    line = re.sub(r"(cores? of|on cpu) .*?, (avx\w+|sve|asimd|no vectors)", r"\1 CPU", line)
    line = re.sub(r"worst '[^']*'", "worst", line)
    return re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()


def missing_line(shown, printed):
    """The first line shown that does not stand in what was printed, in this order; None where all do."""
    rest = iter([masked(line) for line in printed.splitlines()])
    for line in shown:
        if line.strip() not in ("", "...") and masked(line) not in rest:
            return line
    return None

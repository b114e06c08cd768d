"""Every command of docs/clusters.md, run in its order on the hosts that it names; what it prints is what the page shows.

A command stands behind `$ `, continued where its line ends with a backslash. It runs on the first host, or on those
that a comment names: `# on b`, `# on a, b, c with --node-rank 0, 1, 2` (side by side, a number each). Of what is
printed, numbers and processors may differ; the page may leave out lines (`...`).
"""

import re
import subprocess

import pytest

from hosts import namespaces, slurm
from hosts.conftest import BUILD, PYTHON, ROOT, nothing_runs, slow

pytestmark = [pytest.mark.skipif(why != "", reason=why) for why in (namespaces.missing(), slurm.missing())] + [slow]

PAGE = ROOT / "docs/clusters.md"
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e-?\d+)?( ?[num]?s\b| ?[KMG]i?B\b| ?[kMG]bps\b| ?%)?")


def blocks(text):
    """(command, what it prints) of each code block."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        if language:
            continue
        commands = []
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append([line[2:], []])
            elif commands and commands[-1][0].endswith("\\"):
                commands[-1][0] = commands[-1][0][:-1] + line
            elif commands:
                commands[-1][1].append(line)
        yield from ((command, shown) for command, shown in commands)


def placed(command):
    """(host, command) of each host on which it runs."""
    command, _, comment = command.partition(" # on ")
    names, _, numbers = comment.partition(" with ")
    hosts = [name.strip() for name in names.split(",")] if names else ["a"]
    if not numbers:
        return [(host, command) for host in hosts]
    flag, _, values = numbers.partition(" ")
    return [(host, re.sub(rf"{flag} \S+", f"{flag} {value.strip()}", command)) for host, value in zip(hosts, values.split(","))]


def masked(line):
    line = re.sub(r"(cores? of|on cpu) .*?, (avx\w+|sve|asimd|no vectors)", r"\1 CPU", line)
    return re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()


def is_shown(shown, printed):
    """Do the lines stand in what was printed, in this order? The first that does not, else None."""
    rest = iter([masked(line) for line in printed.splitlines()])
    for line in shown:
        if line.strip() not in ("", "...") and masked(line) not in rest:
            return line
    return None


@pytest.fixture(scope="module")
def allocation(hosts):
    with slurm.Slurm(hosts) as made:
        yield made


def test_the_page(hosts, allocation):
    prepare = (f"export PATH={BUILD}:{ROOT / '.venv/bin'}:$PATH PYTHONPATH={ROOT / 'python'} MOTLEY_PROFILE_ROUNDS=1 "
               f"SLURM_CONF={allocation.conf} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; ")
    for host in hosts:
        host.run(f"ln -sfn {ROOT} motley")
    count = 0
    for command, shown in blocks(PAGE.read_text()):
        started = [subprocess.Popen(hosts[name].command(prepare + each), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                   for name, each in placed(command)]
        printed = [process.communicate(timeout=900)[0] for process in started]
        assert [process.returncode for process in started] == [0] * len(started), f"{command}\n{''.join(printed)}"
        missing = is_shown(shown, printed[0])
        assert missing is None, f"{command}\nprints no such line: {missing}\nbut:\n{printed[0]}"
        count += 1
    assert count > 8
    nothing_runs(hosts)

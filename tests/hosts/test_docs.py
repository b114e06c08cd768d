"""Every command of docs/clusters.md, and of the tutorial's last section, run in its order on the hosts that it names; what it
prints is what the page shows (pages.py).

A command runs on the first host, or on those that a comment names: `# on b`, `# on a, b, c with --node-rank 0, 1, 2`
(side by side, a number each).
"""

import re
import subprocess

import pytest

from hosts import namespaces, slurm
from hosts.conftest import BUILD, ROOT, nothing_runs, slow
from pages import commands, files, missing_line

pytestmark = [pytest.mark.skipif(why != "", reason=why) for why in (namespaces.missing(), slurm.missing())] + [slow]

PREPARE = f"export PATH={BUILD}:{ROOT / '.venv/bin'}:$PATH PYTHONPATH={ROOT / 'python'} MOTLEY_PROFILE_ROUNDS=1; "


def placed(command):
    """(host, command) of each host on which it runs."""
    command, _, comment = command.partition(" # on ")
    names, _, numbers = comment.partition(" with ")
    hosts = [name.strip() for name in names.split(",")] if names else ["a"]
    if not numbers:
        return [(host, command) for host in hosts]
    flag, _, values = numbers.partition(" ")
    return [(host, re.sub(rf"{flag} \S+", f"{flag} {value.strip()}", command)) for host, value in zip(hosts, values.split(","))]


@pytest.fixture(scope="module")
def allocation(hosts):
    with slurm.Slurm(hosts) as made:
        yield made


def run_commands(text, hosts, prepare):
    """How many were run."""
    count = 0
    for command, shown in commands(text):
        started = [subprocess.Popen(hosts[name].command(prepare + each), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                   for name, each in placed(command)]
        printed = [process.communicate(timeout=900)[0] for process in started]
        assert [process.returncode for process in started] == [0] * len(started), f"{command}\n{''.join(printed)}"
        missing = missing_line(shown, printed[0])
        assert missing is None, f"{command}\nprints no such line: {missing}\nbut:\n{printed[0]}"
        count += 1
    return count


def test_clusters(hosts, allocation):
    for host in hosts:
        host.run(f"ln -sfn {ROOT} motley")
    variables = f"export SLURM_CONF={allocation.conf} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
    assert run_commands((ROOT / "docs/clusters.md").read_text(), hosts, PREPARE + variables) > 8
    nothing_runs(hosts)


def test_the_tutorial_s_last_section(hosts):
    """After what it needs of the sections before: the files, the data, the model."""
    text = (ROOT / "docs/tutorial.md").read_text()
    before, title, section = text.partition("## 10. Several hosts")
    assert title
    lead = hosts["a"]
    lead.run("mkdir tutorial")
    for name, content in files(before):
        (lead.home() / "tutorial" / name).write_text(content)
    for command, _ in commands(before):
        if command.startswith("python data.py") or command.startswith("python -m motley.export"):
            lead.run(f"{PREPARE}cd tutorial; {command}")
    assert run_commands(section, hosts, f"{PREPARE}cd tutorial; ") == 3
    nothing_runs(hosts)

"""Every command of docs/tutorial.md but those of several hosts (tests/hosts/test_docs.py), in an empty directory; the README's, too."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import warm
from conftest import BUILD, ROOT, SLOW
from pages import commands, files, missing_line

PAGE = ROOT / "docs/tutorial.md"


@pytest.fixture(scope="module")
def reader(environment, tmp_path_factory):
    """Runs a command as somebody does who has installed Motley; in a directory where only the files of the page are."""
    folder = tmp_path_factory.mktemp("reader")
    path = f"{BUILD}:{warm.folder()}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    for name, content in files(PAGE.read_text()):
        (folder / name).write_text(content)

    shell = environment | {"PATH": path, "GLOO_SOCKET_IFNAME": "lo"}

    def call(command):
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=shell,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)  # fmt: skip
        # torchrun's ranks have no buffer: print writes a line's end by itself, and their lines run into each other.
        done.stdout = re.sub(r"(?<=[^\n])(?=rank \d+, step)", "\n", done.stdout)
        return done

    return call


def test_each_command_prints_what_the_page_shows(reader):
    section, title, _ = PAGE.read_text().partition("## 10. Several hosts")
    assert title
    found = list(commands(section))
    for command, shown in found:
        done = reader(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        missing = missing_line(shown, done.stdout)
        assert missing is None, f"{command}\nprints no such line: {missing}\nbut:\n{done.stdout}"
    assert len(found) == 13


if SLOW:

    def test_the_readme_s_commands_from_the_sources(environment, tmp_path):
        for name, where in ((".venv", sys.prefix), ("build", BUILD), ("python", ROOT / "python"), ("examples", ROOT / "examples")):
            (tmp_path / name).symlink_to(where)
        (block,) = re.findall(r"^```\n(source [^`]*)^```$", (ROOT / "README.md").read_text(), re.M)
        done = subprocess.run(["bash", "-ec", block], cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout
        assert "\npass: " in done.stdout and done.stdout.endswith("wrote cnn.html\n")

"""What the whole-run tests share: the built programs, exported models, small clusters."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import pytest
from kept import EXPORTER, kept

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
EXAMPLES = ROOT / "examples"
DIGITS = EXAMPLES / "data/digits.npz"
TEXT = EXAMPLES / "data/devils_dictionary.bin"
SLOW = os.environ.get("MOTLEY_SLOW") == "1"  # make test-slow: sweeps are not sampled


# What takes long and is about what other tests are about, too.
slow = pytest.mark.skipif(not SLOW, reason="make test-slow runs it")


def turn_of_commit():
    """Which third of the sweeps this commit tests: MOTLEY_SAMPLE, else a number from the commit's name."""
    if "MOTLEY_SAMPLE" in os.environ:
        return int(os.environ["MOTLEY_SAMPLE"])
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return int(commit or "0", 16) % 3


TURN = turn_of_commit()


def sampled(cases, turn=0):
    """Every third one, one at least, others with another commit; sweeps of three turns have all. All with make test-slow."""
    cases = list(cases)
    return cases if SLOW else cases[(turn + TURN) % min(3, len(cases)) :: 3]


def pytest_configure(config):
    config.addinivalue_line("markers", "timed: its outcome depends on how fast devices are, so it has the machine to itself")


CLUSTER = """schema = "motley.cluster/1"
name = "three"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  speed = 0.8
[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
  speed = 0.4
[[node]]
name = "c"
  [[node.device]]
  kind = "cpu"
  speed = 0.2
"""


@dataclass
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self):
        return json.loads(self.stdout)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    return tmp_path_factory.mktemp("motley")


@pytest.fixture(scope="session")
def environment(workspace):
    """Profiles are made in one quick round: no test compares times with a stopwatch."""
    return dict(
        os.environ,
        PYTHONPATH=str(ROOT / "python"),
        MOTLEY_PROFILES=str(workspace / "profiles.db"),
        MOTLEY_PROFILE_ROUNDS="1",
        OMP_NUM_THREADS="1",
        XDG_CACHE_HOME=str(workspace / "cache"),
    )


@pytest.fixture(scope="session")
def motley(environment):
    """Calls build/motley; a hang is a failure."""

    def call(*arguments, timeout=240, env=None, cwd=None):
        done = subprocess.run(
            [str(BUILD / "motley"), *map(str, arguments)],
            capture_output=True, text=True, timeout=timeout, env=dict(environment, **(env or {})), cwd=cwd,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def profiled(motley, environment):
    """profiled(model, cluster, *flags): the session's profile store has their times, measured once for these programs.

    They may have been measured beside other work. A test that compares times takes a profile of its own.
    """

    def measure(words, path):
        outcome = motley("profile", *words, env={"MOTLEY_PROFILES": str(path)})
        assert outcome.code == 0, outcome.stderr

    def call(model, cluster, *flags):
        programs = [BUILD / "motley", BUILD / "motley-worker"]
        words = ["-m", model, "-C", cluster, *flags]
        store = kept(["profile", *programs, pathlib.Path(model), pathlib.Path(cluster), flags], partial(measure, words))
        own = pathlib.Path(environment["MOTLEY_PROFILES"])
        if not own.exists():
            shutil.copy(store, own)
            return
        with contextlib.closing(sqlite3.connect(own, timeout=60)) as database, database:
            database.execute("ATTACH ? AS kept", [str(store)])
            for table in ("op", "collective", "profiled_batch", "interference"):
                database.execute(f"INSERT OR REPLACE INTO main.{table} SELECT * FROM kept.{table}")

    return call


@pytest.fixture(scope="session")
def cluster(workspace):
    path = workspace / "three.toml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture(scope="session")
def export(workspace):
    """Model file of FILE.py:FUNCTION under examples/, exported once for all sessions (kept.py)."""

    def call(function, *flags):
        name = function.replace(".py:", "_").replace("/", "_") + "".join(flags) + ".motley"
        if not (workspace / name).exists():
            made = kept([*EXPORTER, EXAMPLES, str(EXAMPLES), function, flags], partial(export_example, function, flags, name))
            shutil.copy(made / name, workspace)
        return workspace / name

    return call


def export_example(function, flags, name, folder):
    sys.path[:0] = [str(ROOT / "python")]
    from motley import command

    folder.mkdir()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command.main([str(EXAMPLES / function), "-o", str(folder / name), "--no-cache", *flags])
    assert code == 0, said.getvalue()


@pytest.fixture(scope="session")
def mlp(export):
    return export("mlp.py:model")


@pytest.fixture(scope="session")
def cnn(export):
    return export("digits_cnn.py:model")


@pytest.fixture(scope="session")
def gpt(export):
    return export("char_gpt.py:model")

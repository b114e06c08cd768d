"""`motley demo` finds what it needs beside itself: called from anywhere, with an empty environment."""

import subprocess

from conftest import BUILD


def demo(folder, **environment):
    """As far as its first model is exported and loaded."""
    environment |= {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [BUILD / "motley", "demo", "--stop-after", "load"], cwd=folder, env=environment, capture_output=True, text=True, timeout=180)


def test_the_demo_finds_interpreter_package_and_examples(tmp_path):
    (tmp_path / "examples").mkdir()  # not those
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "motley-demo/digits_cnn.motley").stat().st_size > 4 * 147_130  # its parameters


def test_the_demo_takes_the_interpreter_that_is_named(tmp_path):
    done = demo(tmp_path, MOTLEY_PYTHON="/nowhere/python")
    assert done.returncode == 2
    assert "/nowhere/python (MOTLEY_PYTHON) is not there" in done.stderr, done.stderr
    assert not (tmp_path / "motley-demo").exists()

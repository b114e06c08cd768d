"""What is made once for all tests is made anew for whatever made it, and never seen half made."""

import multiprocessing
import os
import time

import kept as module
import pytest
from kept import kept


@pytest.fixture
def made(tmp_path):
    """asked(key_parts...): the text found, of how many makings so far."""
    count = []

    def asked(*parts):
        def make(path):
            count.append(parts)
            path.write_text(f"{len(count)}")

        return kept(parts, make, tmp_path / "cache").read_text()

    return asked


def test_the_same_parts_are_made_once(made):
    assert [made("a", 1), made("a", 1), made("a", 2), made("a1"), made("a", 1)] == ["1", "1", "2", "3", "1"]


def test_a_file_counts_by_its_contents(made, tmp_path):
    source = tmp_path / "src/net.py"
    source.parent.mkdir()
    for text, wanted in [("x", "1"), ("y", "2"), ("x", "1")]:
        source.write_text(text)
        module._contents.cache_clear()
        assert made(source) == wanted
    for name, wanted in [("net.py", "3"), ("other.py", "4"), ("net.py", "3")]:  # of a folder, names count, too
        next(source.parent.iterdir()).rename(source.parent / name)
        module._contents.cache_clear()
        assert made(source.parent) == wanted
    with pytest.raises(FileNotFoundError):
        made(tmp_path / "absent")


def test_what_fails_is_not_kept(tmp_path):
    def broken(path):
        path.write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept(["a"], broken, tmp_path)
    assert kept(["a"], lambda path: path.write_text("whole"), tmp_path).read_text() == "whole"


def _slowly(folder, counter):
    def make(path):
        path.mkdir()
        with open(counter, "a") as file:
            file.write("x")
        time.sleep(0.2)
        (path / "text").write_text("whole")

    assert (kept(["a"], make, folder) / "text").read_text() == "whole"


def test_processes_that_ask_at_once_wait_for_one(tmp_path):
    together = [multiprocessing.get_context("fork").Process(target=_slowly, args=(tmp_path / "cache", tmp_path / "n")) for _ in range(4)]
    for each in together:
        each.start()
    for each in together:
        each.join()
    assert [each.exitcode for each in together] == [0] * 4
    assert (tmp_path / "n").read_text() == "x"


def test_what_nobody_asks_for_goes(tmp_path):
    for name in ("old", "used"):
        path = kept([name], lambda path: path.write_text("1"), tmp_path)
        os.utime(path, (0, 0))
    assert kept(["used"], lambda path: path.write_text("2"), tmp_path).read_text() == "1"
    kept(["new"], lambda path: path.write_text("1"), tmp_path)
    assert kept(["used"], lambda path: path.write_text("2"), tmp_path).read_text() == "1"
    assert kept(["old"], lambda path: path.write_text("2"), tmp_path).read_text() == "2"

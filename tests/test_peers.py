"""Sends and receives among real workers: a program of a run, into which a ring of them is written."""

import json
import pathlib
import re
import signal
import subprocess
import time

import pytest

from conftest import BUILD, DIGITS

RANKS = 3


@pytest.fixture(scope="module")
def finished(motley, mlp, cluster, tmp_path_factory):
    """The run directory of three workers that have trained: their job and their program."""
    run_dir = tmp_path_factory.mktemp("peers") / "run"
    done = motley("run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--global-batch", 60, "--steps", 2,
                  "--batch-split", "30,20,10", "--run-dir", run_dir)
    assert done.code == 0, done.stderr
    return run_dir


def with_ring(program):
    """At the end of a step each rank gives its first parameter to the next one and receives one."""
    devices = re.split(r"(?m)^(?=device )", program)
    for rank, text in enumerate(devices[1:]):
        lines = text.splitlines()
        buffers = [line for line in lines if line.startswith("buffer ")]
        first = next(line for line in buffers if ": parameter " in line)
        kind = re.match(r"buffer %(\d+): parameter (\w+\[[\d, ]*\])", first)
        steps = [line for line in lines if line.startswith(("compute ", "transfer "))]
        last = max(i for i, line in enumerate(steps) if line.startswith("compute "))
        at = len(steps)
        steps += [f"peer ^{at}: motley::send(%{kind[1]}, {(rank + 1) % RANKS}) wait ^{last} \"ring\"",
                  f"peer ^{at + 1}: %{len(buffers)} = motley::receive({(rank + 2) % RANKS}) \"ring\""]
        buffers.append(f"buffer %{len(buffers)}: temporary {kind[2]}")
        devices[rank + 1] = "\n".join([lines[0], *buffers, *steps]) + "\n"
    return "".join(devices)


class Job:
    """The three workers of a job, started by hand."""

    def __init__(self, environment, finished, folder, steps, change=lambda job: None):
        run_dir = pathlib.Path(folder) / "run"
        run_dir.mkdir(parents=True)
        job = json.loads((finished / "job.json").read_text())
        program = pathlib.Path(job["program"] if "program" in job else job["program_path"])
        path = run_dir / "program"
        path.write_text(with_ring(program.read_text()))
        job.update({"run_dir": str(run_dir), "steps": steps, "resume": False, "timeout_s": 5})
        job["program" if "program" in job else "program_path"] = str(path)
        change(job)
        (run_dir / "job.json").write_text(json.dumps(job))
        self.began = time.time()
        self.workers = [
            subprocess.Popen([str(BUILD / "motley-worker"), "run", str(run_dir / "job.json"), "--rank", str(rank)],
                             env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for rank in range(RANKS)
        ]

    def wait_for_step(self, rank, step):
        for line in self.workers[rank].stdout:
            event = json.loads(line)
            assert event["event"] != "error", line
            if event["event"] == "step" and event["step"] >= step:
                return

    def end(self, rank):
        out, errors = self.workers[rank].communicate(timeout=60)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return self.workers[rank].returncode, events, errors


def test_a_ring_of_sends_runs_beside_training(environment, finished, tmp_path):
    job = Job(environment, finished, tmp_path, steps=4)
    for rank in range(RANKS):
        code, events, errors = job.end(rank)
        assert code == 0, (events, errors)
        assert events[-1]["event"] == "done" and events[-1]["steps"] == 4


def test_a_killed_peer_ends_the_others_and_is_named(environment, finished, tmp_path):
    job = Job(environment, finished, tmp_path, steps=100_000)
    job.wait_for_step(0, 5)
    job.workers[2].send_signal(signal.SIGKILL)
    killed = time.time()
    said = []
    for rank in (0, 1):
        code, events, errors = job.end(rank)
        assert code not in (0, None)
        assert events[-1]["event"] == "error", events[-1]
        said.append(events[-1]["message"])
    assert time.time() - killed < 20
    # Whoever is first names rank 2; the other one may name the first, which has ended too.
    assert any("rank 2" in text for text in said), said


@pytest.mark.parametrize("transport", ["auto", "gloo"])
def test_slow_links_take_their_time(environment, finished, tmp_path, transport):
    """Latency 0.1 s of each message; all three are under way at once, sums take the same once each."""

    def slow(job):
        job["transport"] = transport
        for device in job["devices"]:
            device["latency"] = 0.1

    job = Job(environment, finished, tmp_path, steps=5, change=slow)
    code, events, errors = job.end(0)
    assert code == 0, errors
    for rank in (1, 2):
        assert job.end(rank)[0] == 0
    sums = (tmp_path / "run/program").read_text().split("device ")[1].count("motley::all_reduce")
    steps = [event["step_s"] for event in events if event["event"] == "step"][1:]
    assert min(steps) >= 0.1 * (sums + 1) - 0.01
    assert min(steps) < 0.1 * (sums + 1) + 0.1

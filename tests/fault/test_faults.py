"""What must not hang or lose anything: a hung worker, a killed motley, a full disk, another job."""

import glob
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

import pytest
from safetensors.numpy import load_file

from conftest import BUILD, DIGITS


@pytest.fixture(scope="module", autouse=True)
def priced(profiled, mlp, cluster):
    profiled(mlp, cluster, "--global-batch", 60)


RUNNING = []


@pytest.fixture(autouse=True)
def nothing_runs_on():
    """A run that a test leaves behind, as it fails, ends with it."""
    yield
    while RUNNING:
        with RUNNING.pop() as child:
            child.kill()


class Run:
    """`motley run` of the MLP on three devices, in the background."""

    def __init__(self, environment, mlp, cluster, run_dir, *extra, steps=100_000):
        self.run_dir = pathlib.Path(run_dir)
        words = ["run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--global-batch", 60, "--steps", steps,
                 "--batch-split", "30,20,10", "--run-dir", run_dir, *extra]
        self.process = subprocess.Popen([str(BUILD / "motley"), *map(str, words)], env=environment, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        RUNNING.append(self.process)

    def wait_for_step(self, step, seconds=60):
        until = time.time() + seconds
        while not self.losses() or max(self.losses()) < step:
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.time() < until, f"no step {step} after {seconds} s"
            time.sleep(0.05)

    def losses(self):
        path = self.run_dir / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        steps = [json.loads(line) for line in lines if line.endswith("}")]
        return {step["step"]: step["loss"] for step in steps}

    def workers(self):
        """Process ids, by rank: the first number of each status file."""
        files = sorted(glob.glob(str(self.run_dir / "status/rank-*")))
        return [struct.unpack("q", pathlib.Path(file).read_bytes()[:8])[0] for file in files]

    def end(self, seconds=60):
        _, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, errors


def is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_a_hung_worker_ends_the_job_and_is_named(environment, mlp, cluster, tmp_path):
    run = Run(environment, mlp, cluster, tmp_path / "run", "--timeout", "2")
    run.wait_for_step(5)
    workers = run.workers()
    os.kill(workers[2], signal.SIGSTOP)
    code, errors = run.end()
    assert code == 1
    assert "not done after 2 s" in errors
    assert "rank 2 (c:0): step" in errors
    assert not any(map(is_running, workers))


def test_killing_motley_ends_its_workers(environment, mlp, cluster, tmp_path):
    run = Run(environment, mlp, cluster, tmp_path / "run")
    run.wait_for_step(5)
    workers = run.workers()
    assert len(workers) == 3 and all(map(is_running, workers))
    run.process.kill()
    run.end()
    until = time.time() + 10
    while any(map(is_running, workers)) and time.time() < until:
        time.sleep(0.05)
    assert not any(map(is_running, workers))


@pytest.mark.parametrize("rank", [0, 2])
def test_any_killed_worker_is_named(environment, mlp, cluster, tmp_path, rank):
    run = Run(environment, mlp, cluster, tmp_path / "run")
    run.wait_for_step(5)
    workers = run.workers()
    os.kill(workers[rank], signal.SIGKILL)
    start = time.time()
    code, errors = run.end()
    assert code == 1 and time.time() - start < 30
    name = "abc"[rank]
    assert f"rank {rank} ({name}:0) was killed by signal 9" in errors
    assert "last seen: step" in errors
    assert not any(map(is_running, workers))


def test_full_disk_keeps_the_last_checkpoint(environment, mlp, cluster, tmp_path):
    whole = Run(environment, mlp, cluster, tmp_path / "run", steps=4)
    assert whole.end()[0] == 0
    # The next run may not write files of more than 0.5 MB; the model has 1.2 MB.
    words = " ".join(f"'{word}'" for word in [
        BUILD / "motley", "run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--global-batch", 60, "--steps", 8,
        "--batch-split", "30,20,10", "--run-dir", tmp_path / "run"])
    done = subprocess.run(["bash", "-c", f"ulimit -f 500; exec {words}"], env=environment, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "checkpoint of step 8 not written" in done.stderr and "step-00000004 is kept" in done.stderr
    assert sorted(os.listdir(tmp_path / "run/checkpoint")) == ["latest", "step-00000004"]
    again = Run(environment, mlp, cluster, tmp_path / "run", steps=8)
    assert again.end()[0] == 0
    assert sorted(again.losses()) == list(range(8))


def test_a_checkpoint_of_another_training_is_refused(environment, mlp, cluster, tmp_path):
    assert Run(environment, mlp, cluster, tmp_path / "run", steps=4).end()[0] == 0
    code, errors = Run(environment, mlp, cluster, tmp_path / "run", "--seed", "7", steps=8).end()
    assert code == 2 and "belongs to another job: found seed 0, wanted 7" in errors


def overwrite(pid, pattern, value):
    """Wherever a process can write and has the pattern."""
    found = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            begin, end = (int(each, 16) for each in place.split("-"))
            memory.seek(begin)
            try:
                data = memory.read(end - begin)
            except OSError:
                continue
            at = data.find(pattern)
            while at >= 0:
                memory.seek(begin + at)
                memory.write(value)
                found += 1
                at = data.find(pattern, at + len(pattern))
    return found


def test_a_copy_that_differs_is_reported_when_the_checkpoint_is_safe(environment, mlp, cluster, tmp_path):
    """Rank 2's memory forgets a bias, which nobody trains: its first element is 3 more."""
    weights = load_file(mlp)
    name, bias = next((name, value) for name, value in weights.items() if name.endswith("bias"))
    run = Run(environment, mlp, cluster, tmp_path / "run", "--freeze", name)
    run.wait_for_step(5)
    wrong = bias.copy()
    wrong[0] += 3
    assert overwrite(run.workers()[2], bias.tobytes(), wrong.tobytes()) > 0
    run.process.send_signal(signal.SIGTERM)
    code, errors = run.end()
    assert code == 1
    said = next(line for line in errors.splitlines() if "differed" in line)
    assert f"'{name}' on rank 2 (c:0, host " in said and "differed from rank 0's by up to 3, allowed are" in said
    step = json.loads((tmp_path / "run/checkpoint/latest/state.json").read_text())["step"]
    assert f"after step {step} " in said and f"the checkpoint of step {step} is safe" in said
    saved = load_file(tmp_path / "run/checkpoint/latest/model.safetensors")
    assert (saved[name] == bias).all()
    again = Run(environment, mlp, cluster, tmp_path / "run", "--freeze", name, steps=step + 3)
    code, errors = again.end()
    assert code == 0 and f"resume from step {step}" in errors, errors

"""Motley's engine under a script's own loop: the numbers of `motley run`, bit for bit."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest
import warm
from conftest import BUILD, DIGITS

SCRIPT = f"""
import json, os, sys
import numpy as np, torch
import motley
from torch.utils.data import DataLoader, Dataset
ARRAYS = np.load({str(DIGITS)!r})
X, Y = torch.from_numpy(ARRAYS["x"]), torch.from_numpy(ARRAYS["y"])
class Digits(Dataset):
    def __init__(self, begin, end):
        self.begin, self.end = begin, end
    def __len__(self):
        return self.end - self.begin
    def __getitem__(self, i):
        return X[self.begin + i], Y[self.begin + i]
train, test = Digits(0, 1500), Digits(1500, 1797)
def loader(run, shuffle=5):
    return DataLoader(train, batch_sampler=run.batches(len(train), shuffle=shuffle))
def take(run, steps, **more):
    return [run.step(batch, **more).loss for _, batch in zip(range(steps), loader(run))]
def say(**found):
    os.write(1, json.dumps(found).encode() + bytes([10]))
"""
SPLIT = ("--batch-split", "30,20,6")


@pytest.fixture(scope="module", autouse=True)
def profile(profiled, mlp, cluster):
    """Times of one model, from which those of all others are modelled."""
    profiled(mlp, cluster, "--global-batch", 60)


@pytest.fixture(scope="module")
def by_motley(motley, cnn, cluster, tmp_path_factory):
    @functools.cache
    def call(*flags, plan=SPLIT):
        outcome = motley("run", "-m", cnn, "-C", cluster, "--data", f"{DIGITS}[:1500]", "--shuffle", 5, "--global-batch", 56,
                         "--steps", 6, "--lr", 0.05, "--profile", "model", "--eval-data", f"{DIGITS}[1500:]", "--json", "-q",
                         "--run-dir", tmp_path_factory.mktemp("run"), *plan, *flags)  # fmt: skip
        assert outcome.code == 0, outcome.stderr
        return outcome.json

    return call


@pytest.fixture
def script(tmp_path, environment, cnn, cluster):
    """Runs the body of a script; its lines of JSON."""
    run = (f"motley.Run({str(cnn)!r}, cluster={str(cluster)!r}, global_batch=56, lr=0.05, profile='model', "
           f"run_dir={str(tmp_path / 'run')!r}")  # fmt: skip

    def call(body, *command, split="batch_split='30,20,6'", env=None):
        path = tmp_path / "train.py"
        path.write_text(SCRIPT + textwrap.dedent(body).replace("RUN(", f"{run}, {split}, "))
        done = subprocess.run([*(command or [warm.python()]), str(path)], capture_output=True, text=True, timeout=240,
                              env={**environment, "MOTLEY_PROGRAM": str(BUILD / "motley"), **(env or {})}, cwd=tmp_path)  # fmt: skip
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"], done.stderr

    return call


@pytest.mark.parametrize("plan", [("batch_split='30,20,6'", SPLIT), ("planner='random', seed=8", ("--planner", "random", "--seed", 8))],
                         ids=["split", "sharded"])  # fmt: skip
def test_the_same_bits_as_motley_run(script, by_motley, plan):
    code, said, errors = script("""
        with RUN(evaluation_samples=len(test)) as run:
            losses = take(run, 6)
            found = run.evaluate(test)
            state = run.state_dict()
            say(losses=losses, loss=found.loss, metrics=found.metrics, inputs=[each.name for each in run.inputs])
        from safetensors.torch import load_file
        published = load_file(run.run_dir + "/model.safetensors")
        assert set(published) == set(state) and all(torch.equal(state[name], published[name]) for name in state)
        """, split=plan[0])  # fmt: skip
    assert code == 0, errors
    theirs = by_motley(plan=plan[1])
    assert said[0]["losses"] == theirs["losses"]
    assert {key: said[0][key] for key in ("loss", "metrics")} == {
        key: theirs["evaluations"][-1][key] for key in ("loss", "metrics")
    }


def test_a_schedule_of_ones_own_and_whole_batches(script, by_motley):
    code, said, errors = script("""
        with RUN() as run:
            order = run.batches(len(train), shuffle=5).order
            losses = []
            for step in range(6):
                chosen = order.at(range(step * 56, step * 56 + 56))
                batch = {"y": Y[chosen], "x": X[chosen]}  # the global batch, by name
                losses.append(run.step(batch, lr=0.05 * min(step, 4) / 4).loss)
            say(losses=losses)
        """)  # fmt: skip
    assert code == 0, errors
    assert said[0]["losses"] == pytest.approx(by_motley("--warmup", 4)["losses"], rel=1e-6)


def test_goes_on_where_it_stood(script, by_motley):
    code, said, errors = script("""
        with RUN() as run:
            first = take(run, 3)
            run.save()
        with RUN() as run:
            assert run.steps == 3
            say(losses=first + take(run, 3))
        """)  # fmt: skip
    assert code == 0, errors
    assert said[0]["losses"] == by_motley()["losses"]


def test_its_directory_is_its_own_until_it_ends(script, by_motley):
    code, said, errors = script("""
        import subprocess
        def consolidate():
            done = subprocess.run([os.environ["MOTLEY_PROGRAM"], "consolidate", checkpoint], capture_output=True, text=True)
            return done.returncode, done.stderr
        with RUN() as run:
            first = take(run, 3)
            checkpoint = run.save()
            refused = consolidate()
            try:
                RUN()
            except motley.RunError as error:
                say(pid=os.getpid(), refused=[str(error), refused[1]], codes=[refused[0]])
        say(codes=[consolidate()[0]])
        with RUN() as run:
            say(losses=first + take(run, 3))
        """)  # fmt: skip
    assert code == 0, errors
    for each in said[0]["refused"]:
        assert f"is in use by a run that process {said[0]['pid']} leads" in each
    assert [said[0]["codes"], said[1]["codes"]] == [[2], [0]]
    assert said[2]["losses"] == by_motley()["losses"]


def test_started_by_motley_run(script, by_motley):
    """Flags before the script count before those in it."""
    code, said, errors = script("""
        with RUN() as run:
            say(losses=take(run, 6), arguments=sys.argv[1:])
        """, str(BUILD / "motley"), "run", "--batch-split", "6,20,30",
        env={"MOTLEY_PYTHON": warm.python()})  # fmt: skip
    assert code == 0, errors
    assert said[0]["losses"] == by_motley(plan=("--batch-split", "6,20,30"))["losses"]


def test_started_by_torchrun(script, by_motley):
    """A process a device, each with its own samples; the fourth has nothing to do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--master-port", str(port), "--no-python", warm.python()]
    code, said, errors = script("""
        with RUN(evaluation_samples=len(test)) as run:
            losses = take(run, 6)
            found = run.evaluate(test)
            say(rank=run.rank, places=run.places, losses=losses, loss=found.loss)
        """, *torchrun)  # fmt: skip
    assert code == 0, errors
    theirs = by_motley()
    said.sort(key=lambda line: line["rank"])
    assert [len(line["places"]) for line in said] == [30, 20, 6]
    assert sorted(place for line in said for place in line["places"]) == list(range(56))
    assert said[0]["losses"] == theirs["losses"]
    assert {line["loss"] for line in said} == {theirs["evaluations"][-1]["loss"]}


WRONG = {
    "run.step((X[:5], Y[:5]))": "ValueError: a batch of 5 samples; wanted 56",
    "run.step((X[:56], Y[:55]))": "ValueError: inputs of [56, 55] samples",
    "run.step(X[:56])": "ValueError: a batch of 1 values; wanted 2: x, y",
    "run.step((X[:56].double(), Y[:56]))": "ValueError: input 'x': found float64[56, 1, 8, 8], wanted float32[samples, 1, 8, 8]",
    "run.evaluate(test)": "ValueError: samples to evaluate on: found 297, the run was made for 0",
}


def test_what_is_wrong_is_an_exception(script):
    code, said, errors = script(f"""
        with RUN() as run:
            for call in {list(WRONG)!r}:
                try:
                    eval(call)
                except Exception as error:
                    say(call=call, error=f"{{type(error).__name__}}: {{error}}")
            run.step((X[:56] * float("nan"), Y[:56]))
        """)
    assert code == 1
    assert "motley.run.RunError: loss is nan at step 0" in errors
    assert len(said) == len(WRONG)
    for each in said:
        assert WRONG[each["call"]] in each["error"]


def test_flags_are_those_of_motley_run(script):
    code, _, errors = script("RUN(optimiser='adam')")
    assert code == 1
    assert "--optimiser" in errors


def test_a_device_that_dies_is_named(script):
    code, said, errors = script("""
        import signal, subprocess
        run = RUN()
        take(run, 2)
        os.kill(run._workers[1].process.pid, signal.SIGKILL)
        try:
            take(run, 2)
        except motley.RunError as error:
            say(error=str(error), left=[worker.process.poll() for worker in run._workers])
        """)  # fmt: skip
    assert code == 0, errors
    assert "worker 1 was killed by signal 9" in said[0]["error"]
    assert None not in said[0]["left"]


def test_workers_end_with_the_script(script, tmp_path):
    code, said, _ = script("""
        import signal
        run = RUN()
        take(run, 1)
        say(pids=[worker.process.pid for worker in run._workers])
        os.kill(os.getpid(), signal.SIGKILL)
        """)  # fmt: skip
    assert code == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while any(map(is_running, said[0]["pids"])) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_running, said[0]["pids"]))


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

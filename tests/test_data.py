"""Data as people have it: datasets in Python, streams, tables, arrays; whatever it is, the training is the same."""

import functools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import warm
from conftest import BUILD, DIGITS, SLOW, TURN, sampled, slow

DATASETS = f"""
import os, signal, time
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
ARRAYS = np.load({str(DIGITS)!r})
X, Y = ARRAYS["x"], ARRAYS["y"]
class Digits(Dataset):
    def __len__(self):
        return len(Y)
    def __getitem__(self, i):
        return torch.from_numpy(X[i]), int(Y[i])
class Noisy(Digits):  # draws, as transforms do
    def __getitem__(self, i):
        return torch.from_numpy(X[i]) + torch.rand(()), int(Y[i])
class Slow(Digits):
    def __getitem__(self, i):
        time.sleep(0.003)
        return super().__getitem__(i)
class At100(Digits):
    def __init__(self, what):
        self.what = what
    def __getitem__(self, i):
        return self.what(*super().__getitem__(i)) if i == 100 else super().__getitem__(i)
def raising(x, y):
    raise ValueError("a bad picture")
def dying(x, y):
    os.kill(os.getpid(), signal.SIGKILL)
def hanging(x, y):
    time.sleep(1000)
def reshaped(x, y):
    return x[:, 1:], y
class Stream(IterableDataset):
    def __iter__(self):
        return iter((torch.from_numpy(x), int(y)) for x, y in zip(X, Y))
dataset, noisy, slow, stream = Digits, Noisy, Slow, Stream
def loader():
    return DataLoader(Digits(), batch_size=7, shuffle=True, num_workers=3)
def raises():
    return At100(raising)
def dies():
    return At100(dying)
def hangs():
    return At100(hanging)
def reshapes():
    return At100(reshaped)
def endless():
    while True:
        yield {{"y": int(Y[0]), "x": X[0]}}
"""
SPLIT = ("--batch-split", "30,20,6")


@pytest.fixture(scope="module", autouse=True)
def priced(profiled, mlp, cluster):
    """Times of one model, from which those of all others are modelled."""
    profiled(mlp, cluster, "--global-batch", 60)


@pytest.fixture(scope="module")
def datasets(workspace):
    path = workspace / "datasets.py"
    path.write_text(DATASETS)
    return path


@pytest.fixture(scope="module")
def python(workspace):
    """An interpreter that has PyTorch already, but for those who load, as they end with the process that started them."""
    path = workspace / "python"
    path.write_text(f'#!/bin/sh\n[ "$3" = serve ] && exec {sys.executable} "$@"\nexec {warm.python()} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def train(motley, cnn, cluster, python, tmp_path_factory):
    def call(data, *flags, steps=6, run_dir=None, plan=SPLIT):
        run_dir = run_dir or tmp_path_factory.mktemp("run")
        return motley("run", "-m", cnn, "-C", cluster, "--data", data, "--global-batch", 56, "--steps", steps, "--lr", 0.05,
                      "--profile", "model", "--run-dir", run_dir, "--python", python, "--json", "-q", *plan, *flags)  # fmt: skip

    return call


@pytest.fixture(scope="module")
def losses(train):
    """Of the file, by flags and plan."""
    return functools.cache(lambda *flags, plan=SPLIT: train(DIGITS, *flags, plan=plan).json["losses"])


@pytest.mark.parametrize("function", ["dataset", "loader"] if SLOW else [("dataset", "loader")[TURN % 2]])
def test_a_dataset_trains_as_its_file_does(train, datasets, losses, function):
    outcome = train(f"python:{datasets}:{function}", "--shuffle", 5, "--loaders", 2)
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["losses"] == losses("--shuffle", 5)


def test_slices_and_streams(train, datasets, losses):
    assert train(f"python:{datasets}:dataset[3:100]").json["losses"] == train(f"{DIGITS}[3:100]").json["losses"]
    assert train(f"python:{datasets}:stream").json["losses"] == losses()
    assert train(f"python:{datasets}:endless").code == 0
    refused = train(f"python:{datasets}:stream", "--shuffle", 5)
    assert (refused.code, "is a stream" in refused.stderr) == (2, True)


@slow
def test_transforms_draw_the_same_under_any_plan(train, datasets):
    data = f"python:{datasets}:noisy"
    first = train(data, "--shuffle", 1, "--loaders", 1)
    other = train(data, "--shuffle", 1, "--loaders", 3, plan=("--batch-split", "10,6,40"))
    assert other.json["losses"] == pytest.approx(first.json["losses"], rel=1e-5)
    assert train(data, "--shuffle", 1, "--seed", 1).json["losses"] != pytest.approx(first.json["losses"], rel=1e-3)


def test_every_rank_reads_every_sample_of_a_sharded_plan_once(train, datasets, losses):
    """Where operators are split, devices share samples: the loader still has each only once."""
    plan = ("--planner", "random", "--seed", 3)
    assert train(f"python:{datasets}:dataset", plan=plan).json["losses"] == losses(plan=plan)


def test_resume_goes_on_with_the_samples(train, datasets, losses, tmp_path):
    data = f"python:{datasets}:dataset"
    assert train(data, "--shuffle", 2, run_dir=tmp_path, steps=3).code == 0
    resumed = train(data, "--shuffle", 2, run_dir=tmp_path, plan=("--batch-split", "6,20,30"))
    assert resumed.json["losses"] == pytest.approx(losses("--shuffle", 2), rel=1e-5)
    assert train(f"python:{datasets}:stream", run_dir=tmp_path / "stream", steps=3).code == 0
    resumed = train(f"python:{datasets}:stream", run_dir=tmp_path / "stream")
    assert resumed.json["losses"] == losses()


@slow
def test_evaluations_load_their_own(train, datasets):
    flags = ("--eval-every", 3)
    ours = train(f"python:{datasets}:dataset[:1500]", "--eval-data", f"python:{datasets}:dataset[1500:]", *flags)
    theirs = train(f"{DIGITS}[:1500]", "--eval-data", f"{DIGITS}[1500:]", *flags)
    assert ours.code == 0, ours.stderr
    assert ours.json["evaluations"] == theirs.json["evaluations"]


@pytest.mark.parametrize(("function", "message"), sampled([
    ("raises", "sample 100: ValueError: a bad picture"),
    ("dies", "sample 100: loading process"),
    ("hangs", "sample 100 is not loaded after 4 s"),
    ("reshapes", "sample 100: input 'x': found float32[1, 7, 8], wanted float32[1, 8, 8]"),
], 1))  # fmt: skip
def test_what_goes_wrong_names_the_sample(train, datasets, function, message):
    outcome = train(f"python:{datasets}:{function}", "--timeout", 4)
    assert outcome.code == 1
    assert message in outcome.stderr
    assert "[run.feed]" in outcome.stderr


def test_what_is_wrong_from_the_start(train, datasets, tmp_path):
    empty = tmp_path / "empty.py"
    empty.write_text("def none():\n    return []\n")
    for data, message in [(f"python:{datasets}:nothing", 'no function "nothing"'), (f"python:{empty}:none", "holds no sample"),
                          ("python:nowhere.py:f", "nowhere.py"), ("python:f", "wanted python:FILE.py:FUNCTION")]:  # fmt: skip
        outcome = train(data)
        assert outcome.code == 2, data
        assert message in outcome.stderr


def test_waiting_for_data_is_named(train, datasets):
    outcome = train(f"python:{datasets}:slow", "--loaders", 1, steps=30)
    assert outcome.json["data_wait_share"] > 0.3
    # 56 samples of 3 ms and what the devices take in a step without waiting.
    assert 2 <= outcome.json["loaders_wanted"] <= 60


def test_arrays_in_files_of_their_own(train, losses, tmp_path):
    arrays = np.load(DIGITS)
    for name in ("x", "y"):
        np.save(tmp_path / f"{name}.npy", arrays[name])
    assert train(tmp_path).json["losses"] == losses()


def test_loading_processes_end_with_the_training(train, datasets, cnn, cluster, tmp_path, environment):
    arguments = ["run", "-m", cnn, "-C", cluster, "--data", f"python:{datasets}:slow", "--global-batch", 56, "--steps", 1000,
                 "--profile", "model", "--run-dir", tmp_path, "--python", sys.executable, *SPLIT, "--eval-data",
                 f"python:{datasets}:dataset"]  # fmt: skip
    motley = subprocess.Popen([str(BUILD / "motley"), *map(str, arguments)], env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    log = tmp_path / "log.jsonl"
    deadline = time.monotonic() + 120
    while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    leader = int(subprocess.check_output(["pgrep", "-f", f"motley-worker.*{tmp_path}.*--rank 0"]).split()[0])
    assert subprocess.run(["pgrep", "-f", f"motley.loader.*{datasets}"], stdout=subprocess.DEVNULL).returncode == 0
    os.kill(leader, signal.SIGKILL)
    assert motley.wait(60) == 1
    time.sleep(1)
    left = subprocess.run(["pgrep", "-fa", f"motley.loader.*{datasets}"], capture_output=True, text=True)
    assert left.stdout == ""


def test_verify_against_the_users_own_loop(motley, cnn, cluster, datasets, python, tmp_path):
    outcome = motley("verify", "-m", cnn, "-C", cluster, "--data", f"python:{datasets}:noisy", "--global-batch", 56, "--steps",
                     4, "--profile", "model", "--run-dir", tmp_path, "--python", python, *SPLIT, "--against", "eager",
                     "--json")  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["against"] == "eager"

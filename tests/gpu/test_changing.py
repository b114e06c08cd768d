"""Runs that change while they train, with a GPU: splits, batches and plans found online, devices that are lost and come back."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest

from conftest import BUILD, DIGITS
from gpu.test_gpu import SGD, run


def conditions(folder, **what):
    path = folder / "conditions.json"
    path.write_text(json.dumps({"schema": "motley.conditions/1", **what}))
    return path


@pytest.fixture
def mixed(make_cluster):
    return make_cluster(("g", "cuda"), ("c", "cpu"), name="mixed.toml")


@pytest.fixture
def twice(make_cluster):
    return make_cluster(("a", "cuda"), ("b", "cuda"), name="twice.toml")


def decisions(run_dir):
    return [json.loads(line) for line in (run_dir / "decisions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("lost", ["g:0", "c:0"])
def test_a_device_is_lost(motley, mlp, mixed, one_cpu, tmp_path, lost):
    """16. A run goes on when its GPU is lost, or the CPU beside it, and the losses do not show it."""
    wanted = run(motley, mlp, one_cpu, tmp_path / "cpu")["losses"]
    faults = conditions(tmp_path, faults=[{"device": lost, "step": 7, "instruction": 3}])
    found = run(motley, mlp, mixed, tmp_path / "run", "--elastic", "--adapt", "none", "--batch-split", "40,20", "--conditions", faults)
    (event,) = json.loads((tmp_path / "run/summary.json").read_text())["membership"]
    assert event["lost"] == [lost] and event["lost_steps"] <= 1
    assert np.allclose(found["losses"], wanted, rtol=1e-4)


def test_a_device_is_lost_and_comes_back(motley, cnn, twice, one_gpu, tmp_path):
    """16. A worker on a GPU is lost and another one takes its place; batch norm and all."""
    wanted = run(motley, cnn, one_gpu, tmp_path / "one", steps=100)["losses"]
    away = conditions(tmp_path, absences=[{"device": "b:0", "from_s": 0.2, "until_s": 1}])
    found = run(motley, cnn, twice, tmp_path / "run", "--elastic", "--adapt", "none", "--conditions", away, steps=5000)
    events = json.loads((tmp_path / "run/summary.json").read_text())["membership"]
    assert [each["lost"] for each in events][:1] == [["b:0"]] and any(each["joined"] for each in events), events
    assert np.allclose(found["losses"][:100], wanted, rtol=1e-2)


def test_the_split_is_found(motley, mlp, mixed, one_cpu, tmp_path):
    """17. A split between a GPU and a CPU is learned from events of the GPU's stream."""
    wanted = run(motley, mlp, one_cpu, tmp_path / "cpu", batch=1200, steps=40)["losses"]
    found = run(motley, mlp, mixed, tmp_path / "run", "--adapt", "split", "--batch-split", "600,600", batch=1200, steps=40)
    assert np.allclose(found["losses"], wanted, rtol=1e-3)
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert any(each["action"]["do"] == "split" for each in decisions(tmp_path / "run")), log[-1]


def test_the_plan_is_found(motley, mlp, mixed, one_cpu, tmp_path):
    """17. The best few plans of a GPU and a CPU are tried in turn."""
    wanted = run(motley, mlp, one_cpu, tmp_path / "cpu", batch=600, steps=40)["losses"]
    found = run(motley, mlp, mixed, tmp_path / "run", "--adapt", "plan", batch=600, steps=40)
    assert np.allclose(found["losses"], wanted, rtol=1e-3)


def test_the_batch_is_found(motley, mlp, one_gpu, one_cpu, tmp_path):
    """17. The noise of a GPU's gradients is that of a CPU's, and its batch grows."""
    noise = {}
    for cluster in (one_cpu, one_gpu):
        run(motley, mlp, cluster, tmp_path / cluster.stem, "--adapt", "batch", "--batch-limits", "60:60", steps=40)
        log = [json.loads(line) for line in (tmp_path / cluster.stem / "log.jsonl").read_text().splitlines()]
        noise[cluster.stem] = {
            line["step"]: [line["noise"]["squared_norm"], *(piece["squared_norm"] for piece in line["noise"]["pieces"])]
            for line in log if line.get("noise")
        }  # fmt: skip
    both = noise["cpu"].keys() & noise["gpu"].keys()  # not each step is measured
    assert len(both) > 4 and all(np.allclose(noise["cpu"][step], noise["gpu"][step], rtol=1e-2) for step in both)
    run(motley, mlp, one_gpu, tmp_path / "grows", "--adapt", "batch", steps=200)
    assert any(each["action"]["do"] == "batch" for each in decisions(tmp_path / "grows"))


def test_a_gpu_comes_to_a_run_that_has_not_named_it(motley, mlp, environment, one_cpu, tmp_path):
    """16. A machine's GPU joins a run on CPUs while that trains."""
    run_dir = tmp_path / "run"
    words = ["run", "-m", mlp, "-C", one_cpu, "--data", DIGITS, "--global-batch", 60, "--steps", 10**6, "--profile", "model",
             "--run-dir", run_dir, "--elastic", "--adapt", "none", *SGD]  # fmt: skip
    with subprocess.Popen([str(BUILD / "motley"), *map(str, words)], stderr=subprocess.PIPE, text=True, env=environment) as training:
        end = time.monotonic() + 60
        while not (run_dir / "log.jsonl").exists() and training.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        come = motley("join", run_dir, "--device", "cuda", "--name", "d", "--json", timeout=120)
        time.sleep(1)
        training.send_signal(signal.SIGTERM)
        _, errors = training.communicate(timeout=60)
    assert come.code == 0 and come.json["device"] == "d:0", come.stdout + come.stderr + errors
    events = json.loads((run_dir / "summary.json").read_text())["membership"]
    assert [each["joined"] for each in events] == [["d:0"]]

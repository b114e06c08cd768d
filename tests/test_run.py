"""Training: parity with PyTorch, checkpoints, signals, killed workers. Messages: motley/cli/verbs/verb_run_test.cc."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from conftest import BUILD, DIGITS, EXAMPLES, TEXT, sampled


def arguments(model, cluster, run_dir, *, steps=10, batch=60, data=DIGITS, extra=()):
    return ["run", "-m", model, "-C", cluster, "--data", data, "--global-batch", batch, "--steps", steps,
            "--run-dir", run_dir, *extra]


def reference(function, path, *, data=DIGITS, batch=60, steps=20, extra=()):
    """Losses of PyTorch's own loop; its model goes to `path`."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "reference.py", EXAMPLES / function, "--data", data, "--global-batch", str(batch),
         "--steps", str(steps), "-o", path, "--json", *map(str, extra)],
        capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["losses"]


def worst_difference(path, expected):
    ours, theirs = load_file(path), load_file(expected)
    worst = 0.0
    for name, tensor in theirs.items():
        difference = np.linalg.norm(ours[name].astype(np.float64) - tensor.astype(np.float64))
        norm = np.linalg.norm(tensor.astype(np.float64))
        worst = max(worst, difference / norm if norm > 0 else difference)
    return worst


SPLIT = ["--batch-split", "30,20,10"]
PARITY = [
    ("mlp.py:model", ["--optimizer", "sgd", "--lr", "0.05"]),
    ("mlp.py:model", ["--optimizer", "sgd", "--lr", "0.02", "--momentum", "0.9"]),
    ("mlp.py:model", ["--optimizer", "sgd", "--lr", "0.05", "--transport", "gloo"]),
    ("digits_cnn.py:model", ["--optimizer", "sgd", "--lr", "0.05"]),
]


@pytest.mark.parametrize("function, flags", sampled(PARITY), ids=lambda value: "-".join(value) if isinstance(value, list) else value)
def test_three_unequal_devices_equal_pytorch(motley, export, cluster, workspace, tmp_path, function, flags):
    theirs = flags[:flags.index("--transport")] if "--transport" in flags else flags
    losses = reference(function, tmp_path / "reference.safetensors", extra=theirs)
    outcome = motley(*arguments(export(function), cluster, tmp_path / "run", steps=20, extra=[*SPLIT, *flags, "--json"]))
    assert outcome.code == 0, outcome.stderr
    answer = outcome.json
    assert len(answer["devices"]) == 3
    assert np.allclose(answer["losses"], losses, rtol=1e-5)
    assert worst_difference(tmp_path / "run/model.safetensors", tmp_path / "reference.safetensors") < 1e-5
    for key in "steps losses step_s_median predicted_step_s checkpoint devices lost_steps".split():
        assert key in answer


@pytest.mark.parametrize("optimizer", sampled(["adam", "adamw"], 1))
def test_adaptive_optimizers_follow_pytorch(motley, mlp, cluster, tmp_path, optimizer):
    flags = ["--optimizer", optimizer, "--lr", "0.001"]
    losses = reference("mlp.py:model", tmp_path / "reference.safetensors", extra=flags)
    answer = motley(*arguments(mlp, cluster, tmp_path / "run", steps=20, extra=[*SPLIT, *flags, "--json"])).json
    assert np.allclose(answer["losses"], losses, rtol=1e-3)  # Adam divides by tiny second moments at first


def test_verify_dropout_and_batch_norm(motley, gpt, cnn, cluster, tmp_path):
    outcome = motley("verify", "-m", gpt, "-C", cluster, "--data", TEXT, "--seq", 64, "--global-batch", 14,
                     "--batch-split", "8,4,2", "--steps", 5, "--run-dir", tmp_path / "gpt", "--json")
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert outcome.json["pass"] and outcome.json["max_param_diff"] < 1e-5
    outcome = motley("verify", "-m", cnn, "-C", cluster, "--data", DIGITS, "--global-batch", 28,
                     "--batch-split", "16,8,4", "--steps", 5, "--run-dir", tmp_path / "cnn", "--batch-norm", "local", "--json")
    assert outcome.code == 5  # local statistics are another model: verify must notice
    assert not outcome.json["pass"]


def test_verify_knows_what_rounding_decides(motley, export, cluster, tmp_path):
    """The gradient of a bias before a batch norm is 0 but for rounding, whose sign Adam follows."""
    model = tmp_path / "net.py"
    model.write_text("""
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10))
    def forward(self, x, y):
        z = self.net(x)
        return nn.functional.cross_entropy(z, y), z
def model():
    torch.manual_seed(11)
    return Net(), (torch.rand(4, 1, 8, 8), torch.randint(0, 10, (4,)))
""")
    path = export(f"{model}:model")
    outcome = motley("verify", "-m", path, "-C", cluster, "--data", DIGITS, "--global-batch", 28, "--batch-split", "16,8,4", "--steps", 5,
                     "--optimizer", "adam", "--lr", 0.01, "--run-dir", tmp_path / "run", "--json")  # fmt: skip
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert outcome.json["worst_tensor"] in ("net.0.bias", "net.1.running_mean")
    assert outcome.json["param_limit"] > outcome.json["max_param_diff"] > 1e-5


def test_run_directory_report_and_trace(motley, mlp, cluster, tmp_path):
    run_dir = tmp_path / "run"
    assert motley(*arguments(mlp, cluster, run_dir)).code == 0
    for name in "plan.json program.txt job.json log.jsonl summary.json model.safetensors".split():
        assert (run_dir / name).exists(), name
    outcome = motley("report", run_dir)
    assert outcome.code == 0 and "predicted" in outcome.stdout and "measured" in outcome.stdout
    # The figures that the run itself named.
    summary = json.loads((run_dir / "summary.json").read_text())
    step, peak = (re.search(rf"  {name} +(.*)%", outcome.stdout)[1].split() for name in ("step time", "peak memory a:0"))
    assert float(step[-1]) == pytest.approx(100 * (summary["predicted_step_s"] / summary["step_s_median"] - 1), abs=0.06)
    device = summary["devices"][0]
    assert float(peak[-1]) == pytest.approx(100 * (device["predicted_peak_bytes"] / device["peak_bytes"] - 1), abs=0.06)
    assert motley("trace", run_dir).code == 0
    events = json.loads((run_dir / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X"}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(run_dir / "tb"))
    accumulator.Reload()
    assert len(accumulator.Scalars("loss_metrics/global_avg_loss")) == 10


def test_rerun_continues_and_equals_an_undisturbed_run(motley, mlp, cluster, tmp_path):
    flags = [*SPLIT, "--momentum", "0.9", "--json"]
    whole = motley(*arguments(mlp, cluster, tmp_path / "whole", steps=12, extra=flags)).json
    assert motley(*arguments(mlp, cluster, tmp_path / "parts", steps=5, extra=flags)).code == 0
    parts = motley(*arguments(mlp, cluster, tmp_path / "parts", steps=12, extra=flags)).json
    assert parts["first_step"] == 5 and parts["losses"] == whole["losses"]
    assert (tmp_path / "whole/model.safetensors").read_bytes() == (tmp_path / "parts/model.safetensors").read_bytes()


NOISY = """
import torch
from torch import nn
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)
    def forward(self, x, y):
        x = x.flatten(1)
        return nn.functional.cross_entropy(self.fc(x + 0.1 * torch.randn_like(x)), y)
def model():
    torch.manual_seed(0)
    return Noisy(), (torch.rand(4, 1, 8, 8), torch.randint(10, (4,)))
"""


def test_random_numbers_are_those_of_one_device_and_of_pytorch(motley, export, cluster, workspace, tmp_path):
    """Under any plan, in a run that is continued, and with other seeds others."""
    source = workspace / "noisy.py"
    source.write_text(NOISY)
    model = export(f"{source}:model")
    run = ["run", "-m", model, "-C", cluster, "--data", DIGITS, "--global-batch", 12, "--json"]
    whole = motley(*run, "--steps", 6, "--batch-split", "12,0,0", "--run-dir", tmp_path / "whole").json
    assert len(set(whole["losses"])) == 6
    split = ["--batch-split", "6,4,2"]
    assert motley(*run, *split, "--steps", 2, "--run-dir", tmp_path / "parts").code == 0
    parts = motley(*run, *split, "--steps", 6, "--run-dir", tmp_path / "parts").json
    assert parts["first_step"] == 2 and np.allclose(parts["losses"], whole["losses"], rtol=1e-5)
    other = motley(*run, "--steps", 6, "--seed", 1, "--run-dir", tmp_path / "other").json
    assert other["losses"] != whole["losses"]
    # The same samples and parameters in every step: what differs is drawn.
    few = {name: values[:12] for name, values in np.load(DIGITS).items()}
    np.savez(tmp_path / "few.npz", **few)
    run[run.index(DIGITS)] = tmp_path / "few.npz"
    still = [*run, "--lr", 0, "--steps", 3, "--run-dir", tmp_path / "still"]
    assert len(set(motley(*still).json["losses"])) == 3


def start(environment, *words):
    return subprocess.Popen([str(BUILD / "motley"), *map(str, words)], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_steps(run_dir, count, timeout=60):
    log = run_dir / "log.jsonl"
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if log.exists() and len(log.read_text().splitlines()) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} steps within {timeout} s")


def worker_pid(run_dir, rank):
    return int.from_bytes((run_dir / f"status/rank-{rank}").read_bytes()[:8], "little")



def test_links_are_held_by_the_workers(motley, mlp, cluster, tmp_path):
    linked = tmp_path / "linked.toml"
    linked.write_text(cluster.read_text() + '[[link]]\nall = true\nbandwidth = "10Gbps"\nlatency = "1ms"\n')
    outcome = motley(*arguments(mlp, linked, tmp_path / "run", steps=4, extra=[*SPLIT, "--json"]))
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["step_s_median"] > 1e-3  # a step has an exchange at least


def test_sigterm_leaves_a_checkpoint_and_exit_75(motley, environment, mlp, cluster, tmp_path):
    run_dir = tmp_path / "run"
    process = start(environment, *arguments(mlp, cluster, run_dir, steps=100000, extra=SPLIT))
    wait_for_steps(run_dir, 5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=40)
    assert process.returncode == 75
    done = len((run_dir / "log.jsonl").read_text().splitlines())
    answer = motley(*arguments(mlp, cluster, run_dir, steps=done + 3, extra=[*SPLIT, "--json"])).json
    assert answer["first_step"] == done and answer["lost_steps"] == 0


@pytest.mark.parametrize("transport", ["auto", "gloo"])
def test_killed_worker_is_named_and_the_rerun_is_the_same(transport, motley, environment, mlp, cluster, tmp_path):
    common = [*SPLIT, "--transport", transport]
    whole = motley(*arguments(mlp, cluster, tmp_path / "whole", steps=40, extra=[*common, "--json"])).json
    run_dir = tmp_path / "run"
    flags = [*common, "--checkpoint-every", 10]
    process = start(environment, *arguments(mlp, cluster, run_dir, steps=100000, extra=flags))
    wait_for_steps(run_dir, 15)
    begin = time.monotonic()
    os.kill(worker_pid(run_dir, 2), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert time.monotonic() - begin < 30
    assert "c:0" in errors and "signal 9" in errors and "step" in errors
    done = len((run_dir / "log.jsonl").read_text().splitlines())
    steps = max(40, done)
    answer = motley(*arguments(mlp, cluster, run_dir, steps=steps, extra=[*common, "--json"])).json
    assert answer["first_step"] % 10 == 0 and answer["first_step"] > 0
    assert answer["losses"][:40] == whole["losses"][:40]


def test_nan_loss_is_exit_1(motley, mlp, cluster, tmp_path):
    outcome = motley(*arguments(mlp, cluster, tmp_path / "run", steps=200, extra=["--lr", "1e12"]))
    assert outcome.code == 1 and "loss" in outcome.stderr and "nan" in outcome.stderr.lower()


def test_corrupt_checkpoint_is_exit_2(motley, mlp, cluster, tmp_path):
    run_dir = tmp_path / "run"
    assert motley(*arguments(mlp, cluster, run_dir, steps=3)).code == 0
    path = min((run_dir / "checkpoint/latest").glob("model*.safetensors"))  # one, or one a rank
    os.truncate(path, 1000)
    outcome = motley(*arguments(mlp, cluster, run_dir, steps=6))
    assert outcome.code == 2 and path.name in outcome.stderr


def test_under_torchrun(environment, motley, mlp, cluster, tmp_path):
    flags = [*SPLIT, "--json"]
    local = motley(*arguments(mlp, cluster, tmp_path / "local", steps=6, extra=flags)).json
    words = arguments(mlp, cluster, tmp_path / "torchrun", steps=6, extra=flags)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "3", "--master-port", "29611",
         str(BUILD / "motley"), *map(str, words)],
        capture_output=True, text=True, timeout=120, env=environment,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    assert answer["losses"] == local["losses"]

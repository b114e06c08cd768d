"""Evaluations of a training beside PyTorch's in eval mode, whatever the plan."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from conftest import DIGITS, ROOT, sampled
from safetensors.torch import load_file

sys.path[:0] = [str(ROOT / "examples")]

import digits_cnn  # noqa: E402

TRAIN, TEST = f"{DIGITS}[:1500]", f"{DIGITS}[1500:]"  # 297 samples: five batches of 56 and 17 left


def train(motley, cnn, cluster, run_dir, *flags, steps=6, answer=("--json", "-q")):
    data = [] if "--eval-data" in flags else ["--eval-data", TEST]
    return motley("run", "-m", cnn, "-C", cluster, "--data", TRAIN, "--global-batch", 56, "--steps", steps, "--lr", 0.05,
                  "--momentum", 0.9, *data, "--profile", "model", "--run-dir", run_dir, *answer, *flags)  # fmt: skip


def by_pytorch(model):
    """Loss and metrics of a trained model."""
    module, _ = digits_cnn.model()
    module.load_state_dict(load_file(model))
    module.eval()
    arrays = np.load(DIGITS)
    x, y = (torch.from_numpy(arrays[name][1500:]) for name in ("x", "y"))
    with torch.no_grad():
        result = module(x, y)
    return result["loss"].item(), {name: (result[name][0] / result[name][1]).item() for name in ("accuracy", "top3")}


@pytest.fixture(scope="module", autouse=True)
def priced(profiled, mlp, cluster):
    """Times of one model, from which those of all others are modelled."""
    profiled(mlp, cluster, "--global-batch", 60)


@pytest.mark.parametrize("plan", [["--batch-split", "30,20,6"], ["--batch-split", "56,0,0"],
                                  ["--planner", "random", "--seed", 8], *(["--planner", "random", "--seed", seed] for seed in sampled((3, 7, 33, 42)))], ids=str)  # fmt: skip
def test_evaluations_are_pytorchs(motley, cnn, cluster, tmp_path, plan):
    outcome = train(motley, cnn, cluster, tmp_path / "run", "--eval-every", 4, "--best", "accuracy", *plan)
    assert outcome.code == 0, outcome.stderr
    evaluations = outcome.json["evaluations"]
    assert [each["step"] for each in evaluations] == [4, 6]
    loss, metrics = by_pytorch(tmp_path / "run/model.safetensors")
    assert evaluations[-1]["loss"] == pytest.approx(loss, rel=1e-5)
    assert evaluations[-1]["metrics"] == pytest.approx(metrics, abs=1e-6)
    best = max(evaluations, key=lambda each: (each["metrics"]["accuracy"], -each["step"]))
    assert outcome.json["best"] == best
    loss, metrics = by_pytorch(tmp_path / "run/model_best.safetensors")
    assert best["loss"] == pytest.approx(loss, rel=1e-5)
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [line["evaluation"] for line in log if "evaluation" in line] == evaluations


def test_patience_ends_a_training_and_a_resumed_one_knows(motley, cnn, cluster, tmp_path):
    # The loss falls, so that the first evaluation has the highest one.
    flags = ["--batch-split", "30,20,6", "--eval-every", 2, "--patience", 2, "--best", "loss:max"]
    part = train(motley, cnn, cluster, tmp_path / "run", *flags, steps=4).json
    assert [each["step"] for each in part["evaluations"]] == [2, 4]
    whole = train(motley, cnn, cluster, tmp_path / "run", *flags, steps=40).json
    assert whole["first_step"] == 4 and whole["steps"] == 6
    assert [each["step"] for each in whole["evaluations"]] == [2, 4, 6]
    assert whole["best"]["step"] == 2
    assert os.readlink(tmp_path / "run/checkpoint/best") == "step-00000002"
    # The same again: nothing is left to do.
    again = train(motley, cnn, cluster, tmp_path / "run", *flags, steps=40).json
    assert again["steps"] == 6 and again["first_step"] == 6
    said = train(motley, cnn, cluster, tmp_path / "run", *flags, steps=40, answer=()).stdout
    metrics = ", ".join(f"{name} {value:.5g}" for name, value in whole["best"]["metrics"].items())
    assert said.endswith(
        f"model      {tmp_path}/run/model.safetensors\n"
        "ended after step 6 of 40: 2 evaluations without a better loss\n"
        f"best       {tmp_path}/run/model_best.safetensors, after step 2: loss {whole['best']['loss']:.5f}, {metrics}\n"
    )


BAD = [
    (["--patience", 2], "--patience wants --eval-every N"),
    (["--eval-data", "nothing.npz"], "nothing.npz"),
    (["--eval-data", f"{DIGITS}[5000:]"], "the slice has no sample; the data has 1797"),
]  # fmt: skip


@pytest.mark.parametrize("flags, message", BAD, ids=lambda value: str(value)[:20])
def test_what_cannot_be_evaluated_is_said_before_training(motley, cnn, cluster, tmp_path, flags, message):
    outcome = train(motley, cnn, cluster, tmp_path / "run", "--batch-split", "30,20,6", *flags)
    assert outcome.code == 2
    assert message in outcome.json["error"]["message"]

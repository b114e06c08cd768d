"""Runs of small models under random plans, beside one device: what the parity test and its
benchmark share."""

import copy
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import torch
from conftest import BUILD, ROOT
from kept import kept_model
from safetensors.torch import load_file

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]

import families  # noqa: E402
import motley  # noqa: E402
from motley.draws import DrawnEagerly  # noqa: E402
from motley.eager import Loop  # noqa: E402
from motley.schedule import factor  # noqa: E402
from motley.philox import PhiloxDraws  # noqa: E402

# Float32 only.
NAMES = [family.__name__ for family in families.FAMILIES if family is not families.bf16]
RANDOM = {"bert", "vgg", "label_smoothing", "gpt_dropout"}
STEPS, BATCH, LR = 20, 4, 0.02
LIMIT = 1e-5  # of the tensor's norm
SGD = {"kind": "sgd", "lr": LR, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0,
       "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}  # fmt: skip


@dataclass
class Result:
    losses: list[float]
    state: dict[str, torch.Tensor]
    averages: dict[str, torch.Tensor] = field(default_factory=dict)


class Trained:
    """A model, its data, and what one device makes of them."""

    steps, batch, lr = STEPS, BATCH, LR
    profile = "model"  # of `motley run`: what is not measured is taken from what other models took
    is_random = False  # it draws: its losses depend on the seed

    def __init__(self, name, made, folder, place):
        """`made`: (module, inputs); `place`: cluster and environment."""
        self.name, self.folder = name, folder / name
        self.cluster, self.environment = place
        self.folder.mkdir(parents=True, exist_ok=True)
        self.module, self.inputs = made
        self.path = self.folder / "model.motley"
        self.export()
        self.data = self.folder / "data.npz"
        np.savez(self.data, **{f"x{i}": value.numpy() for i, value in enumerate(self.inputs)})
        self._references = {}

    def export(self):
        self.exported = motley.export(copy.deepcopy(self.module), self.inputs, self.path, name=self.name)

    def run(self, run_dir, seed, *flags, steps=None):
        """`motley run`; its answer, with the trained model."""
        words = [
            "run", "-m", self.path, "-C", self.cluster, "--data", self.data, "--global-batch", self.batch,
            "--steps", steps or self.steps, "--profile", self.profile, "--seed", seed,
            "--run-dir", self.folder / run_dir, "--json", "-q", *flags,
            *([] if "--lr" in flags else ["--lr", self.lr]),
        ]  # fmt: skip
        done = subprocess.run(
            [str(BUILD / "motley"), *map(str, words)],
            capture_output=True, text=True, timeout=240, env=self.environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (self.name, seed, done.stdout, done.stderr)
        answer = json.loads(done.stdout)
        return Result(answer["losses"], load_file(self.folder / run_dir / "model.safetensors"))

    def plan(self, run_dir):
        return json.loads((self.folder / run_dir / "plan.json").read_text())

    def reference(self, seed):
        """One device: PyTorch, with the random numbers of a run with this seed."""
        key = seed if self.is_random else None
        if key not in self._references:
            self._references[key] = self.eager(seed=seed)
        return self._references[key]

    def forget(self):
        """Of another learning rate the reference is another."""
        self._references = {}

    def eager(self, before_step=lambda module: None, plan=None, schedule=None, seed=0):
        """PyTorch's own loop on a copy of the module, with SGD or a plan's recipe and a job's
        schedule; `before_step` may change the module."""
        module = copy.deepcopy(self.module)
        loop = Loop(module, plan or {"optimizer": SGD | {"lr": self.lr}})
        losses = []
        for step in range(self.steps):
            rows = [(step * self.batch + i) % len(self.inputs[0]) for i in range(self.batch)]
            before_step(module)
            rate = factor(schedule, step) if schedule else 1.0
            with DrawnEagerly(PhiloxDraws(seed, step)):
                losses.append(loop.step([value[rows] for value in self.inputs], rate))
        return Result(losses, module.state_dict(), loop.averages())


class Family(Trained):
    """A model of examples/families.py."""

    def __init__(self, name, folder, cluster, environment):
        self.is_random = name in RANDOM
        super().__init__(name, getattr(families, name)(), folder, (cluster, environment))

    def export(self):
        """Once for all tests (kept.py)."""
        folder = kept_model(self.name, getattr(families, self.name), ROOT / "examples/families.py")
        shutil.copy(folder / f"{self.name}.motley", self.path)


def profile(cluster, folder, environment):
    """Times of one model, from which those of all others are modelled."""
    model = folder / "mlp.motley"
    export = [sys.executable, "-m", "motley.export", ROOT / "examples/mlp.py:model", "-o", model]
    subprocess.run(export, check=True, capture_output=True, env=environment)
    words = [BUILD / "motley", "profile", "-m", model, "-C", cluster, "--global-batch", "60", "-q"]
    subprocess.run(words, check=True, capture_output=True, env=environment)


def differences(found, wanted):
    """Of the losses, the largest of any step; of the parameters and buffers, the largest and its
    name. Relative; of tensors to their norm."""
    assert len(found.losses) == len(wanted.losses)
    loss = max(abs(a - b) / abs(b) for a, b in zip(found.losses, wanted.losses, strict=True))
    worst, where = 0.0, ""
    for name, value in found.state.items():
        other = wanted.state[name].double()
        difference = ((value.double() - other).norm() / other.norm().clamp(min=1e-3)).item()
        if difference >= worst:
            worst, where = difference, name
    return loss, worst, where

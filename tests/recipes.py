"""Recipes drawn at random, run under random plans and compared with PyTorch's own loop: what the
test and its benchmark share."""

import json

import numpy as np
import torch
from motley.rounding import change_last_bits
from parity import LIMIT, Family, differences
from safetensors.torch import load_file

torch.set_num_threads(1)  # other tests run beside these: threads that wait for each other would wait for them, too

# Those that draw nothing.
FAMILIES = ["mlp", "cnn", "gpt_tied", "vit", "moe", "recommender"]
# Optimizer: its usual rate, and whether its step of an element depends on the size of a gradient
# alone where that is nearly nothing (then rounding decides, and epsilon is made larger).
OPTIMIZERS = {"sgd": 0.05, "adam": 2e-3, "adamw": 2e-3, "adagrad": 0.01, "rmsprop": 1e-3,
              "lion": 2e-4, "lamb": 0.01, "adafactor": 0.01, "muon": 0.01}  # fmt: skip
WITH_EPS = {"adam", "adamw", "adagrad", "rmsprop", "lamb"}
SCHEDULES = ["constant", "linear", "cosine:0.1", "step:5:0.5", "one-cycle"]


def draw_recipe(seed: int, kind: str | None = None) -> list[str]:
    """Flags of `motley run`."""
    draw = np.random.default_rng(seed)
    kind = kind or draw.choice(list(OPTIMIZERS))
    flags = ["--optimizer", kind, "--lr", OPTIMIZERS[kind] * draw.choice([0.5, 1.0])]
    if kind in WITH_EPS:
        flags += ["--eps", 1e-2]
    if kind in ("sgd", "rmsprop") and draw.random() < 0.7:
        flags += ["--momentum", 0.9]
    if draw.random() < 0.5:
        flags += ["--weight-decay", draw.choice([0.0, 0.1])]
    flags += ["--schedule", draw.choice(SCHEDULES), "--warmup", draw.choice([0, 3])]
    clip = draw.choice(["none", "--clip-norm", "--clip-value"])
    if clip != "none":
        flags += [clip, {"--clip-norm": 0.5, "--clip-value": 0.01}[clip]]
    if draw.random() < 0.5:
        flags += ["--no-decay", "*.bias"]
    if draw.random() < 0.5:
        flags += ["--lr-scale", "*.weight=0.5"]
    if draw.random() < 0.3:
        flags += ["--freeze", "*.bias"]
    if draw.random() < 0.4:
        flags += ["--ema", 0.9]
    if draw.random() < 0.3:
        flags += ["--loss-scale", draw.choice(["dynamic:1024", "256"])]
    return [str(flag) for flag in flags]


def disturb(module) -> None:
    """Changes the last bit of every weight."""
    change_last_bits(module, torch.Generator().manual_seed(0))


def rounding(family: Family, run_dir: str) -> float:
    """Ten times what changes of the last bit of every weight do to PyTorch's own loop with a run's
    recipe: the most of four times, as a bfloat16 of muon's moves by 0.4 %, or not at all."""
    plan = family.plan(run_dir)
    schedule = json.loads((family.folder / run_dir / "job.json").read_text())["schedule"]
    wanted, most = family.eager(plan=plan, schedule=schedule), 0.0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        disturbed = family.eager(lambda module, g=generator: change_last_bits(module, g), plan, schedule)
        loss, worst, _ = differences(disturbed, wanted)
        most = max(most, loss, worst)
    return 10 * most


def compare_recipe(family: Family, seed: int, flags: list[str]) -> dict:
    """One run of a recipe under a random plan, beside PyTorch: differences of losses, parameters
    and averages, and the limits that they must keep: 1e-5, or ten times what changes of the last
    bit of every weight do to PyTorch's own loop."""
    found = family.run("run", seed, "--planner", "random", "--resume", "never", *flags)
    plan = family.plan("run")
    schedule = json.loads((family.folder / "run/job.json").read_text())["schedule"]
    wanted = family.eager(plan=plan, schedule=schedule)
    loss, worst, where = differences(found, wanted)
    if wanted.averages:
        averages = load_file(family.folder / "run/model_average.safetensors")
        for name, value in wanted.averages.items():
            difference = ((averages[name] - value).norm() / value.norm().clamp(min=1e-3)).item()
            if difference > worst:
                worst, where = difference, f"average of {name}"
    row = dict(loss=loss, worst=worst, where=where, limit=LIMIT)
    if max(loss, worst) > LIMIT:
        row["limit"] = max(LIMIT, rounding(family, "run"))
    row["sharded"] = "operators" in plan["replicas"][0]["regions"][0]
    row["equal"] = max(loss, worst) <= row["limit"]
    return row

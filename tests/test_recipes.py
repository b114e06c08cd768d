"""Trainings with recipes under random plans follow PyTorch's own loop with the same recipe."""

import pytest
from conftest import SLOW
from parity import Family, differences
from recipes import FAMILIES, OPTIMIZERS, compare_recipe, draw_recipe
from safetensors.torch import load_file

# A kind of optimizer each, over the families in turn.
CASES = [(seed, kind, FAMILIES[seed % len(FAMILIES)]) for seed, kind in enumerate(OPTIMIZERS)]
CASES += [(seed, None, FAMILIES[seed % len(FAMILIES)]) for seed in range(9, 69)] if SLOW else []


@pytest.mark.parametrize("seed, kind, name", CASES)
def test_recipe_equals_pytorch(motley, mlp, cluster, environment, tmp_path, seed, kind, name):
    # Times of one model, from which those of all others are modelled.
    assert motley("profile", "-m", mlp, "-C", cluster, "--global-batch", 60).code == 0
    family = Family(name, tmp_path, cluster, environment)
    flags = draw_recipe(seed, kind)
    row = compare_recipe(family, seed, flags)
    assert row["equal"], (name, flags, row)


# A schedule, clipping, groups, averages and a scale that moves: all that a checkpoint must hold.
WHOLE = ["--optimizer", "adamw", "--lr", 0.002, "--eps", 1e-3, "--schedule", "cosine", "--warmup", 3, "--clip-norm", 0.5,
         "--no-decay", "*.bias", "--ema", 0.9, "--loss-scale", "dynamic:1024", "--schedule-steps", 20]  # fmt: skip


@pytest.mark.parametrize("name, optimizer", [("mlp", "adamw"), ("moe", "muon"), ("vit", "adafactor")])
def test_a_recipe_goes_on_under_another_plan(motley, mlp, cluster, environment, tmp_path, name, optimizer):
    assert motley("profile", "-m", mlp, "-C", cluster, "--global-batch", 60).code == 0
    family = Family(name, tmp_path, cluster, environment)
    flags = [flag if flag != "adamw" else optimizer for flag in WHOLE]
    if optimizer == "muon":
        flags += ["--momentum", 0.9]
    whole = family.run("whole", 1, "--planner", "random", *flags)
    half = family.run("half", 1, "--planner", "random", *flags, steps=7)
    assert half.losses == whole.losses[:7]
    # The seed is the training's; the other plan is one by samples.
    found = family.run("half", 1, "--batch-split", "1,1,2", *flags)
    assert len(found.losses) == len(whole.losses)
    loss, worst, where = differences(found, whole)
    assert loss < 1e-6 and worst < 1e-5, (loss, worst, where)
    averages = [load_file(tmp_path / name / run / "model_average.safetensors") for run in ("half", "whole")]
    for key, value in averages[1].items():
        assert (averages[0][key] - value).norm() <= 1e-5 * value.norm().clamp(min=1e-3), key

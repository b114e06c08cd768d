"""Trainings with recipes under random plans follow PyTorch's own loop with the same recipe."""

import json

import pytest
import warm
from conftest import DIGITS, EXAMPLES, SLOW, TURN, sampled
from parity import Family, differences
from recipes import FAMILIES, OPTIMIZERS, compare_recipe, draw_recipe, rounding
from safetensors.torch import load_file


@pytest.fixture(scope="module", autouse=True)
def priced(profiled, mlp, cluster):
    """Times of one model, from which those of all others are modelled."""
    profiled(mlp, cluster, "--global-batch", 60)


# A kind of optimizer each, over the families in turn.
CASES = [(seed, kind, FAMILIES[seed % len(FAMILIES)]) for seed, kind in enumerate(OPTIMIZERS)]
CASES += [(seed, None, FAMILIES[seed % len(FAMILIES)]) for seed in range(9, 69)] if SLOW else []


@pytest.mark.parametrize("seed, kind, name", sampled(CASES))
def test_recipe_equals_pytorch(cluster, environment, tmp_path, seed, kind, name):
    family = Family(name, tmp_path, cluster, environment)
    flags = draw_recipe(seed, kind)
    row = compare_recipe(family, seed, flags)
    assert row["equal"], (name, flags, row)


# A schedule, clipping, groups, averages and a scale that moves: all that a checkpoint must hold.
WHOLE = ["--optimizer", "adamw", "--lr", 0.002, "--eps", 1e-3, "--schedule", "cosine", "--warmup", 3, "--clip-norm", 0.5,
         "--no-decay", "*.bias", "--ema", 0.9, "--loss-scale", "dynamic:1024", "--schedule-steps", 20]  # fmt: skip


AGAINST = [
    ("mlp.py:model", [], ("ReLU", "Tanh")),
    ("digits_cnn.py:model", ["--optimizer", "muon", "--lr", 0.01, "--schedule", "cosine", "--warmup", 2], ("SiLU", "ReLU")),
]  # fmt: skip


@pytest.mark.parametrize("function, flags, change", AGAINST if SLOW else [AGAINST[TURN % 2]], ids=str)
def test_verify_compares_with_pytorchs_loop(motley, export, cluster, tmp_path, function, flags, change):
    words = ["verify", "-m", export(function), "-C", cluster, "--data", DIGITS, "--global-batch", 28, "--batch-split", "16,8,4",
             "--steps", 4, "--against", "eager", "--profile", "model", "--python", warm.python(), "--run-dir", tmp_path / "run", *flags]  # fmt: skip
    outcome = motley(*words, "--json")
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert outcome.json["pass"] and outcome.json["against"] == "eager"
    # Another module than the one that was exported is noticed.
    other = tmp_path / "other.py"
    other.write_text((EXAMPLES / function.split(":")[0]).read_text().replace(*change))
    outcome = motley(*words, "--source", f"{other}:model", "--json")
    assert outcome.code == 5 and not outcome.json["pass"]


@pytest.mark.parametrize("name, optimizer", sampled([("mlp", "adamw"), ("moe", "muon"), ("vit", "adafactor")], 1))
def test_a_recipe_goes_on_under_another_plan(cluster, environment, tmp_path, name, optimizer):
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
    limit = max(1e-5, rounding(family, "whole") if optimizer != "adamw" else 0)  # muon's bfloat16, adafactor's means
    assert loss < 0.1 * limit and worst < limit, (loss, worst, where)
    averages = [load_file(tmp_path / name / run / "model_average.safetensors") for run in ("half", "whole")]
    for key, value in averages[1].items():
        assert (averages[0][key] - value).norm() <= limit * value.norm().clamp(min=1e-3), key


@pytest.mark.parametrize("plan", sampled([["--batch-split", "32,16,8"], ["--planner", "spmd"], ["--planner", "random", "--seed", 2]]), ids=str)
def test_micro_batches_that_were_asked_for_change_nothing(motley, mlp, cluster, tmp_path, plan):
    words = ["-m", mlp, "-C", cluster, "--data", DIGITS, "--global-batch", 56, "--steps", 4, "--lr", 0.05, "--profile", "model", *plan]
    outcome = motley("verify", *words, "--micro-batches", 4, "--against", "eager", "--python", warm.python(),
                     "--run-dir", tmp_path / "run", "--json")  # fmt: skip
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    made = tmp_path / "run/split/plan.json"
    assert json.loads(made.read_text())["replicas"][0]["micro_batches"] % 4 == 0
    # A plan has its own number; the flag may only say the same.
    refused = motley("run", "-m", mlp, "-C", cluster, "--plan", made, "--micro-batches", 3, "--data", DIGITS, "--steps", 1)
    assert (refused.code, "plan.micro-batches" in refused.stderr) == (2, True)
    refused = motley("run", *words, "--micro-batches", 5)
    assert (refused.code, "search.micro-batches" in refused.stderr) == (2, True)


SPLIT, SHARDED = ["--batch-split", "32,16,8"], ["--planner", "spmd"]


@pytest.mark.parametrize("plan", [SPLIT, SHARDED] if SLOW else [(SPLIT, SHARDED)[TURN % 2]], ids=str)
def test_micro_batches_that_were_asked_for_have_their_own_statistics(motley, cnn, cluster, tmp_path, plan):
    """As in PyTorch's accumulation, and a run goes on from a checkpoint under another plan."""
    words = ["-m", cnn, "-C", cluster, "--data", DIGITS, "--global-batch", 56, "--lr", 0.05, "--profile", "model", "--micro-batches", 2]
    for against in ("eager", "one"):
        outcome = motley("verify", *words, *plan, "--steps", 4, "--against", against, "--python", warm.python(),
                         "--run-dir", tmp_path / against, "--json")  # fmt: skip
        assert outcome.code == 0, outcome.stdout + outcome.stderr
    made = json.loads((tmp_path / "eager/split/plan.json").read_text())
    assert (made["batch_norm_span"], made["replicas"][0]["micro_batches"]) == ("micro_batch", 2)
    begun = ["--run-dir", tmp_path / "halves"]
    assert motley("run", *words, *plan, "--steps", 2, *begun).code == 0
    assert motley("run", *words, "--batch-split", "24,24,8", "--steps", 4, *begun).code == 0
    found, wanted = (load_file(tmp_path / each / "model.safetensors") for each in ("halves", "eager/split"))
    for name, value in wanted.items():
        assert (found[name] - value).double().norm() <= 1e-5 * (1 + value.double().norm()), name
        assert "tracked" not in name or value.item() == 8  # four steps of two

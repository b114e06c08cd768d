"""Trainings with recipes under random plans follow PyTorch's own loop with the same recipe."""

import pytest
from conftest import SLOW
from parity import Family
from recipes import FAMILIES, OPTIMIZERS, compare_recipe, draw_recipe

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

"""Recipes drawn at random under plans drawn at random, each trained by `motley run` on three unequal
emulated devices for 20 steps beside PyTorch's own loop with the same recipe: six families of
examples/families.py, float32.

A row is a family: how many recipes there were, how many of their plans split operators, how many
differ by more than 1e-5 or, where rounding decides more, ten times what a change of every weight's
last bit does to PyTorch's loop; how many needed that second limit (named in the JSON, each with its
tensor); the largest relative difference of a step's loss, and of a tensor (to its norm) of the others,
with the seed. Prints one table and writes build/bench/recipes.json.
"""

from drawn_runs import main
from parity import LIMIT
from recipes import FAMILIES, compare_recipe, draw_recipe


def compare(family, seeds):
    row = dict(case=family.name, recipes=0, sharded=0, beyond=0, chaotic=0, loss=0.0, worst=0.0, seed=None, rounding=[])
    for seed in seeds:
        flags = draw_recipe(seed)
        found = compare_recipe(family, seed, flags)
        row["recipes"] += 1
        row["sharded"] += found["sharded"]
        row["beyond"] += not found["equal"]
        row["loss"] = max(row["loss"], found["loss"])
        if found["limit"] > LIMIT or not found["equal"]:
            row["chaotic"] += found["limit"] > LIMIT
            row["rounding"].append({"seed": seed, "flags": " ".join(flags), **found})
            print(f"  seed {seed}: {' '.join(flags)}: {found}", flush=True)
        elif found["worst"] >= row["worst"]:
            row["worst"], row["seed"] = found["worst"], seed
    return row


if __name__ == "__main__":
    main("recipes", __doc__, FAMILIES, compare)

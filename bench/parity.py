"""Plans drawn at random, each trained by `motley run` on three unequal emulated devices, beside one
device: every family of examples/families.py in a small size but bf16's, 20 steps of SGD, float32.

Plans of odd seeds exchange over Gloo, where each way to carry an exchange out is one of its own, the
others in shared memory. A row is a family: how many plans there were, how many of them split operators, how many differ by
more than 1e-5 from one device (PyTorch's own loop, with the run's random numbers), and the largest
relative difference of a step's loss and of a tensor of the model (to its norm), with the seed.
Prints one table and writes build/bench/parity.json.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from conftest import BUILD, CLUSTER  # noqa: E402
from parity import LIMIT, NAMES, Family, differences, profile  # noqa: E402


def compare(family, seeds):
    row = dict(case=family.name, plans=0, sharded=0, beyond=0, loss=0.0, parameter=0.0, seed=None)
    for seed in seeds:
        transport = "gloo" if seed % 2 else "auto"
        flags = ["--planner", "random", "--resume", "never", "--transport", transport]
        found = family.run("run", seed, *flags)
        loss, worst, _ = differences(found, family.reference(seed))
        regions = family.plan("run")["replicas"][0]["regions"]
        row["plans"] += 1
        row["sharded"] += "operators" in regions[0]
        row["beyond"] += not (loss < LIMIT and worst < LIMIT)
        if max(loss, worst) >= max(row["loss"], row["parameter"]):
            row["seed"] = seed
        row["loss"], row["parameter"] = max(row["loss"], loss), max(row["parameter"], worst)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=200, help="over all families")
    parser.add_argument("--families", nargs="*", default=NAMES)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        environment = dict(
            os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1",
            MOTLEY_PROFILES=str(folder / "profiles.db"),
        )  # fmt: skip
        cluster = folder / "three.toml"
        cluster.write_text(CLUSTER)
        profile(cluster, folder, environment)
        print(f"{'family':<18} {'plans':>6} {'sharded':>8} {'beyond':>7} {'loss':>9} {'parameter':>10}")
        for i, name in enumerate(options.families):
            # Each family has seeds of its own, as the seed decides the shares too.
            seeds = range(i, options.plans, len(options.families))
            row = compare(Family(name, folder / "families", cluster, environment), seeds)
            rows.append(row)
            print(
                f"{name:<18} {row['plans']:>6} {row['sharded']:>8} {row['beyond']:>7} "
                f"{row['loss']:>9.1e} {row['parameter']:>10.1e}", flush=True,
            )  # fmt: skip
    output = BUILD / "bench/parity.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    sys.exit(1 if any(row["beyond"] for row in rows) else 0)


if __name__ == "__main__":
    main()

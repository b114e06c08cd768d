"""Plans drawn at random, each trained by `motley run` on three unequal emulated devices, beside one
device: every family of examples/families.py in a small size but bf16's, 20 steps of SGD, float32.

Plans of odd seeds exchange over Gloo, where each way to carry an exchange out is one of its own, the
others in shared memory. Every third seed takes small buckets, so that more exchanges can be carried into the next
step. A row is a family: how many plans there were, how many of them split operators, cut replicas into regions, carry
exchanges, differ by more than 1e-5 from one device (PyTorch's own loop, with the run's random numbers), and the largest
relative difference of a step's loss and of a tensor of the model (to its norm), with the seed.
Prints one table and writes build/bench/parity.json.
"""

from drawn_runs import main
from parity import LIMIT, NAMES, differences


def compare(family, seeds):
    row = dict(case=family.name, plans=0, sharded=0, stages=0, carried=0, beyond=0, loss=0.0, parameter=0.0, seed=None)
    for seed in seeds:
        transport = "gloo" if seed % 2 else "auto"
        flags = ["--planner", "random", "--resume", "never", "--transport", transport, "--checkpoint-every", 8]
        if seed % 3 == 1:
            flags += ["--bucket", "2KiB"]
        found = family.run("run", seed, *flags)
        loss, worst, _ = differences(found, family.reference(seed))
        plan = family.plan("run")
        replicas = plan["replicas"]
        regions = [region for replica in replicas for region in replica["regions"]]
        row["plans"] += 1
        row["sharded"] += any("operators" in region for region in regions)
        row["stages"] += any(len(replica["regions"]) > 1 for replica in replicas)
        row["carried"] += "carried" in plan
        row["beyond"] += not (loss < LIMIT and worst < LIMIT)
        if max(loss, worst) >= max(row["loss"], row["parameter"]):
            row["seed"] = seed
        row["loss"], row["parameter"] = max(row["loss"], loss), max(row["parameter"], worst)
    return row


if __name__ == "__main__":
    main("parity", __doc__, NAMES, compare)

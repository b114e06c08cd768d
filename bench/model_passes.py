"""What each pass of planning a model's stages buys (search/model_stages/stage_passes.cc): the predicted step without it over
that with all, on models of examples/full_size.py and drawn clusters, and CPU seconds. A pass with no instance of 1 % goes;
odd instances choose, even ones confirm. Writes build/bench/model_passes.json.

bench/model_passes.py [PASS ...]     all passes unless said
"""

import json
import subprocess
import sys

import spmd

MODELS = ("bert", "gpt", "llama", "moe", "vgg19", "vit")
PASSES = ("recompute", "recompute-all", "keep-tied", "late-weights", "pieces", "refine-cuts", "share-states", "one-more", "pair-tasks")
CLUSTERS = 12  # a model
WORSE = 1.01


def plan(without, models):
    """By instance: step and CPU seconds. A plan that does not fit takes for ever."""
    out = spmd.BUILD / "bench/model_passes.tsv"
    command = [spmd.BUILD / "bench_model_passes", out, str(CLUSTERS), without, *models]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    return {name: (float(step) or float("inf"), float(cpu)) for name, step, _, _, _, cpu in rows}


def main():
    models = spmd.export_models(MODELS)
    full = plan("-", models)
    print(f"{len(full)} instances, {sum(cpu for _, cpu in full.values()):.1f} CPU s with all passes\n"
          f"{'without':<14} {'odd worse':>9} {'even worse':>10} {'at worst':>9} {'CPU s':>7}")  # fmt: skip
    rows = []
    for name in sys.argv[1:] or PASSES:
        found = plan(name, models)
        over = {each: found[each][0] / step for each, (step, _) in full.items() if step < float("inf")}
        worse = [[each for each, ratio in over.items() if ratio >= WORSE and int(each.split("/")[1]) % 2 == odd] for odd in (1, 0)]
        row = {"pass": name, "worse_odd": worse[0], "worse_even": worse[1], "worst": max(over.values()),
               "cpu_s": sum(cpu for _, cpu in found.values())}  # fmt: skip
        print(f"{name:<14} {len(worse[0]):>9} {len(worse[1]):>10} {row['worst']:>9.3f} {row['cpu_s']:>7.1f}", flush=True)
        rows.append(row)
    (spmd.BUILD / "bench/model_passes.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What `motley plan` gives on two hosts of unlike GPUs, fast inside, 10 or 25 Gbit/s between: the step of `auto`, which
considers stages, beside the best plan without them (equal, proportional, split, hap, spmd), for ten full-size models
(two_hosts_models.py), autocast to float16, AdamW. A case is a model, two kinds, devices a host and the link; without names a
case of each model is planned. Writes build/bench/two_hosts.json.

bench/two_hosts.py [--all | --each N] [--stages] [NAME ...]
    --all     all 16 clusters of each model: hours
    --each N  N clusters of each model
    --stages  planner `stages` alone, too
    NAME      models, or cases as the table names them
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import time

import spmd
from plan import cpu_seconds
from staged_plans import write_cluster

MODELS = {  # samples a step for each device
    "resnet152": 32, "convnext_large": 16, "vit_l_16": 16, "swin_b": 32, "bert_large": 8, "gpt2_xl": 8, "opt_1_3b": 8,
    "llama_1_1b": 8, "t5_large": 8, "whisper_medium": 4,
}  # fmt: skip
PAIRS = (("a100-40g", "v100-16g"), ("rtx4090", "rtx3090"), ("h100-80g", "a100-80g"), ("l4", "t4"))
COUNTS, LINKS = (4, 8), (10, 25)  # devices a host, Gbit/s
WITHOUT = ("equal", "proportional", "split", "hap", "spmd")
SAME = 1 + 1e-9
STRIDE = 5  # from a model's cluster to the next: another pair, count and link


class Case:
    def __init__(self, model, cluster):
        self.model = model
        self.kinds, self.count, self.link = cluster
        self.name = f"{model} {'+'.join(f'{self.count}x{kind}' for kind in self.kinds)} {self.link}G"

    def find(self, planner, folder):
        """Step, bound (None: no plan), seconds by the clock and of CPU."""
        hosts = [(kind, self.count) for kind in self.kinds]
        cluster = write_cluster(self.name.split(" ", 1)[1].replace(" ", "-"), hosts, f"{self.link}Gbps", folder)
        command = [spmd.BUILD / "motley", "plan", "-m", folder / f"{self.model}.motley", "-C", cluster,
                   "--global-batch", str(MODELS[self.model] * 2 * self.count), "--optimizer", "adamw",
                   "--planner", planner, "--profiles", folder / "two_hosts.db", "--profile", "never", "--json", "-q"]  # fmt: skip
        before, start = cpu_seconds(), time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        wall, cpu = time.monotonic() - start, cpu_seconds() - before
        if done.returncode not in (0, 3):
            raise SystemExit(f"{self.name}, {planner}: exit {done.returncode}: {done.stderr}")
        found = json.loads(done.stdout)
        stages = found.get("stages") or []
        return {"planner": planner, "step_s": found.get("predicted_step_s") or None, "bound_s": found.get("lower_bound_s"),
                "stages": len(stages), "plan_s": wall, "cpu_s": cpu, "why": found.get("why", [])[:3]}  # fmt: skip


def export(model, folder):
    path = folder / f"{model}.motley"
    if not path.exists():
        command = [spmd.ROOT / ".venv-zoo/bin/python", "-m", "motley.export", spmd.ROOT / f"bench/two_hosts_models.py:{model}",
                   "-o", path, "--graph-only"]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, PYTHONPATH=str(spmd.ROOT / "python")))  # fmt: skip


def find_cases(each, names):
    clusters = list(itertools.product(PAIRS, COUNTS, LINKS))
    cases = [Case(model, clusters[(STRIDE * (i + k)) % len(clusters)] if each < len(clusters) else clusters[k])
             for i, model in enumerate(MODELS) for k in range(min(each, len(clusters)))]  # fmt: skip
    every = [Case(model, cluster) for model in MODELS for cluster in clusters]
    named = [case for case in every if case.name in names]
    return named + [case for case in cases if case.model in names] if names else cases


def compare(case, planners, folder):
    export(case.model, folder)
    found = {planner: case.find(planner, folder) for planner in planners}
    rivals = [row for row in found.values() if row["planner"] in WITHOUT and row["step_s"]]
    best, auto = min(rivals, key=lambda row: row["step_s"], default=None), found["auto"]
    ratio = auto["step_s"] / best["step_s"] if best and auto["step_s"] else None
    gap = auto["step_s"] / auto["bound_s"] - 1 if auto["step_s"] and auto["bound_s"] else None
    is_worse = best is not None and (auto["step_s"] is None or ratio > SAME)
    step = f"{auto['step_s']:.3f}" if auto["step_s"] else "none"
    beside = f"{best['step_s']:.3f} {best['planner']}" if best else "none"
    print(f"{case.name:<46} {beside:>18} {step:>8} {auto['stages']:>6} " + (f"{ratio:>6.2f}" if ratio else f"{'':>6}")
          + (f" {gap:>6.0%}" if gap is not None else f" {'':>6}") + f" {auto['plan_s']:>7.1f} {auto['cpu_s']:>7.1f}"
          + ("  WORSE" if is_worse else ""), flush=True)  # fmt: skip
    return {"case": case.name, "ratio": ratio, "gap": gap, "is_worse": is_worse, "best_without_stages": best, **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("names", nargs="*")
    flags = parser.parse_args()
    folder = spmd.BUILD / "bench" / "two_hosts"
    folder.mkdir(parents=True, exist_ok=True)
    cases = find_cases(len(PAIRS) * len(COUNTS) * len(LINKS) if flags.all else flags.each, flags.names)
    planners = WITHOUT + (("stages",) if flags.stages else ()) + ("auto",)
    print(f"{'case':<46} {'best without':>18} {'auto s':>8} {'stages':>6} {'ratio':>6} {'gap':>6} {'plan s':>7} {'CPU s':>7}")
    rows = [compare(case, planners, folder) for case in cases]
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    only = sum(row["ratio"] is None and row["auto"]["step_s"] is not None for row in rows)
    if ratios:
        print(f"\nauto over the best without stages: mean {statistics.fmean(ratios):.3f}, median {statistics.median(ratios):.3f} "
              f"of {len(ratios)}, worse in {sum(row['is_worse'] for row in rows)}; {only} that nothing else fits")  # fmt: skip
    (spmd.BUILD / "bench/two_hosts.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return int(any(row["is_worse"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())

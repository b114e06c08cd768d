"""HARP's measured plans (data/harp) by Motley's commands: each row's stages as `motley plan --stages` prices them for a GPT
that is traced, on devices by their data sheets, nothing fitted; and what Motley plans for the same devices. Writes
build/bench/harp.json.

bench/harp.py [--plans] [ROW ...]     rows A (one iteration, of V100 that may not have been slowed), D, E, E2; all unless
                                      said. Each is on as much of the largest cluster as its stages name
    --plans   Motley's own plans, too (minutes)
"""

import argparse
import csv
import json
import os
import subprocess

import spmd

MODELS = {"GPT-0.76B": "gpt_760m", "GPT-1.3B": "gpt_1_3b", "GPT-2.6B": "gpt_2_6b"}
# 127 of 312 TFLOP/s in matrix products, 7.5 GB occupied; links as the planner's input has them, that
# between V100 and A101 as the one between V100 and A100.
NODES = {"V100": ("a100-40g@0.407", 8, 32_500_000_000), "A100": ("a100-40g", 2, None), "A101": ("a100-40g", 2, None)}
INSIDE, BETWEEN = ("25GiB/s", "10us"), "0.625GiB/s"
LATENCY = {("V100", "A100"): "1ms", ("V100", "A101"): "1ms", ("A100", "A101"): "200us"}


def write_cluster(path):
    text = 'schema = "motley.cluster/1"\nname = "harp"\n'
    for i, (name, (kind, count, memory)) in enumerate(NODES.items()):
        text += f'[[node]]\nname = "{name}"\nhost = "10.0.0.{i + 1}"\n[[node.device]]\nkind = "{kind}"\ncount = {count}\n'
        text += f"memory = {memory}\n" if memory else ""
    for name in NODES:
        text += f'[[link]]\nbetween = ["{name}"]\nbandwidth = "{INSIDE[0]}"\nlatency = "{INSIDE[1]}"\n'
    for (a, b), latency in LATENCY.items():
        text += f'[[link]]\nbetween = ["{a}", "{b}"]\nbandwidth = "{BETWEEN}"\nlatency = "{latency}"\n'
    path.write_text(text)
    return path


def write_stages(row, path):
    """Every unit recomputed, as all of HARP's were."""
    used, stages = dict.fromkeys(NODES, 0), []
    for stage in row["stages"].split(";"):
        cluster, count, units = stage.split(":")
        node, count = list(NODES)[int(cluster)], int(count)
        devices = [f"{node}:{used[node] + i}" for i in range(count)]
        used[node] += count
        stages.append({"devices": devices, "layers": [int(unit) for unit in units.split("-")], "recompute": True,
                       "micro_batches": int(row["microbatches"])})  # fmt: skip
    path.write_text(json.dumps(stages, indent=1))
    return path


def spare_devices(stages):
    """Flags that leave out what the stages do not name."""
    named = {device for stage in json.loads(stages.read_text()) for device in stage["devices"]}
    devices = [f"{node}:{i}" for node, (_, count, _) in NODES.items() for i in range(count)]
    return [word for device in devices if device not in named for word in ("--exclude", device)]


def export(model, folder):
    path = folder / f"{model}.motley"
    if not path.exists():
        command = [spmd.ROOT / ".venv/bin/python", "-m", "motley.export", spmd.ROOT / f"bench/harp_models.py:{model}", "-o",
                   path, "--graph-only"]  # fmt: skip
        subprocess.run(command, check=True, env=dict(os.environ, PYTHONPATH=str(spmd.ROOT / "python")))
    return path


def plan(row, folder, *how):
    command = [spmd.BUILD / "motley", "plan", "-m", export(MODELS[row["model"]], folder), "-C",
               write_cluster(folder / "harp.toml"), "--global-batch", row["batch"], "--optimizer", "adamw", "--master-weights",
               "--profiles", folder / "harp.db", "--profile", "never", "--json", "-q", *how]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{row['id']}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("names", nargs="*", metavar="ROW")
    options = parser.parse_args()
    data = spmd.ROOT / os.environ.get("MOTLEY_DATA", "../shared/data") / "harp/plans.csv"
    if not data.exists():
        raise SystemExit(f"harp: {data} is not here; MOTLEY_DATA says where the measurements are")
    folder = spmd.BUILD / "bench" / "harp"
    folder.mkdir(parents=True, exist_ok=True)
    measured = {}
    with open(data) as file:
        for row in csv.DictReader(file):
            if row["cluster"].startswith("V100") and row["iteration_s"]:
                measured.setdefault(row["id"], []).append(row)
    rows = []
    print(f"{'row':<4} {'measured s':>10} {'simulated':>10} {'error':>7} {'Motley':>8} {'of its own':>10}")
    for name in options.names or measured:
        row = measured[name][0]
        seconds = sum(float(each["iteration_s"]) for each in measured[name]) / len(measured[name])
        own = plan(row, folder, "--stages", write_stages(row, folder / f"{name}.json"))["predicted_step_s"]
        found = plan(row, folder, *spare_devices(folder / f"{name}.json"))["predicted_step_s"] if options.plans else None
        print(f"{name:<4} {seconds:>10.2f} {own:>10.2f} {own / seconds - 1:>+7.0%} "
              + (f"{found:>8.2f} {found / own:>10.2f}" if found else ""), flush=True)  # fmt: skip
        rows.append({"row": name, "measured_s": seconds, "simulated_s": own, "motley_s": found})
    (spmd.BUILD / "bench/harp.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

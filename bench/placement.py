"""Who keeps a parameter: steps by all-reduce, by owners and by one server, on cards of 100, 25 and 10 Gbit/s, beside
the best plan.

Runs `motley plan` on full-size models (examples/full_size.py), on all devices (planner "equal") and on the best split's.
Writes build/bench/placement.json, rows with `model`, `cluster` and `planner`:
`set` "server": `all_reduce_s`, `owners_s`, `server_s` (`--sync`; without carried exchanges), `auto_s` (of `--planner
auto`), and `plan_s`, the longest time that planning took;
`set` "carry": `default_s`, where exchanges end in their step, and `carried_s` (`--carry auto`), of all-reduces and
(`sync`) owners; `exposed`: the share of `default_s` in which the busiest device does not compute.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from spmd import BUILD, export_models

MODELS = ("vgg19", "resnet50", "transformer", "bert24", "llama")
# Hosts: name, Gbit/s of the card, devices, kind.
CLUSTERS = {
    "ten hosts": [(f"a{i}", 100, 1, "a100-40g") for i in range(2)]
    + [(f"b{i}", 25, 1, "v100-32g") for i in range(4)]
    + [(f"c{i}", 10, 1, "t4") for i in range(4)],
    "three hosts": [("a0", 100, 4, "a100-40g"), ("b0", 25, 4, "v100-32g"), ("c0", 10, 2, "t4")],
}
BATCH = 320
SYNCS = {"all_reduce_s": "all_reduce", "owners_s": "owners", "server_s": "server:a0:0"}
TIMES = (*SYNCS, "auto_s", "plan_s")


def cluster_text(hosts):
    lines = ['schema = "motley.cluster/1"', 'name = "cards"']
    for name, gigabits, count, kind in hosts:
        lines += ["[[node]]", f'name = "{name}"', f'bandwidth = "{gigabits}Gbps"',
                  f'device = [ {{ kind = "{kind}", count = {count} }} ]']  # fmt: skip
    lines += ["[[link]]", "all = true", 'bandwidth = "1000Gbps"', 'latency = "10us"']
    return "\n".join(lines) + "\n"


def plan(model, cluster, planner, sync, folder, carry="none"):
    """What `plan --json` says (null: no such plan is possible, which is said), and how long planning took."""
    words = ["plan", "-m", model, "-C", cluster, "--global-batch", BATCH, "--planner", planner, "--sync", sync,
             "--carry", carry, "--profiles", folder / "none.db", "--json"]  # fmt: skip
    begin = time.monotonic()
    done = subprocess.run([BUILD / "motley", *map(str, words)], capture_output=True, text=True, check=False)
    if "[synth." in done.stderr:
        print(f"  --sync {sync}: {done.stderr.strip()}")
        return None, 0.0
    if done.returncode != 0:
        sys.exit(f"motley {' '.join(map(str, words))}: {done.stderr}")
    return json.loads(done.stdout), time.monotonic() - begin


def step_and_time(*arguments):
    found, took = plan(*arguments)
    return found and found["predicted_step_s"], took


def carry(model, cluster, sync, folder):
    """Of the best split: steps that end with their exchanges, and across the step's end."""
    default, _ = plan(model, cluster, "split", sync, folder)
    carried, _ = plan(model, cluster, "split", sync, folder, "auto")
    if default is None:
        return {"set": "carry", "sync": sync, "default_s": None, "carried_s": None, "exposed": None}
    busiest = max(each["compute_s"] for each in default["breakdown"].values())
    return {"set": "carry", "sync": sync, "default_s": default["predicted_step_s"],
            "carried_s": carried["predicted_step_s"], "exposed": 1 - busiest / default["predicted_step_s"]}  # fmt: skip


def show(seconds):
    return "-" if seconds is None else f"{seconds:.3f}"


def main():
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for title, hosts in CLUSTERS.items():
            cluster = folder / "cluster.toml"
            cluster.write_text(cluster_text(hosts))
            for model in export_models(MODELS):
                auto_s, auto_took = step_and_time(model, cluster, "auto", "auto", folder, "auto")
                for planner in ("equal", "split"):
                    row = {"set": "server", "model": model.stem, "cluster": title, "planner": planner,
                           "auto_s": auto_s, "plan_s": auto_took}  # fmt: skip
                    for key, sync in SYNCS.items():
                        row[key], took = step_and_time(model, cluster, planner, sync, folder)
                        row["plan_s"] = max(row["plan_s"], took)
                    rows.append(row)
                    print(f"{title:12} {model.stem:12} {planner:6} " + " ".join(f"{key} {show(row[key])}" for key in TIMES))
                for sync in ("all_reduce", "owners"):
                    rows.append(carry(model, cluster, sync, folder) | {"model": model.stem, "cluster": title})
                    print(f"{title:12} {model.stem:12} carry  " + " ".join(f"{k} {v}" for k, v in rows[-1].items()))
    out = BUILD / "bench/placement.json"
    out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"wrote {os.path.relpath(out)}")


if __name__ == "__main__":
    main()

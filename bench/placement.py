"""Who keeps a parameter: steps by all-reduce, by owners, by one server, and as `plan` chooses, on cards of 100, 25 and
10 Gbit/s.

Runs `motley plan --planner split --sync ...` on full-size models (examples/full_size.py). Writes
build/bench/placement.json: rows with `set` "server", `model`, `cluster`, `planner`, `all_reduce_s`, `owners_s`,
`server_s`, `auto_s`, and `plan_s`, the longest time that planning took.
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
SYNCS = {"all_reduce_s": "all_reduce", "owners_s": "owners", "server_s": "server:a0:0", "auto_s": "auto"}


def cluster_text(hosts):
    lines = ['schema = "motley.cluster/1"', 'name = "cards"']
    for name, gigabits, count, kind in hosts:
        lines += ["[[node]]", f'name = "{name}"', f'bandwidth = "{gigabits}Gbps"',
                  f'device = [ {{ kind = "{kind}", count = {count} }} ]']  # fmt: skip
    lines += ["[[link]]", "all = true", 'bandwidth = "1000Gbps"', 'latency = "10us"']
    return "\n".join(lines) + "\n"


def plan(model, cluster, sync, folder):
    """The planner's answer in JSON; null: no such plan is possible, which is said."""
    words = ["plan", "-m", model, "-C", cluster, "--global-batch", BATCH, "--planner",
             "auto" if sync == "auto" else "split", "--sync", sync, "--profiles", folder / "none.db", "--json"]  # fmt: skip
    done = subprocess.run([BUILD / "motley", *map(str, words)], capture_output=True, text=True, check=False)
    if "[synth." in done.stderr:
        print(f"  --sync {sync}: {done.stderr.strip()}")
        return {"predicted_step_s": None}
    if done.returncode != 0:
        sys.exit(f"motley {' '.join(map(str, words))}: {done.stderr}")
    return json.loads(done.stdout)


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
                row = {"set": "server", "model": model.stem, "cluster": title, "planner": "split", "plan_s": 0.0}
                for key, sync in SYNCS.items():
                    begin = time.monotonic()
                    row[key] = plan(model, cluster, sync, folder)["predicted_step_s"]
                    row["plan_s"] = max(row["plan_s"], time.monotonic() - begin)
                rows.append(row)
                print(f"{title:12} {model.stem:12} " + " ".join(f"{key} {show(row[key])}" for key in (*SYNCS, "plan_s")))
    out = BUILD / "bench/placement.json"
    out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"wrote {os.path.relpath(out)}")


if __name__ == "__main__":
    main()

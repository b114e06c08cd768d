"""Who keeps a parameter, measured: three hosts on cables of different rates (tests/hosts/namespaces.py; wants root).

Runs `motley run --sync ...` on a model with many parameters and few samples, in turn, and its prediction beside each
step. Writes build/bench/placement_runs.json: rows with `case`, `links`, `sync`, `step_s`, `predicted_step_s`, `chosen`
(who owns, or "all").
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests"))

from hosts import namespaces

MODEL = """
import torch
from torch import nn


class Layers(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        inner = [layer for _ in range(count) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.body = nn.Sequential(nn.Linear(64, width), nn.ReLU(), *inner, nn.Linear(width, 8))

    def forward(self, x):
        return self.body(x).square().mean()


def model():
    return Layers(*SIZES), (torch.randn(4, 64),)
"""
CASES = {"deep": (8, 560), "wide": (1, 1536)}  # inner layers, width: about 10 MB each
LINKS = {"fast-slow-slow": (400, 100, 100), "fast-middle-slow": (400, 200, 100)}  # Mbit/s of a, b, c
SYNCS = ("all_reduce", "owners", "server:a:0")
BATCH, STEPS = 48, 8
CORE = 0.45  # of each host


def call(host, words):
    done = host.run(f"{BUILD / 'motley'} {words} --json -q", check=False, timeout=900)
    if done.returncode != 0:
        sys.exit(f"{host.name}: motley {words}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def owners_of(folder):
    owners = json.loads((folder / "plan.json").read_text()).get("owners", [])
    return " ".join(f"{device} {share:.2g}" for device, share in owners[0]["shares"].items()) if owners else "all"


def prepare(folder, sizes, home):
    import numpy

    source = folder / "layers.py"
    source.write_text(MODEL.replace("SIZES", str(sizes)))
    subprocess.run([sys.executable, "-m", "motley.export", f"{source}:model", "-o", home / "model.motley"], check=True,
                   capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))  # fmt: skip
    numpy.savez(home / "data.npz", x0=numpy.random.default_rng(0).normal(size=(480, 64)).astype("float32"))


def compare(lead, case, links, rounds):
    """The steps of each way to sum, in turn, and of the best plan."""
    common = f"-m model.motley -C cluster.toml --data data.npz --global-batch {BATCH} --steps {STEPS} --resume never"
    turns = {}
    for _ in range(rounds):
        for sync in (*SYNCS, "auto"):
            planner = "auto" if sync == "auto" else "equal"
            run_dir = f"run-{sync.replace(':', '-')}"
            done = call(lead, f"run {common} --planner {planner} --sync {sync} --run-dir {run_dir} --lr 0.01")
            turns.setdefault(sync, []).append((done["step_s_median"], done["predicted_step_s"], owners_of(lead.home() / run_dir)))
    return [{"case": case, "links": links, "sync": sync, "step_s": statistics.median(t[0] for t in found),
             "predicted_step_s": statistics.median(t[1] for t in found), "chosen": found[-1][2]}
            for sync, found in turns.items()]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--links", default=",".join(LINKS))
    options = parser.parse_args()
    if namespaces.missing():
        print(f"placement_runs: left out: {namespaces.missing()}")
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for links in options.links.split(","):
            with namespaces.Hosts(folder / links, dict.fromkeys("abc", CORE), rate="100mbit") as hosts:
                for host, rate in zip("abc", LINKS[links], strict=True):
                    hosts[host].limit(f"{rate}mbit")
                lead = hosts["a"]
                call(lead, "probe --hosts a,b,c -o cluster.toml")
                for case in options.cases.split(","):
                    prepare(folder, CASES[case], lead.home())
                    for row in compare(lead, case, links, options.rounds):
                        rows.append(row)
                        print(f"{case:6} {links:17} {row['sync']:12} {row['step_s']:.3f} s, predicted "
                              f"{row['predicted_step_s']:.3f} s; owners: {row['chosen']}", flush=True)  # fmt: skip
    (BUILD / "bench").mkdir(exist_ok=True, parents=True)
    (BUILD / "bench/placement_runs.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

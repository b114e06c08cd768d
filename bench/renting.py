"""Which policy rents at least cost: `motley simulate --adapt split --market` of a training over one machine of one's own and
machines for rent, whose lives are drawn by seed. A row a deadline and policy: mean cost over the seeds, what it costs over
`motley`, how many are late, and machines asked for, lost and given back. All policies meet the same lives.

  deadline   in times of what machines on demand alone take

Prints a table and writes build/bench/renting.json. MOTLEY_FULL=1: 40 seeds.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
SEEDS = range(40 if os.environ.get("MOTLEY_FULL") == "1" else 8)
POLICIES = ["motley", "on-demand", "greedy", "uniform", "none"]
DEADLINES = (1.15, 1.5, 2.5)
BATCH, HOURS = 100_000, 1.5  # on demand alone
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "python"))

# A spot machine costs 0.3 of one on demand, as V100s did in 2020; four of each, in two zones.
OFFERS = [("v100-16g", "us-a", True, 0.74), ("v100-16g", "us-b", True, 0.8), ("v100-16g", "us-a", False, 2.48)]
NODES = [("own", "t4", None), *[(f"s{i}", "v100-16g", ("us-a", True)) for i in range(2)],
         *[(f"t{i}", "v100-16g", ("us-b", True)) for i in range(2)], *[(f"d{i}", "v100-16g", ("us-a", False)) for i in range(4)]]  # fmt: skip
ABSENT = [name for name, _, where in NODES if where is not None and name not in ("s0", "s1", "t0", "t1")]


def write_files(folder):
    text = 'schema = "motley.cluster/1"\nname = "rented"\n'
    for name, kind, where in NODES:
        zone = f'zone = "{where[0]}"\nspot = {str(where[1]).lower()}\n' if where else ""
        text += f'[[node]]\nname = "{name}"\nhost = "{name}"\n{zone}[[node.device]]\nkind = "{kind}"\n'
    text += '[[link]]\nall = true\nbandwidth = "10Gbps"\nlatency = "50us"\n'
    (folder / "cluster.toml").write_text(text)
    text = 'schema = "motley.market/1"\nname = "rented"\n'
    for kind, zone, spot, price in OFFERS:
        text += (f'[[offer]]\nkind = "{kind}"\nzone = "{zone}"\nregion = "us"\nspot = {str(spot).lower()}\n'
                 f'price_per_hour = {price}\nstart_cold = "120s"\n' + ('notice = "30s"\n' if spot else ""))  # fmt: skip
    (folder / "market.toml").write_text(text)
    for seed in SEEDS:
        (folder / f"{seed}.json").write_text(json.dumps({"schema": "motley.conditions/1", "seed": seed}))
    words = [sys.executable, "-m", "motley.export", ROOT / "examples/digits_cnn.py:model", "-o", folder / "cnn.motley"]
    subprocess.run(words, check=True, capture_output=True, env=ENVIRONMENT)


def simulate(folder, *words):
    command = [BUILD / "motley", "simulate", "-m", folder / "cnn.motley", "-C", folder / "cluster.toml", "--global-batch", BATCH,
               "--planner", "split", "--profile", "never", "--json", *words]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)


def on_demand_step(folder):
    """Seconds of a step by one's own machine and those on demand."""
    away = [word for name, _, where in NODES if where and where[1] for word in ("--exclude", f"{name}:0")]
    return simulate(folder, *away)["step_s"]


def rows_of(folder):
    steps = round(HOURS * 3600 / on_demand_step(folder))
    away = [word for name in ABSENT for word in ("--absent", f"{name}:0")]
    rows = []
    for times in DEADLINES:
        paid = {}
        for policy in POLICIES:
            rents = []
            for seed in SEEDS:
                found = simulate(folder, "--adapt", "split", "--policy", "even", "--steps", steps, "--change-pause", 1, *away, "--market",
                                 folder / "market.toml", "--deadline", f"{HOURS * times}h", "--rent-policy", policy, "--conditions",
                                 folder / f"{seed}.json")["under_policy"]  # fmt: skip
                rents.append(found["rent"] | {"stopped": found["stopped"]})
            late = sum(rent["stopped"] is not None or rent["spare_s"] < 0 for rent in rents)
            paid[policy] = statistics.mean(rent["paid"] for rent in rents)
            means = {key: statistics.mean(rent[key] for rent in rents) for key in ("asked", "lost", "returned")}
            rows.append({"case": f"deadline {times}", "policy": policy, "cost": paid[policy], "late": late, "runs": len(rents),
                         "over": paid[policy] / paid["motley"] - 1, **means})  # fmt: skip
            print("{case:<14} {policy:<10} cost {cost:7.2f} ({over:+.0%})  late {late} of {runs}  asked {asked:.1f}  lost {lost:.1f}  "
                  "given back {returned:.1f}".format(**rows[-1]), flush=True)  # fmt: skip
    return rows


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_files(folder)
        rows = rows_of(folder)
    path = BUILD / "bench/renting.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()

"""Runs of sharded plans on emulated unequal devices behind slow links, beside the best split.

Each model of examples/sharded.py is planned and trained by the planners `auto` and `split` (the best
split of the batch) in turns: with links that the workers emulate, and, as root, each rank in a network
namespace of its own behind a cable of the same rate. Cases may be named. Prints one table and writes
build/bench/sharded_runs.json: case, links, planner, step_s, predicted_step_s, peak and predicted peak
of the fullest device.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from emulated import BUILD, ROOT, motley
import namespaces
from own_runs import export

CASES = {
    "vgg": dict(batch=128, mbps=200), "mixture": dict(batch=24, mbps=1000), "mixed": dict(batch=24, mbps=1000)
}
ROUNDS, STEPS = 2, 20
LINKS = ("emulated", "namespaces") if namespaces.are_possible() else ("emulated",)


def run_in_namespaces(arguments, mbps, ranks):
    """What rank 0 of `motley run` says, started by torchrun's variables on a host for each rank."""
    with namespaces.hosts(ranks, mbps * 1e6) as places:
        job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": places[0][1], "MASTER_PORT": "29500"}  # all are free there
        started = [
            subprocess.Popen(
                ["ip", "netns", "exec", host, BUILD / "motley", *map(str, arguments), "--json", "-q"],
                env=dict(os.environ, RANK=str(rank), **job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank, (host, _) in enumerate(places)
        ]
        said = [process.communicate() for process in started]
    for process, (out, errors) in zip(started, said):
        if process.returncode != 0:
            sys.exit(f"{out}{errors}")
    return json.loads(said[0][0])


def run(name, case, planner, links, folder, cluster):
    model = ["-m", folder / f"{name}.motley", "-C", cluster, "--profiles", folder / f"{name}.db"]
    plan = motley(
        "plan", *model, "--global-batch", case["batch"], "--planner", planner, "-o", folder / "plan.json"
    )
    arguments = [
        "run", *model, "--plan", folder / "plan.json", "--data", folder / f"{name}.npz", "--steps", STEPS,
        "--resume", "never", "--run-dir", folder / f"{links}-{planner}",
    ]
    if links == "emulated":
        done = motley(*arguments)
    else:
        arguments += ["--enforce", "speeds"]
        done = run_in_namespaces(arguments, case["mbps"], len(plan["batch_split"]))
    # A rank of an external launcher says its own only.
    known = [device for device in done["devices"] if "peak_bytes" in device]
    peaks = [(device["peak_bytes"], plan["peak_bytes"][device["name"]]) for device in known]
    return {
        "case": name, "links": links, "planner": planner, "devices": len(done["devices"]),
        "step_s": done["step_s_median"], "predicted_step_s": done["predicted_step_s"],
        "peak_bytes": max(peaks)[0], "predicted_peak_bytes": max(peaks)[1],
    }


def print_table(rows):
    print(
        f"{'case':<10} {'links':<11} {'planner':<8} {'devices':>7} {'step':>9} {'predicted':>10} {'error':>7}"
        f" {'peak':>9} {'error':>7}"
    )
    for row in rows:
        print(
            f"{row['case']:<10} {row['links']:<11} {row['planner']:<8} {row['devices']:>7}"
            f" {row['step_s'] * 1e3:>6.1f} ms {row['predicted_step_s'] * 1e3:>7.1f} ms"
            f" {row['predicted_step_s'] / row['step_s'] - 1:>6.1%} {row['peak_bytes'] / 2**20:>5.1f} MiB"
            f" {row['predicted_peak_bytes'] / row['peak_bytes'] - 1:>6.1%}"
        )


def medians(rows):
    """One row for each case, links and planner."""
    table = {}
    for row in rows:
        table.setdefault((row["case"], row["links"], row["planner"]), []).append(row)
    numbers = ("step_s", "predicted_step_s", "peak_bytes", "predicted_peak_bytes")
    return [
        some[0] | {key: statistics.median(each[key] for each in some) for key in numbers} for some in table.values()
    ]


def main(cases):
    if unknown := set(cases) - set(CASES):
        sys.exit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        slow_links = (ROOT / "examples/slow_links.toml").read_text()
        for model, case in ((name, CASES[name]) for name in cases):
            text = slow_links.replace("1Gbps", f"{case['mbps']}Mbps")
            clusters = {"emulated": folder / f"{model}.toml", "namespaces": folder / f"{model}-gloo.toml"}
            clusters["emulated"].write_text(text)
            clusters["namespaces"].write_text(text.replace("[[node]]", 'transport = "gloo"\n[[node]]', 1))
            export(f"{ROOT}/examples/sharded.py:{model}", folder / f"{model}.motley")
            subprocess.run(
                [sys.executable, ROOT / "examples/sharded.py", model, "-o", folder / f"{model}.npz"], check=True
            )
            for round_ in range(ROUNDS):
                print(f"{model}: round {round_ + 1} of {ROUNDS}", file=sys.stderr)
                for links in LINKS:
                    for planner in ("auto", "split"):
                        rows.append(run(model, case, planner, links, folder, clusters[links]))
    table = medians(rows)
    print_table(table)
    if len(LINKS) == 1:
        print("no network namespaces: they need root and the package iproute2")
    out = BUILD / "bench/sharded_runs.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": table}, indent=1))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT / "examples")])
    main(sys.argv[1:] or CASES)

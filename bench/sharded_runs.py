"""Runs of sharded plans on emulated unequal devices behind slow links, beside the best split.

Each model of examples/sharded.py is planned and trained by the planners `auto` and `split` (the best
split of the batch) in turns. Prints one table and writes build/bench/sharded_runs.json: case, planner,
step_s, predicted_step_s, peak and predicted peak of the fullest device.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from emulated import BUILD, ROOT, motley
from own_runs import export

CASES = {"vgg": dict(batch=128, bandwidth="200Mbps"), "mixture": dict(batch=24, bandwidth="1Gbps")}
ROUNDS, STEPS = 2, 20


def run(name, case, planner, folder, cluster):
    arguments = ["-m", folder / f"{name}.motley", "-C", cluster, "--global-batch", case["batch"]]
    arguments += ["--planner", planner, "--profiles", folder / f"{name}.db"]
    plan = motley("plan", *arguments, "-o", folder / "plan.json")
    done = motley(
        "run", *arguments[:4], "--plan", folder / "plan.json", "--profiles", folder / f"{name}.db",
        "--data", folder / f"{name}.npz", "--steps", STEPS, "--resume", "never", "--run-dir", folder / planner,
    )
    peaks = [(device["peak_bytes"], plan["peak_bytes"][device["name"]]) for device in done["devices"]]
    return {
        "case": name, "planner": planner, "devices": len(done["devices"]),
        "step_s": done["step_s_median"], "predicted_step_s": done["predicted_step_s"],
        "peak_bytes": max(peaks)[0], "predicted_peak_bytes": max(peaks)[1],
    }


def main():
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = (ROOT / "examples/slow_links.toml").read_text()
        for model, case in CASES.items():
            cluster = folder / f"{model}.toml"
            cluster.write_text(text.replace("200Mbps", case["bandwidth"]))
            export(f"{ROOT}/examples/sharded.py:{model}", folder / f"{model}.motley")
            subprocess.run(
                [sys.executable, ROOT / "examples/sharded.py", model, "-o", folder / f"{model}.npz"], check=True
            )
            for round_ in range(ROUNDS):
                print(f"{model}: round {round_ + 1} of {ROUNDS}", file=sys.stderr)
                rows += [run(model, case, planner, folder, cluster) for planner in ("auto", "split")]
    table = []
    print(f"{'case':<10} {'planner':<8} {'devices':>7} {'step':>9} {'predicted':>10} {'error':>7} {'peak':>9} {'error':>7}")
    for model in CASES:
        for planner in ("auto", "split"):
            some = [row for row in rows if (row["case"], row["planner"]) == (model, planner)]
            row = {key: some[0][key] for key in ("case", "planner", "devices")}
            for key in ("step_s", "predicted_step_s", "peak_bytes", "predicted_peak_bytes"):
                row[key] = statistics.median(each[key] for each in some)
            table.append(row)
            print(
                f"{model:<10} {planner:<8} {row['devices']:>7} {row['step_s'] * 1e3:>6.1f} ms"
                f" {row['predicted_step_s'] * 1e3:>7.1f} ms {row['predicted_step_s'] / row['step_s'] - 1:>6.1%}"
                f" {row['peak_bytes'] / 2**20:>5.1f} MiB {row['predicted_peak_bytes'] / row['peak_bytes'] - 1:>6.1%}"
            )
    out = BUILD / "bench/sharded_runs.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": table}, indent=1))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT / "examples")])
    main()

"""How long planning takes: the planner's own time, and `motley plan` as a user waits for it.

Runs bench_plan, then times whole processes of `motley plan`, from start to exit, on 64 devices of
two built-in kinds, whose costs need no profile: wall seconds (plan_s) and seconds of CPU, the
shortest of five. Models are those of bench/spmd.py. Writes build/bench/plan.json.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import spmd

SAMPLES = 512
RUNS = 5
MODELS = ("gpt", "bert")


def cluster_text():
    text = 'schema = "motley.cluster/1"\nname = "bench"\n'
    for node in range(8):
        kind = "a100-40g" if node < 4 else "v100-16g"
        text += (f'[[node]]\nname = "n{node}"\nhost = "10.0.0.{node + 1}"\n'
                 f'[[node.device]]\nkind = "{kind}"\ncount = 8\n')
    return text + '[[link]]\nall = true\nbandwidth = "100Gbps"\nlatency = "20us"\n'


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def time_plan(model, planner, folder):
    """Seconds of one process, by the clock and of CPU."""
    command = [spmd.BUILD / "motley", "plan", "-m", model, "-C", folder / "plan.toml",
               "--global-batch", str(SAMPLES), "--planner", planner,
               "--profiles", folder / "plan.db", "--profile", "never", "--json"]
    before, start = cpu_seconds(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start, cpu_seconds() - before


def main():
    folder = spmd.BUILD / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "plan.json"
    code = subprocess.run([spmd.BUILD / "bench_plan", out]).returncode
    if code != 0:
        return code
    (folder / "plan.toml").write_text(cluster_text())
    report = json.loads(out.read_text())
    print(f"\n{'motley plan, 64 devices':<28} {'planner':>8} {'plan_s':>8} {'cpu s':>8}")
    for model in spmd.export_models(MODELS):
        for planner in ("split", "auto"):
            wall, cpu = min(time_plan(model, planner, folder) for _ in range(RUNS))
            report["rows"].append({"case": f"motley plan {model.stem} --planner {planner}",
                                   "devices": 64, "plan_s": wall, "cpu_s": cpu})
            print(f"{model.stem:<28} {planner:>8} {wall:>8.3f} {cpu:>8.3f}")
    out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

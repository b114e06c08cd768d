"""Planning for large clusters: `motley plan` of BERT-12 (examples/full_size.py) on 64 to 4,096 devices of 1 to 64 kinds.

Nodes of eight equal devices of built-in kinds, 100 Gbps between them, eight samples a device. A row is a
cluster and a planner: `split` divides the batch, `auto` looks for shardings of operators too. Given are
the seconds of the whole process by the clock (plan_s) and of CPU (cpu_s), how long the search took in it
(search_s), the most memory it held (peak_bytes), the simulated step and how far it is above the bound
(gap); for four kinds and up to 1,024 devices also the bytes that starting the plan's ranks would send to
their hosts (start_bytes) beside those that the ranks need of it (needed_bytes; start_driver.cc). Arguments:
devices, kinds and planner of the rows to make, each separated by commas (`--rows 1024:4:auto,64:1:split`).
Writes build/bench/scale.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import spmd

DEVICES_OF_NODE = 8
SAMPLES_OF_DEVICE = 8
DEVICES, KINDS, PLANNERS = (64, 256, 1024, 4096), (1, 4, 64), ("split", "auto")
LIMIT_S = 900  # of a row
STARTED_KINDS, MOST_STARTED = 4, 1024  # clusters of which starting is counted
# The table of docs/device_kinds.md, fast and slow ones in turns; each fourth of 64 for four kinds.
GPUS = (
    "a100-40g v100-16g t4 rtx3090 h100-80g p100 l4 rtx2080ti a100-80g v100-32g a10 rtx4090 h200 p40 a16 rtx3080 "
    "b200 k80 l40 rtx3070 h100-94g p4 a2 rtx4080 gb200 v100s a30 rtx3060 mi100 titanv a40 rtx5090 "
    "mi250x gtx1080ti l40s rtx4070 mi300x titanxp a10g rtx2080 mi210 p100-12g a6000 rtx5080 mi325x titanrtx a5000 "
    "rtx4060ti mi355x p100-sxm2 rtx6000ada rtx5070ti b100 v100-16g-pcie rtxpro6000 a100-40g-pcie gh200-96g "
    "a100-80g-pcie h100-80g-pcie"
).split()
CPUS = "epyc-7742 epyc-7763 epyc-9654 epyc-9755 graviton4 xeon-8480p xeon-8380".split()


def kind_table(number):
    """Tables of a node's devices; the 64th kinds are CPUs, which need a memory."""
    kind = (GPUS + CPUS)[number]
    memory = 'memory = "256GiB"\n' if kind in CPUS else ""
    return f'[[node.device]]\nkind = "{kind}"\ncount = {DEVICES_OF_NODE}\n{memory}'


def cluster_text(devices, kinds):
    text = f'schema = "motley.cluster/1"\nname = "scale-{devices}-{kinds}"\n'
    for node in range(devices // DEVICES_OF_NODE):
        text += f'[[node]]\nname = "n{node}"\nhost = "10.0.{node // 250}.{node % 250 + 1}"\n{kind_table(node % kinds)}'
    return text + '[[link]]\nall = true\nbandwidth = "100Gbps"\nlatency = "20us"\n'


def run_limited(command):
    """Its output, seconds by the clock and of CPU, bytes; no output if it took too long."""
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        child = subprocess.Popen(["timeout", str(LIMIT_S), *command], stdout=output)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        output.seek(0)
        text = output.read() if os.waitstatus_to_exitcode(status) == 0 else b""
    return text, wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def plan(model, devices, kinds, planner, folder):
    cluster = folder / "scale.toml"
    cluster.write_text(cluster_text(devices, kinds))
    text, wall, cpu, memory = run_limited(
        [spmd.BUILD / "motley", "plan", "-m", model, "-C", cluster, "--global-batch", str(SAMPLES_OF_DEVICE * devices),
         "--planner", planner, "--profiles", folder / "scale.db", "--profile", "never", "--json", "-q",
         "-o", folder / "scale-plan.json"])
    row = {"model": "BERT-12", "devices": devices, "kinds": kinds, "planner": planner, "plan_s": wall, "cpu_s": cpu,
           "peak_bytes": memory}
    if text:
        said = json.loads(text)
        step, bound = said["predicted_step_s"], said["lower_bound_s"]
        row |= {"search_s": said["elapsed_s"], "step_s": step, "bound_s": bound, "gap": step / bound - 1 if bound else None,
                "used": len(said["batch_split"]), "outcome": said["outcome"]}
        if kinds == STARTED_KINDS and devices <= MOST_STARTED:
            row |= count_start(model, cluster, folder)
    return row


def count_start(model, cluster, folder):
    """Bytes that starting the ranks of the plan would send, and that they need."""
    with tempfile.TemporaryDirectory() as scratch:
        said = json.loads(subprocess.run([spmd.BUILD / "bench_start_driver", model, cluster, folder / "scale-plan.json", scratch],
                                         check=True, stdout=subprocess.PIPE).stdout)
    return {key: said[key] for key in ("start_bytes", "needed_bytes")}


def print_row(row):
    found = f"{row['search_s']:>8.2f} {1e3 * row['step_s']:>9.2f} {1e3 * row['bound_s']:>9.2f} {row['gap']:>7.1%} {row['used']:>5}" if "step_s" in row else f"more than {LIMIT_S} s, or failed"
    sent = f" {row['start_bytes'] / row['needed_bytes']:>6.2f}" if "start_bytes" in row else ""
    print(f"{row['devices']:>7} {row['kinds']:>5} {row['planner']:<6} {row['plan_s']:>8.2f} {row['cpu_s']:>8.2f}"
          f" {row['peak_bytes'] / 2**20:>8.0f} {found}{sent}", flush=True)


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--rows", help="such as 1024:4:auto,64:1:split; all")
    asked = flags.parse_args().rows
    rows = [row.split(":") for row in asked.split(",")] if asked else [
        (devices, kinds, planner) for devices in DEVICES for kinds in KINDS for planner in PLANNERS if devices // DEVICES_OF_NODE >= kinds]
    folder = spmd.BUILD / "bench"
    model = spmd.export_models(["bert"])[0]
    print(f"{'devices':>7} {'kinds':>5} {'':<6} {'plan s':>8} {'cpu s':>8} {'MiB':>8} {'search s':>8} {'step ms':>9} {'bound ms':>9} {'gap':>7} {'used':>5} {'sent':>6}")
    made = []
    for devices, kinds, planner in rows:
        made.append(plan(model, int(devices), int(kinds), planner, folder))
        print_row(made[-1])
    (folder / "scale.json").write_text(json.dumps({"rows": made}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A run on emulated unequal devices (0.8, 0.4, 0.2 of a core) against the bound sum(speed).

Machines drift, so everything is measured in rounds, each with a profile of its own, and a figure is
the median over the rounds. A round is: one whole device (it gives the bound), the plan, the equal
split; and two whole devices side by side, each a job of its own: what a second busy core alone costs
(the busy bound). As root the plan and the equal split run also under real kernel CPU quotas instead of
the workers' own limits, beside PyTorch DDP with an even split under the same quotas. Prints one table
and writes build/bench/emulated.json: case, step_s, predicted_step_s, bound_s, equal_split_s, ...
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
SPEEDS = (0.8, 0.4, 0.2)
CASES = {
    "mlp": dict(function="mlp.py:model", data="digits.npz", batch=2800, steps=40),
    "cnn": dict(function="digits_cnn.py:model", data="digits.npz", batch=560, steps=20),
    "gpt": dict(function="char_gpt.py:model", data="devils_dictionary.bin", batch=112, steps=12, seq=64),
}
QUOTA_ROOT = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20000


def cluster_text(speeds):
    nodes = [
        f'[[node]]\nname = "{chr(97 + i)}"\n  [[node.device]]\n  kind = "cpu"\n  speed = {speed}\n'
        for i, speed in enumerate(speeds)
    ]
    return 'schema = "motley.cluster/1"\nname = "bench"\n' + "\n".join(nodes)


def motley(*arguments):
    command = [str(BUILD / "motley"), *map(str, arguments), "--json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def run_arguments(case, folder, name, cluster, planner, run="run"):
    arguments = ["run", "-m", folder / f"{name}.motley", "-C", cluster, "--data", ROOT / "examples/data" / case["data"]]
    if "seq" in case:
        arguments += ["--seq", case["seq"]]
    arguments += ["--global-batch", case["batch"], "--steps", case["steps"], "--resume", "never"]
    arguments += ["--profiles", folder / "profiles.db", "--planner", planner]
    return [*arguments, "--run-dir", folder / f"{run}-{name}-{planner}"]


@contextlib.contextmanager
def quotas(speeds):
    """A control group a device, with a real quota of CPU time."""
    groups = []
    for i, speed in enumerate(speeds):
        group = QUOTA_ROOT / f"motley-bench-{os.getpid()}-{i}"
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * speed)))
        groups.append(group)
    try:
        yield groups
    finally:
        for group in groups:
            with contextlib.suppress(OSError):
                group.rmdir()


def move_into(groups, run_dir, stop):
    """Moves each worker into its group as soon as its status file says its process."""
    moved = set()
    while not stop.is_set() and len(moved) < len(groups):
        for rank, group in enumerate(groups):
            with contextlib.suppress(OSError, ValueError):
                pid = int.from_bytes((run_dir / f"status/rank-{rank}").read_bytes()[:8], "little")
                if rank not in moved and pid and os.path.exists(f"/proc/{pid}"):
                    (group / "cgroup.procs").write_text(str(pid))
                    moved.add(rank)
        time.sleep(0.005)


def quota_run(arguments, run_dir):
    with quotas(SPEEDS) as groups:
        stop = threading.Event()
        mover = threading.Thread(target=move_into, args=(groups, run_dir, stop))
        mover.start()
        try:
            return motley(*arguments, "--enforce", "outside")
        finally:
            stop.set()
            mover.join()


DDP = """
import sys; sys.path.insert(0, {examples!r})
import os, time, torch, torch.distributed as dist, statistics, types
import reference
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
module, _ = reference.load_model({function!r})
model = torch.nn.parallel.DistributedDataParallel(module)
arrays = {load}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch, world = {batch}, dist.get_world_size()
own = batch // world
seconds = []
for step in range({steps}):
    start = time.perf_counter()
    inputs = [a[rank * own:(rank + 1) * own] for a in reference.batch_of(arrays, step, batch)]
    optimizer.zero_grad(set_to_none=True)
    reference.loss_of(model(*inputs)).backward()
    optimizer.step()
    dist.barrier()
    seconds.append(time.perf_counter() - start)
if rank == 0:
    print("median", statistics.median(seconds[3:]))
dist.destroy_process_group()
"""


def ddp_even(case):
    """PyTorch DDP, even split, each process under its quota. Seconds a step."""
    function = str(ROOT / "examples" / case["function"])
    data = str(ROOT / "examples/data" / case["data"])
    load = (
        f"reference.load_tokens({data!r}, 'u16', {case['seq']})"
        if "seq" in case
        else f"reference.load_arrays({data!r}, module, 2)"
    )
    script = DDP.format(
        examples=str(ROOT / "examples"), function=function, load=load, batch=case["batch"], steps=case["steps"]
    )
    environment = dict(
        os.environ, WORLD_SIZE=str(len(SPEEDS)), MASTER_ADDR="127.0.0.1", MASTER_PORT="29713", OMP_NUM_THREADS="1"
    )
    with quotas(SPEEDS) as groups:
        processes = []
        for rank, group in enumerate(groups):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", script],
                    env=dict(environment, RANK=str(rank)),
                    stdout=subprocess.PIPE,
                    text=True,
                    preexec_fn=lambda group=group: (group / "cgroup.procs").write_text(str(os.getpid())),
                )
            )
        output = [process.communicate(timeout=600)[0] for process in processes]
    return float(output[0].split()[-1])


def measure(name, case, folder, rounds):
    """Rows of one model."""
    subprocess.run(
        [sys.executable, "-m", "motley.export", ROOT / "examples" / case["function"], "-o", folder / f"{name}.motley"],
        check=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")),
    )
    three, one = folder / "three.toml", folder / "one.toml"
    three.write_text(cluster_text(SPEEDS))
    one.write_text(cluster_text((1.0,)))
    has_quotas = os.geteuid() == 0 and os.access(QUOTA_ROOT, os.W_OK)
    found = {False: [], True: []}
    for turn in range(rounds):
        print(f"{name}: round {turn + 1} of {rounds} ...", file=sys.stderr)
        (folder / "profiles.db").unlink(missing_ok=True)
        measured = round_of(name, case, folder, one, three)
        found[False].append(measured)
        if has_quotas:
            found[True].append(quota_round(name, case, folder, three, measured))
    return [row(name + (" under kernel quotas" if quota else ""), each) for quota, each in found.items() if each]


def round_of(name, case, folder, one, three):
    """Seconds a step of each way, in one round."""
    best = motley(*run_arguments(case, folder, name, three, "auto"))
    alone = motley(*run_arguments(case, folder, name, one, "auto"))["step_s_median"]
    best_again = motley(*run_arguments(case, folder, name, three, "auto"))
    equal = motley(*run_arguments(case, folder, name, three, "equal"))
    pair = [run_arguments(case, folder, name, one, "auto", f"pair-{i}") for i in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = [each["step_s_median"] for each in pool.map(lambda arguments: motley(*arguments), pair)]
    step = statistics.mean([best["step_s_median"], best_again["step_s_median"]])
    return {
        "split": ":".join(str(device["samples"]) for device in best["devices"]),
        "step_s": step,
        "predicted_step_s": best["predicted_step_s"],
        "bound_s": alone / sum(SPEEDS),
        "busy_bound_s": statistics.mean(both) / sum(SPEEDS),
        "equal_split_s": equal["step_s_median"],
    }


def quota_round(name, case, folder, three, measured):
    best = quota_run(run_arguments(case, folder, name, three, "auto"), folder / f"run-{name}-auto")
    equal = quota_run(run_arguments(case, folder, name, three, "equal"), folder / f"run-{name}-equal")
    return measured | {
        "split": ":".join(str(device["samples"]) for device in best["devices"]),
        "step_s": best["step_s_median"],
        "predicted_step_s": best["predicted_step_s"],
        "equal_split_s": equal["step_s_median"],
        "pytorch_ddp_s": ddp_even(case),
    }


def row(case, rounds):
    """Medians over the rounds; of ratios too, so that a slow round does not count twice."""

    def median(value):
        return statistics.median(value(each) for each in rounds)

    numbers = {key: median(lambda each, key=key: each[key]) for key in rounds[0] if key != "split"}
    return numbers | {
        "case": case,
        "split": rounds[-1]["split"],
        "over_bound": median(lambda each: each["step_s"] / each["bound_s"]),
        "over_busy_bound": median(lambda each: each["step_s"] / each["busy_bound_s"]),
        "equal_over_plan": median(lambda each: each["equal_split_s"] / each["step_s"]),
        "prediction_error": median(lambda each: each["predicted_step_s"] / each["step_s"] - 1),
        "rounds": rounds,
    }


def print_row(r):
    ddp = f"{r['pytorch_ddp_s'] * 1e3:.0f} ms" if "pytorch_ddp_s" in r else ""
    print(
        f"{r['case']:<26}{r['split']:<14}{r['step_s'] * 1e3:>7.1f} ms{r['predicted_step_s'] * 1e3:>8.1f} ms"
        f"{100 * r['prediction_error']:>7.1f}%{r['bound_s'] * 1e3:>7.1f} ms{r['over_bound']:>6.2f}x"
        f"{r['busy_bound_s'] * 1e3:>9.1f} ms{r['over_busy_bound']:>6.2f}x{r['equal_split_s'] * 1e3:>10.1f} ms{ddp:>10}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    rows = []
    print(
        f"{'case':<26}{'split':<14}{'step':>10}{'predicted':>11}{'error':>8}{'bound':>10}{'over':>7}"
        f"{'busy bound':>12}{'over':>7}{'equal split':>13}{'DDP even':>10}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.cases.split(","):
            measured = measure(name, CASES[name], pathlib.Path(folder), options.rounds)
            for each in measured:
                print_row(each)
            rows += measured
    output = BUILD / "bench"
    output.mkdir(exist_ok=True, parents=True)
    (output / "emulated.json").write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()

"""Scripts of three models, and of three frameworks, in three lines over unequal ranks (0.8, 0.4, 0.2 of a core, kernel quotas), as root.

Each case is one script: with DistributedDataParallel and an even split, and with the lines that import motley.torch, share the loader
and wrap the model changed (of a framework's: share its trainer). Both run in turns. Prints a table and writes build/bench/adopt.json: case, changed_lines, even_step_s,
step_s, speedup, best_step_s (the split by speeds, given), settled_steps (from the start until the split stays within 5 % of the best one, beyond
prefetched batches), settled_after_slow (the same after the fastest rank's quota is halved), over_best (the split in the end over the best
one), max_param_diff (of a framework's: parameters in the end, learned shares beside the even split), overhead (a step of two equal ranks over one of DistributedDataParallel's). A split is judged by what it takes
by lines through all that the ranks' steps took in all rounds, not by its own steps: one of them may be late by chance.
"""

import argparse
import difflib
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from adopt_frameworks import SCRIPTS
from emulated import PERIOD_US, SPEEDS, quotas

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
CASES = {
    "mlp": dict(function="mlp.py:model", data="digits.npz", batch=933, steps=44),
    "cnn": dict(function="digits_cnn.py:model", data="digits.npz", batch=187, steps=44),
    "gpt": dict(function="char_gpt.py:model", data="devils_dictionary.bin", batch=37, steps=44),
} | {name: dict(batch=16, steps=44) for name in SCRIPTS}
SLOWED = 20  # the step at which the fastest rank's quota is halved
EQUAL = (0.8, 0.8)
BEST = 15  # steps from which medians are taken

SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
case = json.loads(sys.argv[1])
sys.path.insert(0, case["examples"])
from reference import load_arrays, load_model, load_tokens, loss_of
torch.set_num_threads(1)
dist.init_process_group("gloo")
module, inputs = load_model(case["function"])
data = load_tokens(case["data"], "u16", 64) if case["data"].endswith(".bin") else load_arrays(case["data"], module, len(inputs))
samples = TensorDataset(*data)
samples = ConcatDataset([samples] * -(-case["steps"] * case["batch"] * dist.get_world_size() // len(samples)))
loader = DataLoader(samples, case["batch"], sampler=DistributedSampler(samples), drop_last=True)
model = DistributedDataParallel(module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print("ready", flush=True); sys.stdin.readline()
for step, batch in zip(range(case["steps"]), loader):
    optimizer.zero_grad()
    loss_of(model(*batch)).backward()
    optimizer.step()
    print(json.dumps([time.time(), len(batch[0])]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
CHANGES = [
    ("import torch, torch.distributed as dist", "import torch, torch.distributed as dist, motley.torch"),
    ("drop_last=True)", "drop_last=True); loader = motley.torch.share(loader)"),
    ("model = DistributedDataParallel(module)", "model = motley.torch.DDP(module)"),
]


def changed(name, shares=None):
    """The case's script with Motley."""
    script, changes = SCRIPTS.get(name, (SCRIPT, CHANGES))
    for old, new in changes:
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    return re.sub(r"(motley.torch.share\((?:[^()]|\([^()]*\))*)\)", rf"\1, shares={shares})", script, count=1) if shares else script


def plain(name):
    return SCRIPTS[name][0] if name in SCRIPTS else SCRIPT


def changed_lines(name):
    lines = difflib.ndiff(plain(name).splitlines(), changed(name).splitlines())
    return sum(line.startswith("+ ") for line in lines)


def train(script, case, slow=False, speeds=SPEEDS):
    """Of each step seconds and samples of each rank, by rank 0's clock; of a framework's also the parameters in the end; with Motley
    (samples, seconds of compute) of each rank in each step. With `slow` the first quota is halved on the way."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = dict(case, examples=str(ROOT / "examples"))
    if "function" in case:
        told |= dict(function=str(ROOT / "examples" / case["function"]), data=str(ROOT / "examples/data" / case["data"]))
    environment = os.environ | {"WORLD_SIZE": str(len(speeds)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                                "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT / "python"), "MOTLEY_PROGRAM": str(BUILD / "motley")}  # fmt: skip
    with quotas(speeds) as groups, tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "train.py"
        path.write_text(script)
        files = [open(pathlib.Path(folder) / f"out-{rank}", "w+") for rank in range(len(speeds))]
        state, run_dir = pathlib.Path(folder) / "state.pt", pathlib.Path(folder) / "run"
        environment["MOTLEY_RUN_DIR"] = str(run_dir)
        ranks = [
            subprocess.Popen([sys.executable, str(path), json.dumps(told | dict(folder=folder, state=str(state)))],
                             env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, stdin=subprocess.PIPE, stdout=files[rank])
            for rank in range(len(groups))
        ]  # fmt: skip
        outputs = [pathlib.Path(file.name) for file in files]
        while any("ready" not in output.read_text() for output in outputs) and all(rank.poll() is None for rank in ranks):
            time.sleep(0.005)
        for rank, group in zip(ranks, groups):  # what is before the first step need not be slow
            (group / "cgroup.procs").write_text(str(rank.pid))
            rank.stdin.close()
        while any(rank.poll() is None for rank in ranks):
            time.sleep(0.005)
            if slow and outputs[0].read_text().count("\n") > SLOWED:
                slow = False
                (groups[0] / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * speeds[0] / 2)))
        lines = [output.read_text().splitlines() for output in outputs]
        told = [[json.loads(line) for line in each if line.startswith("[")] for each in lines]
        codes = [rank.returncode for rank in ranks]
        is_done = all(len(each) == case["steps"] for each in told)
        if any(codes) and is_done and "motley" not in script:
            # PyTorch's threads at the interpreter's end, as python/motley/torch/ending.py says.
            print(f"adopt: all steps done, ranks ended with {codes}", file=sys.stderr)
        elif any(codes):
            sys.exit(f"adopt: a rank ended with {codes}")
        found = torch.load(state) if state.exists() else {}
        log = run_dir / "log.jsonl"
        steps = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        for file in files:
            file.close()
    ends = [at for at, _ in told[0]]
    seconds = [end - begin for begin, end in zip(ends, ends[1:])]
    splits = [list(each) for each in zip(*([n for _, n in rank] for rank in told))]
    return seconds, splits, found, [list(zip(each["samples"], each["compute_s"])) for each in steps]


def line(points):
    """(fixed, of each sample), neither below 0, through (samples, seconds): least squares of the medians at each number of samples."""
    medians = {n: (len(own), statistics.median(own)) for n in {n for n, _ in points} if (own := [s for m, s in points if m == n])}
    total = sum(count for count, _ in medians.values())
    x = sum(count * n for n, (count, _) in medians.items()) / total
    y = sum(count * s for count, s in medians.values()) / total
    spread = sum(count * (n - x) ** 2 for n, (count, _) in medians.items())
    each = sum(count * (n - x) * (s - y) for n, (count, s) in medians.items()) / spread if spread else y / x
    each = min(max(each, 0.0), y / x)
    return y - each * x, each


def lines_of(logs):
    """Of each rank, without the first step at a number of samples, which takes longer."""
    lines = []
    for rank in range(len(SPEEDS)):
        own = [[step[rank] for step in log if step] for log in logs]
        lines.append(line([now for log in own for before, now in zip(log, log[1:]) if before[0] == now[0]]))
    return lines


def step_of(split, lines):
    return max(fixed + each * n for n, (fixed, each) in zip(split, lines))


def best_of(batch, lines):
    """Seconds of the best split in whole samples: each sample to the rank that has it done first, which is exact for rising times."""
    split = [1] * len(lines)
    for _ in range(batch - len(lines)):
        split[min(range(len(lines)), key=lambda i: lines[i][0] + lines[i][1] * (split[i] + 1))] += 1
    return step_of(split, lines)


def settled(splits, lines):
    """Steps until the split stays within 5 % of the best."""
    best = best_of(sum(splits[0]), lines)
    late = [i for i, split in enumerate(splits) if step_of(split, lines) > 1.05 * best]
    return late[-1] + 1 if late else 0


def overhead(name, case, rounds):
    """A step of ranks that are equal (0.8 of a core each) and share alike, over one of DistributedDataParallel's, in turns."""
    ratios = []
    for _ in range(rounds):
        plain_s, ours_s = (statistics.median(train(script, case, speeds=EQUAL)[0][2:]) for script in (plain(name), changed(name, [1] * len(EQUAL))))
        ratios.append(ours_s / plain_s)
    return statistics.median(ratios)


def row(name, case, rounds):
    ours = changed(name)
    by_speed = changed(name, list(SPEEDS))
    even, learned, best = [], [], []
    for turn in range(rounds):
        print(f"{name}: round {turn + 1} of {rounds} ...", file=sys.stderr)
        even.append(train(plain(name), case))
        learned.append(train(ours, case))
        best.append(train(by_speed, case))
    seconds, splits, states, logs = zip(*learned)
    apart = [float((state[key] - each[2][key]).abs().max()) for state, each in zip(states, even) for key in state]
    _, slow_splits, _, slow_logs = zip(*(train(ours, case | dict(steps=SLOWED + 24), slow=True) for _ in range(rounds)))
    lines = lines_of([*logs, *(each[3] for each in best)])
    slow_lines = lines_of([log[SLOWED + 2 :] for log in slow_logs])  # of all: what ranks take shifts by a tenth with what others do
    even_s, step_s = statistics.median(statistics.median(each[0][2:]) for each in even), statistics.median(statistics.median(each[BEST:]) for each in seconds)
    return {
        "case": name,
        "changed_lines": changed_lines(name),
        "even_step_s": even_s,
        "step_s": step_s,
        "speedup": even_s / step_s,
        "best_step_s": statistics.median(statistics.median(each[0][2:]) for each in best),
        "split": ":".join(map(str, splits[-1][-1])),
        "settled_steps": statistics.median(settled(each, lines) for each in splits),
        "settled_after_slow": statistics.median(settled(each[SLOWED:], slow_lines) for each in slow_splits),
        "over_best": statistics.median(step_of(each[-1], lines) / best_of(sum(each[-1]), lines) for each in splits),
        "max_param_diff": max(apart, default=None),
        "overhead": overhead(name, case, rounds),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = [row(name, CASES[name], options.rounds) for name in options.cases]
    print(f"{'case':10} {'lines':>5} {'even':>10} {'motley':>10} {'x':>5} {'by speed':>10} {'split':>14} {'settled':>8} {'slowed':>7} {'over':>6} {'apart':>8} {'equal':>6}")
    for each in rows:
        print(f"{each['case']:10} {each['changed_lines']:5} {each['even_step_s'] * 1e3:7.1f} ms {each['step_s'] * 1e3:7.1f} ms {each['speedup']:5.2f} "
              f"{each['best_step_s'] * 1e3:7.1f} ms {each['split']:>14} {each['settled_steps']:8.0f} {each['settled_after_slow']:7.0f} {each['over_best']:6.3f} "
              f"{'-' if each['max_param_diff'] is None else format(each['max_param_diff'], '8.1e')} {each['overhead']:6.3f}")  # fmt: skip
    folder = BUILD / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adopt.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()

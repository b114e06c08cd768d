"""Scripts of three models, and of three frameworks, in three lines over unequal ranks (0.8, 0.4, 0.2 of a core, kernel quotas), as root.

Each case is one script: with DistributedDataParallel and an even split, and with the lines that import motley.torch, share the loader
and wrap the model changed (of a framework's: share its trainer). Both run in turns. Prints a table and writes build/bench/adopt.json: case, changed_lines, even_step_s,
step_s, speedup, best_step_s (the split by speeds, given), settled_steps (to 5 % of it from the start, beyond prefetched batches, by
the rates that the settled steps show), settled_after_slow (the same after the quickest rank's quota is halved), max_param_diff (of a
framework's: parameters in the end, learned shares beside the even split).
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
SLOWED = 20  # the step at which the quickest rank's quota is halved
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


def train(script, case, slow=False):
    """Of each step (seconds, samples of each rank), by rank 0's clock; of a framework's also the parameters in the end. With `slow` the
    first quota is halved on the way."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = dict(case, examples=str(ROOT / "examples"))
    if "function" in case:
        told |= dict(function=str(ROOT / "examples" / case["function"]), data=str(ROOT / "examples/data" / case["data"]))
    environment = os.environ | {"WORLD_SIZE": str(len(SPEEDS)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                                "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT / "python"), "MOTLEY_PROGRAM": str(BUILD / "motley")}  # fmt: skip
    with quotas(SPEEDS) as groups, tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "train.py"
        path.write_text(script)
        files = [open(pathlib.Path(folder) / f"out-{rank}", "w+") for rank in range(len(SPEEDS))]
        state = pathlib.Path(folder) / "state.pt"
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
                (groups[0] / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * SPEEDS[0] / 2)))
        if any(rank.returncode for rank in ranks):
            sys.exit(f"adopt: a rank ended with {[rank.returncode for rank in ranks]}")
        lines = [output.read_text().splitlines() for output in outputs]
        told = [[json.loads(line) for line in each if line.startswith("[")] for each in lines]
        found = torch.load(state) if state.exists() else {}
        for file in files:
            file.close()
    ends = [at for at, _ in told[0]]
    seconds = [end - begin for begin, end in zip(ends, ends[1:])]
    return seconds, [list(each) for each in zip(*([n for _, n in rank] for rank in told))], found


def settled(splits, first, last):
    """Steps from `first` on until the split stays within 5 % of the best by the split that it has in the end, whose ranks take equally
    long: a rank's rate is its samples then."""
    rates = [statistics.median(split[rank] for split in splits[last - 8 : last]) for rank in range(len(SPEEDS))]
    over = [max(n / rate for n, rate in zip(split, rates)) for split in splits[first:last]]
    late = [i for i, each in enumerate(over) if each > 1.05]
    return late[-1] + 1 if late else 0


def row(name, case, rounds):
    ours = changed(name)
    by_speed = changed(name, list(SPEEDS))
    even, learned, best = [], [], []
    for turn in range(rounds):
        print(f"{name}: round {turn + 1} of {rounds} ...", file=sys.stderr)
        even.append(train(plain(name), case))
        learned.append(train(ours, case))
        best.append(statistics.median(train(by_speed, case)[0][2:]))
    seconds, splits, states = zip(*learned)
    apart = [float((state[key] - each[2][key]).abs().max()) for state, each in zip(states, even) for key in state]
    slowed = [train(ours, case | dict(steps=SLOWED + 24), slow=True)[1] for _ in range(rounds)]
    even_s, step_s = statistics.median(statistics.median(each[0][2:]) for each in even), statistics.median(statistics.median(each[BEST:]) for each in seconds)
    return {
        "case": name,
        "changed_lines": changed_lines(name),
        "even_step_s": even_s,
        "step_s": step_s,
        "speedup": even_s / step_s,
        "best_step_s": statistics.median(best),
        "split": ":".join(map(str, splits[-1][-1])),
        "settled_steps": statistics.median(settled(each, 0, len(each)) for each in splits),
        "settled_after_slow": statistics.median(settled(each, SLOWED, len(each)) for each in slowed),
        "max_param_diff": max(apart, default=None),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = [row(name, CASES[name], options.rounds) for name in options.cases]
    print(f"{'case':10} {'lines':>5} {'even':>10} {'motley':>10} {'x':>5} {'by speed':>10} {'split':>14} {'settled':>8} {'slowed':>7} {'apart':>8}")
    for each in rows:
        print(f"{each['case']:10} {each['changed_lines']:5} {each['even_step_s'] * 1e3:7.1f} ms {each['step_s'] * 1e3:7.1f} ms {each['speedup']:5.2f} "
              f"{each['best_step_s'] * 1e3:7.1f} ms {each['split']:>14} {each['settled_steps']:8.0f} {each['settled_after_slow']:7.0f} "
              f"{'-' if each['max_param_diff'] is None else format(each['max_param_diff'], '8.1e')}")  # fmt: skip
    folder = BUILD / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adopt.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()

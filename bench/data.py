"""Data from Python and from files larger than the memory, and loops of one's own, on three emulated devices.

  waiting   a dataset that takes 3 ms of Python a sample, with 1, 2, 4, ... loading processes: the share of
            the time that steps wait, and what the run says would do
  large     20 GiB of pictures (a sparse .npy) under a memory limit of 2 GiB, as root: trains; peak against
            the prediction's
  script    motley.Run beside motley run on the same samples, in turns: are the losses the same bits, and
            the ratio of the times of a step

Prints one table and writes build/bench/data.json. Cases may be named.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
MEMORY = pathlib.Path("/sys/fs/cgroup/memory")
LIMIT, LARGE = 2 << 30, 20 << 30
SPEEDS = (0.6, 0.5, 0.3)
ROUNDS = 5
SOURCES = f"""
import time
import numpy as np, torch
from torch import nn
from torch.utils.data import Dataset
ARRAYS = np.load({str(ROOT / "examples/data/digits.npz")!r})
X, Y = torch.from_numpy(ARRAYS["x"]), torch.from_numpy(ARRAYS["y"])
class Digits(Dataset):
    def __len__(self):
        return len(Y)
    def __getitem__(self, i):
        time.sleep(0.003)
        return X[i], Y[i]
class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 16, stride=16), nn.SiLU(), nn.Flatten(), nn.Linear(16 * 196, 10))
    def forward(self, x, y):
        return nn.functional.cross_entropy(self.net(x), y)
def patches():
    return Patches(), (torch.randn(4, 3, 224, 224), torch.randint(0, 10, (4,)))
"""
SCRIPT = f"""
import json, sys, time
import numpy as np, torch, motley
from torch.utils.data import DataLoader, TensorDataset
arrays = np.load({str(ROOT / "examples/data/digits.npz")!r})
data = TensorDataset(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]))
flags = json.loads(sys.argv[1])
with motley.Run(flags.pop("model"), **flags) as run:
    losses, seconds = [], []
    for _, batch in zip(range(40), DataLoader(data, batch_sampler=run.batches(len(data), shuffle=1))):
        begin = time.perf_counter()
        losses.append(run.step(batch).loss)
        seconds.append(time.perf_counter() - begin)
print(json.dumps({{"losses": losses, "seconds": seconds}}))
"""


def environment():
    path = {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PYTHON": sys.executable, "MOTLEY_PROGRAM": str(BUILD / "motley")}
    return dict(os.environ, OMP_NUM_THREADS="1", **path)


def call(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment(), **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class Bench:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.sources = self.folder / "sources.py"
        self.sources.write_text(SOURCES)
        self.cluster = self.folder / "cluster.toml"
        nodes = [f'[[node]]\nname = "{chr(97 + i)}"\n  [[node.device]]\n  kind = "cpu"\n  speed = {speed}\n'
                 for i, speed in enumerate(SPEEDS)]  # fmt: skip
        self.cluster.write_text('schema = "motley.cluster/1"\nname = "bench"\n' + "".join(nodes))
        self.digits = self.export(ROOT / "examples/digits_cnn.py:model", "digits")

    def export(self, source, name):
        path = self.folder / f"{name}.motley"
        call(sys.executable, "-m", "motley.export", source, "-o", path, "--json")
        return path

    def flags(self, model, run, split):
        return {"model": model, "cluster": self.cluster, "global-batch": 64, "run-dir": self.folder / run, "resume": "never",
                "batch-split": split, "profiles": self.folder / "profiles.db"}  # fmt: skip

    def run(self, model, run, split, *more, **options):
        flags = [word for name, value in self.flags(model, run, split).items() for word in (f"--{name}", value)]
        return call(BUILD / "motley", "run", *flags, "--json", "-q", *more, **options)

    def waiting(self):
        for loaders in (1, 2, 4, 8, 16):
            found = self.run(self.digits, "waiting", "28,22,14", "--steps", 40, "--loaders", loaders, "--data",
                             f"python:{self.sources}:Digits")  # fmt: skip
            yield {"case": "waiting", "loaders": loaders, "waiting_share": found["data_wait_share"],
                   "loaders_wanted": found["loaders_wanted"], "step_s": found["step_s_median"]}  # fmt: skip

    def large(self):
        samples = LARGE // (3 * 224 * 224 * 4)
        data = self.folder / "data"
        data.mkdir()
        np.lib.format.open_memmap(data / "x.npy", "w+", np.float32, (samples, 3, 224, 224)).flush()  # zeros: no disk
        np.save(data / "y.npy", np.arange(samples) % 10)
        group = MEMORY / "motley-bench-data"
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
        model = self.export(f"{self.sources}:patches", "patches")
        enter = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))  # noqa: E731
        found = self.run(model, "large", "28,22,14", "--steps", 120, "--shuffle", 1, "--data", data, preexec_fn=enter)
        predicted = call(BUILD / "motley", "simulate", "-m", model, "-C", self.cluster, "--plan",
                         self.folder / "large/plan.json", "--profiles", self.folder / "profiles.db", "--json")["peak_interval_bytes"]  # fmt: skip
        group.rmdir()
        measured = [device["peak_bytes"] for device in found["devices"]]
        errors = [m / ((low + high) / 2) - 1 for m, (low, high) in zip(measured, predicted.values(), strict=True)]
        yield {"case": "large", "read_bytes": 120 * 64 * 3 * 224 * 224 * 4, "memory_bytes": LIMIT, "steps": found["steps"],
               "peak_error": max(errors, key=abs)}  # fmt: skip

    def script(self):
        script = self.folder / "script.py"
        script.write_text(SCRIPT)
        ratios, same = [], True
        digits = ROOT / "examples/data/digits.npz"
        for _ in range(ROUNDS):
            ours = self.run(self.digits, "ours", "28,22,14", "--steps", 40, "--shuffle", 1, "--data", digits)
            flags = {name.replace("-", "_"): str(value) for name, value in self.flags(self.digits, "own", "28,22,14").items()}
            own = call(sys.executable, script, json.dumps(flags))
            same = same and own["losses"] == ours["losses"]
            ratios.append(statistics.median(own["seconds"][1:]) / ours["step_s_median"])
        yield {"case": "script", "same_bits": same, "step_ratio": statistics.median(ratios), "rounds": ROUNDS}


def main():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        for case in sys.argv[1:] or ["waiting", "large", "script"]:
            for row in getattr(bench, case)():
                rows.append(row)
                print("  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
                                for key, value in row.items()), flush=True)  # fmt: skip
    (BUILD / "bench").mkdir(exist_ok=True)
    (BUILD / "bench/data.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

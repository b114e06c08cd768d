"""One training step of the engine against PyTorch: one process against its eager loop, on one thread,
and two equal processes against DDP over Gloo (ddp_rows.py). With --device cuda one process on a GPU,
against the eager loop and against torch.compile there.

Both run in turns, a few steps each, so that whatever else the machine does hits both; the ratio is
that of the medians of step times. PyTorch runs with its default optimizer, and in a further row with
`fused=True`. Prints one table and writes build/bench/engine.json: case, motley_s, pytorch_s, ratio,
and the peak memory of a step beside its prediction.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(ROOT / "bench"))
import ddp_rows  # noqa: E402
from reference import load_model, loss_of  # noqa: E402

CASES = {
    "mlp": dict(function="mlp.py:model", batch=128, optimizer="sgd", lr=0.05),
    "cnn": dict(function="digits_cnn.py:model", batch=64, optimizer="sgd", lr=0.05),
    "gpt": dict(function="char_gpt.py:model", batch=16, optimizer="adamw", lr=1e-3),
}


def grow(tensor, batch):
    """The example's input, repeated to `batch` samples."""
    repeats = -(-batch // len(tensor))
    return tensor.repeat(repeats, *[1] * (tensor.dim() - 1))[:batch]


class Eager:
    """PyTorch's training loop."""

    def __init__(self, case, fused=False, device="cpu", compiled=False):
        self.module, inputs = load_model(str(ROOT / "examples" / case["function"]))
        self.device = device
        self.module.to(device)
        self.forward = torch.compile(self.module) if compiled else self.module
        self.inputs = [grow(x, case["batch"]) for x in inputs]  # on the host, as the engine's
        self.batch = case["batch"]
        kind = torch.optim.SGD if case["optimizer"] == "sgd" else torch.optim.AdamW
        options = dict(momentum=0.9) if case["optimizer"] == "sgd" else {}
        options |= dict(fused=True) if fused else {}
        self.optimizer = kind(self.module.parameters(), lr=case["lr"], **options)

    def run(self, steps):
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            samples = torch.arange(self.batch)
            inputs = [x[samples].to(self.device) for x in self.inputs]
            self.optimizer.zero_grad(set_to_none=True)
            loss = loss_of(self.forward(*inputs))
            loss.backward()
            self.optimizer.step()
            loss.item()
            if self.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        return seconds


class Engine:
    """The engine in a process of its own, asked through a pipe."""

    def __init__(self, case, inputs, folder, device):
        model, data = folder / "model.motley", folder / "data.npz"
        function = str(ROOT / "examples" / case["function"])
        subprocess.run(
            [sys.executable, "-m", "motley.export", function, "-o", model],
            check=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
            stdout=subprocess.DEVNULL,
        )
        numpy.savez(data, **{f"x{i}": x.numpy() for i, x in enumerate(inputs)})
        command = [BUILD / "bench_engine_driver", model, data, case["batch"], case["optimizer"]]
        self.process = subprocess.Popen(
            [str(part) for part in [*command, case["lr"], device]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answer = {}

    def run(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench_engine_driver ended with status {self.process.wait()}; its stderr is above")
        self.answer = json.loads(line)
        return self.answer["step_s"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def in_turns(runners, seconds):
    """Median step time of each runner; they take turns of about a tenth of a second."""
    for runner in runners:
        runner.run(3)
    turn = max(1, int(0.1 / max(statistics.median(runner.run(5)) for runner in runners)))
    times = [[] for _ in runners]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for runner, kept in zip(runners, times):
            kept += runner.run(turn)
    return [statistics.median(kept) for kept in times]


def measure_alone(name, case, seconds, device):
    """One process against eager, both with PyTorch's default optimizer and with the fused one, and on a
    GPU against torch.compile, too."""
    peers = {"": Eager(case, device=device), " fused optimizer": Eager(case, fused=True, device=device)}
    if device == "cuda":
        peers[" compiled"] = Eager(case, fused=True, device=device, compiled=True)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(case, peers[""].inputs, pathlib.Path(folder), device)
        times = in_turns([engine, *peers.values()], seconds)
        engine.close()
    memory = {key: engine.answer[key] for key in ("peak_bytes", "predicted_peak_bytes")}
    for label, pytorch_s in zip(peers, times[1:]):
        ratio = times[0] / pytorch_s
        yield dict(case=name + label, motley_s=times[0], pytorch_s=pytorch_s, ratio=ratio) | memory


def need_gpu(parser):
    """Ends a bench where there is none; products are as the engine's, without TF32."""
    if not torch.cuda.is_available():
        parser.exit(0, "skipped, no CUDA device here\n")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only these")
    parser.add_argument("--seconds", type=float, default=6.0, help="of measuring a case")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    if options.device == "cuda":
        need_gpu(parser)
    torch.set_num_threads(1)
    rows = []
    print(f"{'case':24} {'motley':>10} {'pytorch':>10} {'ratio':>6} {'peak':>10} {'predicted':>10}")
    for name in options.case or CASES:
        for row in measure_alone(name, CASES[name], options.seconds, options.device):
            rows.append(row)
            print(
                f"{row['case']:24} {row['motley_s'] * 1e3:7.3f} ms {row['pytorch_s'] * 1e3:7.3f} ms "
                f"{row['ratio']:6.2f} {row['peak_bytes'] / 2**20:6.1f} MiB "
                f"{row['predicted_peak_bytes'] / 2**20:6.1f} MiB"
            )
    for row in ddp_rows.rows(options.case or CASES) if options.device == "cpu" else ():
        rows.append(row)
        print(f"{row['case']:24} {row['motley_s'] * 1e3:7.3f} ms {row['pytorch_s'] * 1e3:7.3f} ms {row['ratio']:6.2f}")
    target = BUILD / "bench" / ("engine.json" if options.device == "cpu" else "engine-cuda.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

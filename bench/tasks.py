"""Two real trainings to their ends, each from three initial models: by `motley run` over three emulated
devices (0.8, 0.4, 0.2 of a core), and by a loop of PyTorch as one writes it by hand, on one device.

  digits  examples/digits_cnn.py on digits that are moved at random when they are read; best accuracy
          on 297 others, to reach 98 %
  text    a smaller model of examples/char_gpt.py with dropout on 2800 windows of text; best perplexity
          a character on the 315 after them

Both warm up, follow a cosine, clip the gradients' norm, exempt biases from decay, evaluate now and then
and stop when a number of evaluations brought nothing better. Random numbers and orders differ between
both sides, so what counts is whether their results are as far apart as those of seeds are.

  curves  the same without dropout, movement, shuffling and early stop: both see the same samples.
          Relative difference of each evaluation's loss, beside that of PyTorch's own loop from weights
          whose last bits were changed

Prints tables and writes build/bench/tasks.json. Cases may be named.
"""

import copy
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples"), str(ROOT / "python")]

import char_gpt  # noqa: E402
import digits_cnn  # noqa: E402
import digits_moved  # noqa: E402
import emulated  # noqa: E402
import reference  # noqa: E402
from motley.rounding import change_last_bits  # noqa: E402

SEEDS = (0, 1, 2)
TEXT, DIGITS = ROOT / "examples/data/devils_dictionary.bin", ROOT / "examples/data/digits.npz"
WINDOWS = 2800


@dataclass
class Task:
    """A model, its data on both sides, and a recipe."""

    make: type  # of the module
    inputs: tuple  # of an export
    train: str  # --data
    test: str  # --eval-data
    metric: str
    target: float
    batch: int
    epochs: int
    every: int  # steps
    patience: int
    lr: float
    warmup: int
    clip: float = 1.0
    shuffled: bool = True

    @property
    def is_text(self):
        return self.metric == "perplexity"

    def reaches(self, value):
        return value <= self.target if self.is_text else value >= self.target

    def is_better(self, value, best):
        return best is None or (value < best if self.is_text else value > best)


def small_gpt(dropout=0.1):
    return char_gpt.CharGpt(width=64, layers=2, dropout=dropout)


def windows(numbers):
    return TensorDataset(*(each[numbers] for each in reference.load_tokens(str(TEXT), "u16", char_gpt.LENGTH)))


# What the names of both sides' data mean to PyTorch's loop.
DATASETS = {
    f"python:{ROOT}/examples/digits_moved.py:train": digits_moved.train,
    f"python:{ROOT}/examples/digits_moved.py:test": digits_moved.test,
    f"{DIGITS}[:1500]": lambda: digits_moved.Digits(slice(1500)),
    f"{TEXT}[:{WINDOWS}]": lambda: windows(slice(WINDOWS)),
    f"{TEXT}[{WINDOWS}:]": lambda: windows(slice(WINDOWS, None)),
}
TRAINED_DIGITS, TESTED_DIGITS, STILL_DIGITS, TRAINED_TEXT, TESTED_TEXT = DATASETS
PLACES = torch.zeros(4, char_gpt.LENGTH, dtype=torch.int64)
TASKS = {
    "digits": Task(digits_cnn.DigitsCnn, (torch.rand(4, 1, 8, 8), torch.arange(4)), TRAINED_DIGITS, TESTED_DIGITS,
                   "accuracy", 0.98, batch=60, epochs=20, every=25, patience=8, lr=0.003, warmup=20),
    "text": Task(small_gpt, (PLACES, PLACES), TRAINED_TEXT, TESTED_TEXT,
                 "perplexity", 7.5, batch=28, epochs=12, every=100, patience=2, lr=0.005, warmup=100),
}  # fmt: skip
CURVES = {
    "digits": replace(TASKS["digits"], train=STILL_DIGITS, shuffled=False),
    "text": replace(TASKS["text"], make=lambda: small_gpt(dropout=0.0), shuffled=False),
}


def make_module(case, name, seed):
    torch.manual_seed(seed)
    return {"tasks": TASKS, "curves": CURVES}[case][name].make()


@dataclass
class Evaluation:
    step: int
    loss: float
    value: float  # of the task's metric


@dataclass
class Outcome:
    evaluations: list[Evaluation]
    steps: int

    def best(self, task):
        best = None
        for each in self.evaluations:
            if task.is_better(each.value, best and best.value):
                best = each
        return best

    def reached(self, task):
        """Epochs until the target."""
        samples = len(DATASETS[task.train]())
        return next((e.step * task.batch / samples for e in self.evaluations if task.reaches(e.value)), None)


def evaluate(module, loader, task):
    module.eval()
    loss = total = count = samples = 0
    with torch.no_grad():
        for batch in loader:
            result = module(*batch)
            loss += result["loss"].item() * len(batch[0])
            samples += len(batch[0])
            total += float(result[task.metric][0])
            count += result[task.metric][1]
    module.train()
    return loss / samples, math.exp(total / count) if task.is_text else total / count


def train_by_pytorch(task, module, seed):
    """The loop that a user writes."""
    torch.manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    train = DataLoader(DATASETS[task.train](), task.batch, shuffle=task.shuffled, generator=order)
    test = DataLoader(DATASETS[task.test](), task.batch)
    biases = [each for name, each in module.named_parameters() if name.endswith(".bias")]
    others = [each for name, each in module.named_parameters() if not name.endswith(".bias")]
    optimizer = torch.optim.AdamW([{"params": others}, {"params": biases, "weight_decay": 0.0}], lr=task.lr)
    steps = task.epochs * len(train)

    def factor(step):
        if step < task.warmup:
            return step / task.warmup
        return 0.5 * (1 + math.cos(math.pi * (step - task.warmup) / (steps - task.warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    evaluations, best, worse, step = [], None, 0, 0
    for _ in range(task.epochs):
        for batch in train:
            optimizer.zero_grad()
            module(*batch)["loss"].backward()
            nn.utils.clip_grad_norm_(module.parameters(), task.clip)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % task.every and step != steps:
                continue
            evaluations.append(Evaluation(step, *evaluate(module, test, task)))
            if task.is_better(evaluations[-1].value, best):
                best, worse = evaluations[-1].value, 0
            else:
                worse += 1
            if worse == task.patience:
                return Outcome(evaluations, step)
    return Outcome(evaluations, step)


class Motley:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.cluster = self.folder / "three.toml"
        self.cluster.write_text(emulated.cluster_text(emulated.SPEEDS))

    def export(self, case, name, seed):
        source, path = self.folder / f"{case}_{name}.py", self.folder / f"{case}-{name}-{seed}.motley"
        source.write_text(
            f"import sys\nsys.path.insert(0, {str(ROOT / 'bench')!r})\nimport tasks\n"
            f"def made():\n    return tasks.make_module({case!r}, {name!r}, {seed}), tasks.TASKS[{name!r}].inputs\n"
        )
        command = [sys.executable, "-m", "motley.export", f"{source}:made", "-o", path]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}")
        return path

    def train(self, task, model, seed):
        os.environ.setdefault("MOTLEY_PYTHON", sys.executable)
        os.environ["PYTHONPATH"] = str(ROOT / "python")
        found = emulated.motley(
            "run", "-m", model, "-C", self.cluster, "--global-batch", task.batch, "--data", task.train,
            *(["--shuffle", seed] if task.shuffled else []), "--seed", seed, "--epochs", task.epochs,
            *(["--seq", char_gpt.LENGTH] if task.is_text else []), "--optimizer", "adamw", "--lr", task.lr,
            "--schedule", "cosine", "--warmup", task.warmup, "--clip-norm", task.clip, "--no-decay", "*.bias",
            "--eval-data", task.test, "--eval-every", task.every, "--best", task.metric, "--patience", task.patience,
            "--profiles", self.folder / "profiles.db", "--run-dir", self.folder / "run", "--resume", "never",
        )  # fmt: skip
        evaluations = [Evaluation(e["step"], e["loss"], e["metrics"][task.metric]) for e in found["evaluations"]]
        outcome = Outcome(evaluations, found["steps"])
        assert found["best"]["step"] == outcome.best(task).step, found["best"]
        return outcome


def run_task(motley, name):
    """A row a seed and side."""
    task, rows = TASKS[name], []
    for seed in SEEDS:
        module = make_module("tasks", name, seed)
        outcomes = {
            "motley": motley.train(task, motley.export("tasks", name, seed), seed),
            "pytorch": train_by_pytorch(task, module, seed),
        }
        for side, outcome in outcomes.items():
            best, reached = outcome.best(task), outcome.reached(task)
            row = dict(task=name, seed=seed, side=side, best=best.value, best_step=best.step, steps=outcome.steps,
                       epochs_to_target=reached, evaluations=[vars(each) for each in outcome.evaluations])  # fmt: skip
            rows.append(row)
            after = "never" if reached is None else f"{reached:g} epochs"
            print(f"{name:<8}{seed:>4}  {side:<9}{best.value:>9.4f} at step {best.step:>4} of {outcome.steps:>4}, "
                  f"{task.target:g} after {after}", flush=True)  # fmt: skip
    return rows


def summarize(name, rows):
    """What both sides reached, over the seeds."""
    task = TASKS[name]
    sides = {side: [row["best"] for row in rows if row["side"] == side] for side in ("motley", "pytorch")}
    spread = math.sqrt(statistics.mean(statistics.variance(values) for values in sides.values()))
    means = {side: statistics.mean(values) for side, values in sides.items()}
    for side, values in sides.items():
        print(f"{name:<8}{side:<9} mean {means[side]:.4f}, {min(values):.4f} to {max(values):.4f}", flush=True)
    apart = abs(means["motley"] - means["pytorch"])
    print(f"{name:<8}the means are {apart:.4f} apart; the seeds' standard deviation is {spread:.4f}", flush=True)
    reached = all(task.reaches(value) for values in sides.values() for value in values)
    return dict(task=name, target=task.target, reached=reached, means=means, apart=apart, spread=spread)


def compare_curves(motley, name):
    """Whole trainings of both sides on the same samples: how far the evaluations' losses are apart, and
    those of PyTorch from weights with other last bits."""
    task = replace(CURVES[name], patience=1000)
    module = make_module("curves", name, 0)
    disturbed = copy.deepcopy(module)
    change_last_bits(disturbed, torch.Generator().manual_seed(0))
    ours = motley.train(task, motley.export("curves", name, 0), 0)
    loops = [train_by_pytorch(task, each, 0) for each in (module, disturbed)]
    for one, two, three in zip(ours.evaluations, *(loop.evaluations for loop in loops), strict=True):
        row = dict(task=name, step=two.step, motley=vars(one), pytorch=vars(two), apart=abs(one.loss / two.loss - 1),
                   last_bits=abs(three.loss / two.loss - 1))  # fmt: skip
        print(f"{name:<8}step {two.step:>4}  loss {two.loss:.5f}  {task.metric} {one.value:.5f} {two.value:.5f}  "
              f"apart {row['apart']:.1e}  last bits {row['last_bits']:.1e}", flush=True)  # fmt: skip
        yield row


def main():
    torch.set_num_threads(1)
    cases = sys.argv[1:] or [*TASKS, "curves"]
    result = {"rows": [], "summary": [], "curves": []}
    output = BUILD / "bench/tasks.json"
    output.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        motley = Motley(folder)
        for case in cases:
            if case == "curves":
                for name in CURVES:
                    result["curves"] += compare_curves(motley, name)
            else:
                rows = run_task(motley, case)
                result["rows"] += rows
                result["summary"].append(summarize(case, rows))
            output.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(each["reached"] for each in result["summary"]) else 1)


if __name__ == "__main__":
    main()

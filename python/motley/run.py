"""Motley's engine under a loop of one's own.

    import motley
    run = motley.Run("model.motley", cluster="cluster.toml", global_batch=64, optimizer="adamw", lr=1e-3)
    for batch in DataLoader(dataset, batch_sampler=run.batches(len(dataset), shuffle=1)):
        print(run.step(batch, lr=...).loss)

Loop, schedule, callbacks and logging are the script's; plan, devices and exchanges are Motley's.

One process drives all local devices (`python train.py`, or `motley run train.py`, whose flags count
before those in the script); under torchrun or another launcher each process drives the device of its
rank. A batch that `step` is given is the global batch, or just the samples of this process's devices,
in the order of `run.places`, which are what `run.batches` asks a DataLoader for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import mmap
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from motley import program
from motley.claim import claim
from motley.philox import LOW, philox4x32
from motley.samples import DataError, Inputs, describe

SHORT = {"-m": "--model", "-C": "--cluster", "-q": "--quiet"}
# A launcher's rank, and what must be there with it, as motley/run/launch/environment.h has it.
LAUNCHERS = {
    "RANK": ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "SLURM_PROCID": ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"),
    "OMPI_COMM_WORLD_RANK": ("OMPI_COMM_WORLD_SIZE",),
    "PMI_RANK": ("PMI_SIZE",),
}
MARGIN = 5.0  # s; the workers' own timeouts speak first
BLAMING = 2.0  # s that others have to say what happened, after the first has
STARTING = 10.0  # loading may take so many timeouts


class RunError(RuntimeError):
    """What a device or the planner reported."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    loss: float  # of the global batch
    gradient_norm: float | None  # where the recipe asks for it
    seconds: float  # of the slowest device that this process drives


@dataclasses.dataclass(frozen=True)
class Evaluation:
    loss: float
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Fault:
    """What went wrong, and how likely it is the cause of the others' faults."""

    message: str
    weight: int  # 0: waits for somebody; 1: an error of its own; 2: it died

    @staticmethod
    def of_event(event: dict) -> Fault:
        waits = event.get("code") in ("run.peer-lost", "run.timeout")
        return Fault(f"{event['message']} [{event.get('code', '')}]", 0 if waits else 1)


class Worker:
    """One device's process: commands to it, events from it, memory for its samples."""

    def __init__(self, arguments: list[str], log: str):
        os.makedirs(os.path.dirname(log), exist_ok=True)
        self.log = log
        with open(log, "a") as errors:
            self.process = subprocess.Popen(
                [*arguments, "--parent", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = b""
        self.memory: mmap.mmap | None = None

    def say(self, command: str) -> None:
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # why it is gone, its last event says

    def events(self) -> tuple[list[dict], bool]:
        """What it has said since, and whether it has ended."""
        read = self.process.stdout.read()
        if read is None:
            return [], False
        *lines, self.rest = (self.rest + read).split(b"\n")
        return [json.loads(line) for line in lines], not read

    def give_memory(self, size: int) -> None:
        descriptor = os.memfd_create("motley-batch", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        self.memory = mmap.mmap(descriptor, size)
        self.descriptor = descriptor  # the worker opens it by this process's number for it
        self.say(f"memory /proc/{os.getpid()}/fd/{descriptor}")

    def last_words(self) -> str:
        with contextlib.suppress(OSError), open(self.log) as file:
            return file.read().strip().rpartition("\n")[2][:300]
        return ""


class Batches:
    """Lists of the samples that this process needs of each step, for a DataLoader's batch_sampler.

    Their order is that of `motley run --shuffle`. Without end; it goes on where the training stands.
    """

    def __init__(self, run: Run, samples: int, shuffle: int | None):
        self.run, self.order = run, SampleOrder(samples, shuffle)

    def __iter__(self) -> Iterator[list[int]]:
        step = self.run.steps
        while True:
            first = step * self.run.global_batch
            yield self.order.at([first + place for place in self.run.places])
            step += 1


class SampleOrder:
    """Which sample stands at a position: motley/data/sample_order.cc, for many at once."""

    ROUNDS = 8

    def __init__(self, samples: int, shuffle: int | None):
        if samples < 1:
            raise ValueError(f"found {samples} samples, wanted 1 or more")
        self.samples, self.seed = samples, shuffle
        self.half_bits = np.uint64(((samples - 1).bit_length() + 1) // 2)

    def at(self, positions) -> list[int]:
        epochs, places = np.divmod(np.asarray(positions, np.uint64), np.uint64(self.samples))
        if self.seed is None or self.samples == 1:
            return places.tolist()
        places = self._permuted(places, epochs)
        while (outside := places >= self.samples).any():
            places[outside] = self._permuted(places[outside], epochs[outside])
        return places.tolist()

    def _permuted(self, values, epochs):
        mask = (np.uint64(1) << self.half_bits) - np.uint64(1)
        left, right = values >> self.half_bits, values & mask
        for number in range(self.ROUNDS):
            counter = [right, np.full_like(right, number), epochs & LOW, epochs >> np.uint64(32)]
            left, right = right, left ^ (philox4x32(counter, self.seed)[0] & mask)
        return left << self.half_bits | right


def find_programs() -> tuple[str, str]:
    """motley and motley-worker."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/motley")
    installed = os.path.join(program.FOLDER, "motley")
    for path in (os.environ.get("MOTLEY_PROGRAM"), shutil.which("motley"), installed, beside):
        worker = path and os.path.join(os.path.dirname(os.path.realpath(path)), "motley-worker")
        if worker and os.path.exists(worker):
            return os.path.realpath(path), worker
    raise RunError("no motley and motley-worker found; MOTLEY_PROGRAM names motley, or PATH has it")


def find_rank(environment: Mapping) -> int | None:
    """This process's rank among those of a launcher; none: it was started alone."""
    for name, others in LAUNCHERS.items():
        if all(each in environment for each in (name, *others)):
            return int(environment[name])
    return None


def merge_flags(flags: Mapping, given: list[str]) -> list[str]:
    """Flags of `motley run`: keywords of a script, but for those that its command line has."""
    named = {SHORT.get(word.split("=")[0], word.split("=")[0]) for word in given if word[:1] == "-"}
    words = list(given)
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False or flag in named:
            continue
        for each in value if isinstance(value, (list, tuple)) else [value]:
            words += [flag] if each is True else [flag, str(each)]
    return words


class Run:
    """A training on unequal devices.

    Keywords are the flags of `motley run`: cluster or plan, global_batch, optimizer, lr, clip_norm,
    ema, planner, run_dir, resume, seed, timeout, ... `evaluate` wants evaluation_samples.
    """

    def __init__(self, model: str, *, evaluation_samples: int | None = None, timeout: float = 30, **flags):
        self.timeout = timeout
        self._workers: list[Worker] = []
        self._ended = False
        self._program, self._worker = find_programs()
        rank = find_rank(os.environ)
        self.rank = rank or 0
        given = json.loads(os.environ.get("MOTLEY_RUN_FLAGS", "[]"))
        words = merge_flags(
            {"model": model, "timeout": timeout, "eval_samples": evaluation_samples, **flags}, given
        )
        try:
            self._start(words, rank)
        except BaseException:
            self._kill()
            raise

    # Public.

    def step(self, batch, lr: float | None = None) -> StepResult:
        """One step; `lr` in place of the recipe's."""
        self._check_open()
        factor = 1.0 if lr is None else self._factor(lr)
        self._write(batch, self._trained)
        reports = self._ask(f"step {factor!r}", "step")
        self.steps += 1
        first = reports[0]
        return StepResult(
            first.get("loss", math.nan),
            first.get("gradient_norm"),
            max(report["step_s"] for report in reports),
        )

    def batches(self, samples: int, shuffle: int | None = None) -> Batches:
        return Batches(self, samples, shuffle)

    def evaluate(self, dataset) -> Evaluation:
        """All samples of a map-style dataset once, in evaluation mode."""
        self._check_open()
        if len(dataset) != self._evaluation_samples:
            found = f"found {len(dataset)}, the run was made for {self._evaluation_samples}"
            raise ValueError(f"samples to evaluate on: {found} (evaluation_samples)")
        position, kinds = 0, self._evaluated
        rest = kinds[1]["samples"] if len(kinds) > 1 else 0
        while position < len(dataset):
            which = 1 if len(dataset) - position == rest else 0
            numbers = [position + place for place in kinds[which]["wanted"]]
            self._write_samples([dataset[number] for number in numbers], kinds[which])
            self._ask(f"evaluate {which}", "evaluated")
            position += kinds[which]["samples"]
        found = self._ask("evaluation", "evaluation")[0]
        return Evaluation(found["loss"], found["metrics"])

    def save(self) -> str:
        """Writes a checkpoint; a run of the same directory goes on from it. Its path."""
        self._check_open()
        self._ask("save", "saved")
        return os.path.realpath(os.path.join(self.run_dir, "checkpoint/latest"))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The model as one device would have it. Writes a checkpoint, where there is none of this step."""
        from safetensors.torch import load_file

        folder = os.path.join(self.run_dir, "state")
        checkpoint = self.save()
        if self.rank == 0:
            self._call(["consolidate", checkpoint, "-o", folder, "--json"])
        path = os.path.join(folder, "model.safetensors")
        return load_file(path)

    def close(self) -> None:
        """Writes the last checkpoint and run_dir/model.safetensors, and ends the workers."""
        if self._ended:
            return
        self._ask("end", "done")
        self._ended = True
        for worker in self._workers:
            worker.process.stdin.close()
            worker.process.wait(self.timeout)
        self._give_up_claim()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            self.close()
        else:
            self._kill()

    def __del__(self):
        self._kill()

    # Starting.

    def _start(self, words: list[str], rank: int | None) -> None:
        if rank is None or rank == 0:
            prepared = self._call(["run", "--prepare", "--json", *words])
            self.run_dir = prepared["run_dir"]
            self._claim = claim(self.run_dir)
        if rank is None:
            self._clean()
            with open(prepared["job"]) as file:
                devices = len(json.load(file)["devices"])
            commands = [["script", prepared["job"], "--rank", str(r)] for r in range(devices)]
        else:
            commands = [["script", prepared["job"]] if rank == 0 else ["join-script"]]
        for i, command in enumerate(commands):
            folder = self.run_dir if rank in (None, 0) else os.environ.get("TMPDIR", "/tmp")
            log = os.path.join(folder, "log", f"rank-{rank if rank is not None else i}.txt")
            self._workers.append(Worker([self._worker, *command], log))
        ready = self._hear("ready", STARTING * self.timeout if rank in (None, 0) else 600 + STARTING * self.timeout)
        if ready[0].get("event") == "done":  # the plan leaves this rank without work
            self._ended = True
            print(f"motley: rank {rank} has nothing to do in this plan", file=sys.stderr)
            sys.exit(0)
        self._take_ready(ready)

    def _clean(self) -> None:
        """What an earlier attempt left: ranks would meet at its addresses."""
        for folder in ("log", "status"):
            shutil.rmtree(os.path.join(self.run_dir, folder), ignore_errors=True)
            os.makedirs(os.path.join(self.run_dir, folder))
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.run_dir, "rendezvous"))

    def _take_ready(self, ready: list[dict]) -> None:
        first = ready[0]
        self.run_dir = first["run_dir"]
        self.steps = first["first_step"]
        self._lr = first["lr"]
        self._inputs = Inputs(first["inputs"], {})
        self.inputs = self._inputs.inputs
        self._trained = self._kind([each["training"] for each in ready])
        self._evaluated = [
            self._kind([each["evaluations"][i] for each in ready])
            for i in range(len(first["evaluations"]))
        ]
        self._evaluation_samples = first["evaluation_samples"]
        self.global_batch = self._trained["samples"]
        self.places = self._trained["wanted"]
        for i, worker in enumerate(self._workers):
            kinds = [self._trained, *self._evaluated]
            ends = [self._inputs.places(len(kind["places"][i]))[-1] for kind in kinds]
            worker.give_memory(max(1, *ends))

    @staticmethod
    def _kind(described: list[dict]) -> dict:
        """Batches of one program: all samples, those of each worker, and those of all of them."""
        places = [each["places"] for each in described]
        wanted = sorted({place for each in places for place in each})
        rows = {place: row for row, place in enumerate(wanted)}
        return {
            "samples": described[0]["samples"],
            "places": places,
            "wanted": wanted,
            "rows": [torch.tensor([rows[place] for place in each], dtype=torch.long) for each in places],
            "whole_rows": [torch.tensor(each, dtype=torch.long) for each in places],
        }

    # Samples.

    def _write(self, batch, kind: dict) -> None:
        """Puts a batch, the global one or this process's part of it, into the workers' memory."""
        tensors = self._tensors(batch)
        count = tensors[0].shape[0]
        if count not in (kind["samples"], len(kind["wanted"])):
            own = f"{len(kind['wanted'])} of this process"
            raise ValueError(f"a batch of {count} samples; wanted {kind['samples']}, or the {own} (run.places)")
        rows = kind["whole_rows"] if count == kind["samples"] else kind["rows"]
        for worker, wanted in zip(self._workers, rows, strict=True):
            places = self._inputs.places(len(wanted))
            for each, offset, tensor in zip(self.inputs, places, tensors, strict=False):
                if each.elements and len(wanted):
                    into = torch.frombuffer(
                        worker.memory, dtype=each.dtype, count=len(wanted) * each.elements, offset=offset
                    )
                    torch.index_select(tensor, 0, wanted, out=into.view(len(wanted), *each.shape))

    def _tensors(self, batch) -> list[torch.Tensor]:
        try:
            parts = self._inputs.parts(batch)
        except DataError as error:
            raise ValueError(f"a batch: {error}") from None
        names = [each.name for each in self.inputs]
        if len(parts) != len(names):
            raise ValueError(f"a batch of {len(parts)} values; wanted {len(names)}: {', '.join(names)}")
        tensors = []
        for each, value in zip(self.inputs, parts, strict=True):
            tensor = torch.as_tensor(value).detach().cpu()
            found = describe(tensor.dtype, tensor.shape)
            if tensor.shape[1:] != each.shape or tensor.dtype != each.dtype or not tensor.dim():
                wanted = f"{str(each.dtype).removeprefix('torch.')}[samples, {', '.join(map(str, each.shape))}]"
                raise ValueError(f"input '{each.name}': found {found}, wanted {wanted}")
            tensors.append(tensor)
        if len({tensor.shape[0] for tensor in tensors}) != 1:
            raise ValueError(f"inputs of {[tensor.shape[0] for tensor in tensors]} samples; wanted one number")
        return tensors

    def _write_samples(self, samples: list, kind: dict) -> None:
        """The same of single samples, as a dataset gives them."""
        try:
            fitted = [self._inputs.tensors(sample) for sample in samples]
        except DataError as error:
            raise ValueError(f"sample to evaluate on: {error}") from None
        parts = [[sample[i] for sample in fitted] for i in range(len(self.inputs))]
        empty = [torch.empty((0, *each.shape), dtype=each.dtype) for each in self.inputs]
        self._write([torch.stack(p) if p else e for p, e in zip(parts, empty, strict=True)], kind)

    def _factor(self, lr: float) -> float:
        if self._lr == 0:
            raise ValueError("the recipe's lr is 0: another one has no ratio to it")
        return lr / self._lr

    # Talking to the workers.

    def _call(self, words: list[str]) -> dict:
        environment = {key: value for key, value in os.environ.items() if key not in LAUNCHERS}
        done = subprocess.run([self._program, *words], stdout=subprocess.PIPE, text=True, env=environment)
        answer = json.loads(done.stdout or "{}")
        if done.returncode != 0:
            raise RunError(answer.get("error", {}).get("message", f"motley {words[0]}: exit code {done.returncode}"))
        return answer

    def _check_open(self) -> None:
        if self._ended:
            raise RunError("the run has ended")

    def _ask(self, command: str, answer: str) -> list[dict]:
        for worker in self._workers:
            worker.say(command)
        return self._hear(answer, self.timeout)

    def _hear(self, wanted: str, patience: float) -> list[dict]:
        """Each worker's next event of a kind, or of its end. Waits as long as anything gets on."""
        heard: list[dict | None] = [None] * len(self._workers)
        faults: list[Fault] = []
        explained = set()  # workers whose end follows an error that they told
        with selectors.DefaultSelector() as selector:
            for i, worker in enumerate(self._workers):
                selector.register(worker.process.stdout, selectors.EVENT_READ, i)
            since, progress, first_fault = time.monotonic(), b"", None
            while None in heard and selector.get_map():
                for key, _ in selector.select(timeout=0.2):
                    i = key.data
                    events, ended = self._workers[i].events()
                    for event in events:
                        if event["event"] == "error":
                            faults.append(Fault.of_event(event))
                            explained.add(i)
                        elif event["event"] == wanted or event.get("reason") == "idle":
                            heard[i] = event
                    since = time.monotonic()
                    if ended:
                        selector.unregister(key.fileobj)
                        if heard[i] is None and i not in explained:
                            faults.append(self._death(i))
                if (now := self._progress()) != progress:
                    progress, since = now, time.monotonic()
                if faults:  # whoever waits for the one at fault complains too, and may do so first
                    first_fault = first_fault or time.monotonic()
                    if len(faults) == len(self._workers) or time.monotonic() - first_fault > BLAMING:
                        break
                elif time.monotonic() - since > patience + MARGIN:
                    late = heard.index(None)
                    what = f"no '{wanted}' from worker {late} after {patience + MARGIN:.0f} s without progress"
                    faults.append(Fault(what, 0))
        if faults:
            self._kill()
            raise RunError(max(faults, key=lambda fault: fault.weight).message)
        return heard

    def _death(self, i: int) -> Fault:
        worker = self._workers[i]
        code = worker.process.wait(self.timeout)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        words = worker.last_words()
        return Fault(f"worker {i} {how}" + (f'; its last words: "{words}"' if words else ""), 2)

    def _progress(self) -> bytes:
        """What the status files of this run say: it changes while instructions are done."""
        folder = os.path.join(getattr(self, "run_dir", ""), "status")
        parts = []
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                with open(os.path.join(folder, name), "rb") as file:
                    parts.append(file.read())
        return b"".join(parts)

    def _kill(self) -> None:
        self._ended = True
        for worker in getattr(self, "_workers", []):
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
        self._give_up_claim()

    def _give_up_claim(self) -> None:
        if hasattr(self, "_claim"):
            self._claim.close()

"""Reads the samples of Python datasets for training processes:

    python -m motley.loader describe QUESTION    prints {"samples": N or null}
    python -m motley.loader serve QUESTION       loads samples into shared memory, as asked on stdin
    python -m motley.loader write QUESTION       writes samples to a .safetensors file

QUESTION is JSON, or @FILE with it: "source" (`FILE.py:FUNCTION`, or a table), "inputs" (name, dtype, shape), "pad",
"seed"; of serve "memory" (a file to map) with the "offset" of its slots, "processes" and "parent"; of write "samples" (pairs of
epoch and number) and "output".

serve forks its processes from one that has opened the dataset. All read one pipe of requests, each
24 bytes (slot, epoch and sample as 64-bit integers), so that whoever is free takes the next; all
write to one pipe of answers, a line each, which the kernel keeps whole:

    ready SAMPLES            the dataset is open (-1: a stream)
    begin SLOT PID
    done SLOT SECONDS
    failed SLOT MESSAGE      nothing follows
    lost PID SIGNAL          a process ended; nothing follows
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time
import traceback

import torch

from motley.columns import ENDINGS, open_table
from motley.errors import ExportError
from motley.samples import DataError, Inputs, Source
from motley.user_function import load_function

REQUEST = struct.Struct("=qqq")
LONGEST_LINE = 3500  # bytes; pipes keep 4096 together
PR_SET_PDEATHSIG = 1


def open_source(question: dict) -> Source:
    name = question["source"]
    if name.endswith(ENDINGS):
        return Source(lambda: open_table(name), name, question["seed"])
    function = load_function(name)
    try:
        return Source(function, name, question["seed"])
    except DataError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise DataError(f"{name}: {type(error).__name__}: {error}{last_line(error)}") from error


def last_line(error: BaseException) -> str:
    """Where the user's code was: the deepest line that is not in an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    here = os.path.dirname(os.path.abspath(__file__))
    own = [f for f in frames if not f.filename.startswith(here) and "site-packages" not in f.filename]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def read(source: Source, inputs: Inputs, epoch: int, number: int, memory, offset: int) -> None:
    """Loads one sample; whatever goes wrong names it."""
    try:
        sample = source.read(epoch, number)
        inputs.write(sample, memory, offset)
    except DataError as error:
        raise DataError(f"{source.name}: sample {number}: {error}") from error
    except Exception as error:  # whatever the user's dataset raises
        what = f"{type(error).__name__}: {error}{last_line(error)}"
        raise DataError(f"{source.name}: sample {number}: {what}") from error


def describe(question: dict) -> int:
    """Opens the dataset and tries its first sample, so that a mistake is said before all else."""
    source, inputs = open_source(question), Inputs(question["inputs"], question["pad"])
    samples = source.samples()
    if samples is None or samples > 0:
        read(source, inputs, 0, 0, bytearray(inputs.slot_bytes), 0)
    print(json.dumps({"samples": samples, "slot_bytes": inputs.slot_bytes}))
    return 0


def write(question: dict) -> int:
    from safetensors.torch import save_file

    source, inputs = open_source(question), Inputs(question["inputs"], question["pad"])
    count = len(question["samples"])
    tensors = [torch.empty((count, *each.shape), dtype=each.dtype) for each in inputs.inputs]
    memory = bytearray(inputs.slot_bytes)
    for i, (epoch, number) in enumerate(question["samples"]):
        read(source, inputs, epoch, number, memory, 0)
        for tensor, each, offset in zip(tensors, inputs.inputs, inputs.offsets, strict=True):
            if each.elements:
                part = torch.frombuffer(memory, dtype=each.dtype, count=each.elements, offset=offset)
                tensor[i].copy_(part.view(each.shape))
    save_file({f"x{i}": tensor for i, tensor in enumerate(tensors)}, question["output"])
    print(json.dumps({"samples": count}))
    return 0


class Pipes:
    """The requests and answers of serve; what the user's code reads and prints goes elsewhere."""

    def __init__(self):
        self.requests, self.answers = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)

    def say(self, *words) -> None:
        line = " ".join(str(word) for word in words).replace("\n", " ").encode()
        os.write(self.answers, line[:LONGEST_LINE] + b"\n")

    def next(self) -> tuple[int, int, int] | None:
        request = os.read(self.requests, REQUEST.size)
        return REQUEST.unpack(request) if len(request) == REQUEST.size else None


class Slots:
    """The memory that samples go to."""

    def __init__(self, path: str, begin: int, slot_bytes: int):
        self.begin, self.slot_bytes = begin, slot_bytes
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def offset(self, slot: int) -> int:
        return self.begin + slot * self.slot_bytes


def end_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the line above


def load_samples(source: Source, inputs: Inputs, slots: Slots, pipes: Pipes) -> None:
    """One process's work: until there are no more requests, or one fails."""
    while (request := pipes.next()) is not None:
        slot, epoch, number = request
        pipes.say("begin", slot, os.getpid())
        start = time.monotonic()
        try:
            read(source, inputs, epoch, number, slots.memory, slots.offset(slot))
        except DataError as error:
            pipes.say("failed", slot, error)
            return
        pipes.say("done", slot, f"{time.monotonic() - start:.9f}")


def start_process(number: int, source: Source, inputs: Inputs, slots: Slots, pipes: Pipes) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        end_with_parent(parent)
        if source.worker_init is not None:
            source.worker_init(number)
        load_samples(source, inputs, slots, pipes)
        code = 0
    except BaseException:  # anything at all; the process must not go on as its parent
        traceback.print_exc()
    finally:
        os._exit(code)


def serve(question: dict) -> int:
    end_with_parent(question["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training process ends this one
    pipes = Pipes()
    torch.set_num_threads(1)
    try:
        source, inputs = open_source(question), Inputs(question["inputs"], question["pad"])
    except (DataError, ExportError) as error:
        pipes.say("failed", -1, str(error).removeprefix("motley.export: "))
        return 2
    slots = Slots(question["memory"], question["offset"], inputs.slot_bytes)
    samples = source.samples()
    pipes.say("ready", -1 if samples is None else samples)
    # A stream has one order, so one process reads it.
    processes = 1 if source.is_stream else question["processes"]
    running = {start_process(i, source, inputs, slots, pipes) for i in range(processes)}
    while running:
        pid, status = os.wait()
        running.discard(pid)
        if os.WIFSIGNALED(status) or os.WEXITSTATUS(status) != 0:
            pipes.say("lost", pid, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
            for other in running:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


VERBS = {"describe": describe, "serve": serve, "write": write}


def main(arguments: list[str]) -> int:
    verb, text = arguments
    if text.startswith("@"):
        with open(text[1:]) as file:
            text = file.read()
    question = json.loads(text)
    try:
        return VERBS[verb](question)
    except (DataError, ExportError) as error:
        # As a worker says it (motley/run/job.h): whoever asked shows the message as its own.
        message = str(error).removeprefix("motley.export: ")
        fields = {"event": "error", "rank": 0, "kind": "usage", "code": "data.python"}
        print(json.dumps({**fields, "message": message}))
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

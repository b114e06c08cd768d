"""A run directory of a script, which `motley report` and `motley serve` read (docs/formats/run_directory.md).

Each rank keeps the losses of its steps; what the ranks say of one comes to rank 0 with the session's exchange, and its RunLog writes it.
What cannot be written is said once, and training goes on.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import pathlib
import socket
import statistics
import sys
from collections.abc import Sequence

import torch

from motley.claim import InUseError, claim
from motley.torch.ending import watch_end
from motley.torch.refusals import refuse

LOG = logging.getLogger("motley.torch")
VARIABLE = "MOTLEY_RUN_DIR"
MOST_LOSSES = 64  # of a step
MEDIAN_OF = 20  # steps before and after a decision


def keep_losses(roots: Sequence[torch.Tensor], part: float, work) -> None:
    """Scalars that a backward pass begins from. `part`: of this rank's loss in that of all."""
    for root in roots:
        if root.numel() == 1 and len(work.losses) < MOST_LOSSES:
            # On an accelerator it is copied in its stream, and there when the step's time is.
            work.losses.append((root.detach().to("cpu", non_blocking=True, copy=True), part))


class RunLog:
    """Rank 0's: writes what all ranks said of each step."""

    def __init__(self, folder: str, devices: Sequence[str]):
        self.folder, self.devices = pathlib.Path(folder), list(devices)
        self.folder.mkdir(parents=True, exist_ok=True)
        refuse((self.folder / "job.json").exists(), f"run_dir {folder} is of `motley run`; give another folder")
        try:
            self.claim = claim(folder)
        except InUseError as error:
            refuse(True, f"run_dir {error}")
        self.first = self._steps_before()
        self.decisions: list[dict] = []
        self.seconds: list[float] = []  # of each step of this start
        self.losses: list[float | None] = []
        self._untold: list[tuple[dict, int]] = []  # lines of steps whose compute is not known yet, and their passes
        self.how: BaseException | None = None
        for name in ("summary.json", "failure.json"):
            (self.folder / name).unlink(missing_ok=True)
        self._write("script.json", {"schema": "motley.script/1", "devices": self.devices})
        self._write("start.json", {"arguments": ["python", *sys.orig_argv[1:]], "pid": os.getpid(), "host": socket.gethostname()})
        self.file = open(self.folder / "log.jsonl", "a", encoding="utf-8", buffering=1)  # a line at once

    def _steps_before(self) -> int:
        """A script that is started anew goes on where its log ends."""
        try:
            with open(self.folder / "log.jsonl", encoding="utf-8") as file:
                return 1 + max((json.loads(line)["step"] for line in file if line.endswith("}\n")), default=-1)
        except FileNotFoundError:
            return 0

    def _write(self, name: str, content) -> None:
        """Whole, or not at all."""
        new = self.folder / f"{name}.new"
        new.write_text(json.dumps(content, indent=2) if isinstance(content, dict) else "".join(json.dumps(each) + "\n" for each in content))
        new.replace(self.folder / name)

    def step(self, took: float, passes: int, samples: Sequence[int], peaks: Sequence[float]) -> None:
        """One of `passes` forward passes with so many samples each. It is written by `tell`."""
        line = {
            "step": self.first + len(self.seconds),
            "loss": None,
            "step_s": took,
            "samples": [passes * each for each in samples],
            "compute_s": [],
            "peak_bytes": [int(each) for each in peaks],
        }
        self.seconds.append(took)
        self._untold.append((line, passes))

    def tell(self, seconds: Sequence[float], losses: Sequence[float]) -> None:
        """Of the oldest step that is not written: what a pass took each rank (0: not known), and the parts of its loss."""
        line, passes = self._untold.pop(0)
        loss = sum(losses)
        line["loss"] = loss if math.isfinite(loss) else None
        self.losses.append(line["loss"])
        if min(seconds) > 0:
            line["compute_s"] = [passes * each for each in seconds]
        self._try(lambda: self.file.write(json.dumps(line) + "\n"))

    def decide(self, policy: str, samples: Sequence[float], after: int, why: str, expected: float | None = None) -> None:
        """It begins `after` further steps."""
        done = self.first + len(self.seconds)
        shares = [{"device": name, "samples": int(n)} for name, n in zip(self.devices, samples, strict=True)]
        decision = {"policy": policy, "seen_step": done, "at": sum(self.seconds), "why": why, "begins": done + after}
        decision |= {"action": {"do": "split", "shares": shares}, "expected_s": expected, "came_s": None, "before_s": None, "plan": ""}
        self.decisions.append(decision)
        self._tell_decisions()

    def _tell_decisions(self) -> None:
        """With what came of each: medians of the steps before it and after, up to the next one."""
        begins = [each["begins"] - self.first for each in self.decisions] + [len(self.seconds)]
        for i, each in enumerate(self.decisions):
            after = self.seconds[begins[i] : begins[i + 1]][1:][-MEDIAN_OF:]
            before = self.seconds[begins[i - 1] if i else 0 : begins[i]][1:][-MEDIAN_OF:] if i else []
            each["came_s"] = statistics.median(after) if after else None
            each["before_s"] = statistics.median(before) if before else None
        self._try(lambda: self._write("decisions.jsonl", self.decisions))

    def see_end(self, error: BaseException) -> None:
        self.how = self.how or error

    def close(self) -> None:
        """The script ends, or an exception ends it."""
        while self._untold:
            self.tell([0.0], [math.nan])
        stopped = isinstance(self.how, KeyboardInterrupt)
        self._tell_decisions()
        if self.how is not None and not stopped:
            message = f"exit code {self.how.code}" if isinstance(self.how, SystemExit) else f"{type(self.how).__name__}: {self.how}".splitlines()[0]
            self._try(lambda: self._write("failure.json", {"code": "script.failed", "message": message}))
        else:
            steps = self.first + len(self.seconds)
            median = statistics.median(self.seconds[1:] or self.seconds or [0.0])
            summary = {"steps": steps, "losses": self.losses, "step_s_median": median, "stopped": stopped, "run_dir": str(self.folder)}
            self._try(lambda: self._write("summary.json", summary))
        if self.file is not None:
            self.file.close()
            self.file = None
        self.claim.close()

    def _try(self, write) -> None:
        if self.file is None:
            return
        try:
            write()
        except OSError as error:
            LOG.warning("%s cannot be written, and is given up: %s", self.folder, error)
            self.file = None


def begin_record(session, run_dir: str | None, batch: int) -> None:
    """Called by all ranks, with a directory or without one. The first loader that has one counts. `batch`: samples of a step."""
    asked = session.said_by_all((run_dir or os.environ.get(VARIABLE), socket.gethostname().split(".")[0]))
    run_dir, hosts = asked[0][0], [host for _, host in asked]
    if session.is_logged or not run_dir:
        return
    session.is_logged = True
    if session.rank != 0:
        return
    # Named HOST:N, as clusters name devices.
    session.log = log = RunLog(run_dir, [f"{host}:{hosts[:rank].count(host)}" for rank, host in enumerate(hosts)])
    how = "as given" if session.is_fixed else "even, until the ranks' times are known"
    split = session.samples_of(session.weights, batch)
    log.decide("start", split, 0, f"the batch split {':'.join(map(str, split))}: {how}")
    watch_end(log.see_end)

    def end():
        log.how = log.how or getattr(sys, "last_value", None)  # of a notebook
        if log.how is None:  # else its peers may be gone
            try:
                session.settle()  # the last step's exchange
            except Exception as error:
                LOG.debug("the last step is not in %s: %s", run_dir, error)
        log.close()

    atexit.register(end)

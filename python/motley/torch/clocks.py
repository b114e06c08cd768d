"""What a rank's own work in a step takes: without its waits for other ranks. And what the whole step takes.

A step's work goes from `begin`, when the gradients of the step before are there, to `stop`, when its own are on their way. On a CPU
that is told at once. A GPU works behind the program that asks it to, so events in its stream say when it was where; they are read a
step later (`LAG`), when they are sure to be over, so that nobody waits for them.

A control group may limit this process's processors (containers, machines that share cores). Who waits for other ranks saves up quota and then runs
as if there were none, so what work takes by the clock says too little: of a step with s seconds of processor time under a quota of q cores, s / q
is the least.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

import torch

from motley import library

UNKNOWN = 0.0  # seconds of a step that something else came between
QUOTA_EVERY_S = 0.25  # it may be changed while it is in force


class Clock:
    """By what `_now` gives, and the seconds `_between` two of these. `LAG`: steps after which a reading may be asked for."""

    def __init__(self):
        self._mark, self._waits = None, []

    def begin(self) -> None:
        self._mark, self._waits = self._now(), []

    def forget(self) -> None:
        """What comes now is no step's work."""
        self._mark = None

    @contextlib.contextmanager
    def waiting(self):
        """What this takes is no work."""
        begin = None if self._mark is None else self._now()
        try:
            yield
        finally:
            if begin is not None:
                self._waits.append((begin, self._now()))

    def stop(self) -> Callable[[], float]:
        """Gives, `LAG` steps later, the seconds; UNKNOWN if there was no `begin`."""
        begin, end, waits, least = self._mark, self._now(), list(self._waits), self._least_s()
        if begin is None:
            return lambda: UNKNOWN
        return lambda: max(self._between(begin, end) - sum(self._between(*each) for each in waits), least)

    def _least_s(self) -> float:
        return 0.0


class HostClock(Clock):
    LAG = 0

    def __init__(self):
        super().__init__()
        self._cores, self._cores_at = None, -math.inf  # of the quota, and when they were read
        self._spent = time.process_time()  # at the last `stop`

    def _now(self) -> float:
        return time.perf_counter()

    def _between(self, begin: float, end: float) -> float:
        return end - begin

    def _least_s(self) -> float:
        """Seconds that the processor time since the last call takes under the quota; without one 0."""
        now, before, self._spent = time.monotonic(), self._spent, time.process_time()
        if now - self._cores_at > QUOTA_EVERY_S:
            self._cores, self._cores_at = library.host_limits()["cpu_quota"], now
        return (self._spent - before) / self._cores if self._cores else 0.0


class DeviceClock(Clock):
    """By events in the stream of an accelerator. A wait is what its stream stands idle for: work that was asked for before goes on."""

    LAG = 1

    def __init__(self, device: torch.device):
        super().__init__()
        self.device = device

    def _now(self) -> torch.Event:
        event = torch.Event(self.device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self.device))
        return event

    def _between(self, begin: torch.Event, end: torch.Event) -> float:
        end.synchronize()
        return begin.elapsed_time(end) / 1000


class StepClock:
    """Of whole steps, by the program's clock: from the end of the step before, or where something else came between from its first batch."""

    def __init__(self):
        self.took = UNKNOWN  # seconds of the last step
        self._begun = 0.0
        self._ended: float | None = None

    def take(self) -> None:
        """The coming step's first batch is there."""
        self._begun = time.perf_counter() if self._ended is None else self._ended

    def end(self) -> None:
        """Of a step of several backward passes the last time counts."""
        self._ended = time.perf_counter()
        self.took = self._ended - self._begun

    def forget(self) -> None:
        """What comes now is no step's."""
        self._ended = None

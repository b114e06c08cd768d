"""What a control group lets this process have of its processors: containers, and machines that share cores.

A process that waits for other ranks saves up quota and then runs as if it had none, so what its work takes by the clock says too little: of a step
with s seconds of processor time under a quota of q cores, s / q is the least.
"""

from __future__ import annotations

import math
import time

from motley import library

EVERY_S = 0.25  # a quota may be changed while it is in force


class Quota:
    def __init__(self):
        self._cores, self._read_at, self._spent = None, -math.inf, None

    def least_s(self) -> float:
        """Seconds that the processor time since the last call takes at least; without a quota 0."""
        now, spent = time.monotonic(), time.process_time()
        if now - self._read_at > EVERY_S:
            self._cores, self._read_at = library.host_limits()["cpu_quota"], now
        since, self._spent = 0.0 if self._spent is None else spent - self._spent, spent
        return since / self._cores if self._cores else 0.0

"""The end of a script: how it came, and that PyTorch's own threads must be idle then.

A thread of gloo that lets go of the last reference to a tensor asks for the interpreter. While that ends Python ends the thread instead, which in
a destructor is the end of the process ("terminate called without an active exception", SIGABRT): under a CPU quota, where the thread may have to
wait for its processor between telling that an exchange is over and letting go, once in 60 ends of a rank, after all was done and saved.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable

THREADS = "pt_gloo_runloop"
TASKS = "/proc/self/task"
PATIENCE_S = 2.0
LOOK_S = 0.002


def is_busy(task: str) -> bool:
    """Is it one of gloo's, and wants a processor? Idle ones wait for work; those of an exchange that others never join wait for them."""
    with contextlib.suppress(OSError), open(f"{TASKS}/{task}/stat", encoding="utf-8") as file:
        before, _, after = file.read().rpartition(")")
        return before.endswith("(" + THREADS) and after.split()[0] != "S"
    return False


def await_idle() -> bool:
    """Waits for gloo's threads, not for long; are they idle? Where a system has no such files nobody knows, and nobody waits."""
    until = time.monotonic() + PATIENCE_S
    idle = 0
    while idle < 2:  # one that waits for the interpreter sleeps, too: it has it while this sleeps
        time.sleep(LOOK_S)
        try:
            idle = 0 if any(is_busy(task) for task in os.listdir(TASKS)) else idle + 1
        except OSError:
            return False
        if time.monotonic() > until:
            return False
    return True


def watch_end(tell: Callable[[BaseException], object]) -> None:
    """Tells of an error that nothing catches, or an exit code: of a script, or of a process that torch.multiprocessing started."""
    before, leave = sys.excepthook, sys.exit

    def hook(kind, error, trace):
        before(kind, error, trace)
        tell(error)

    def exit(code=None):
        if code not in (None, 0):
            tell(SystemExit(code))
        leave(code)

    sys.excepthook, sys.exit = hook, exit

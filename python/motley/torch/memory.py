"""How many samples a rank's memory holds, by the most that it held in the steps so far.

Of n samples a step holds at most f + b n bytes: f is there before the forward pass, with the gradients. So b = (peak - f) / n, and with
`room` bytes left at the peak, n + room / b samples fit. States that an optimizer makes in its first step are in the peak from the third
step on; until then twice the parameters are kept free for them. On a CPU, which does not say what it holds beside its heap's reserves, f is
what there was before the first forward pass: b is too large then, the less so the more samples there were. The peak is the highest ever,
so what else the process did can only make the number smaller.
"""

from __future__ import annotations

import os
import pathlib
import resource
import socket
import time
from collections.abc import Callable

import torch

from motley import library
from motley.library import NO_MOST

SPARE = 0.95  # of what there is: an allocator reserves more than is in use
EVERY_S = 1.0  # others come and go
STATES_BY = 3  # steps


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def _meminfo(name: str) -> int:
    lines = (line.split() for line in _read("/proc/meminfo").splitlines())
    return next((1024 * int(words[1]) for words in lines if words[0] == name + ":"), 0)


class HostMemory:
    """Of this process, in its machine or control group."""

    keeps_rest = True  # what is in use before the first step is all that is known of what stays

    def __init__(self):
        self._limit = library.host_limits()["memory"] or _meminfo("MemTotal")
        self._is_grouped = self._limit < _meminfo("MemTotal")

    def place(self) -> tuple:
        """Alike for processes that share what there is."""
        whole = _read("/proc/sys/kernel/random/boot_id")
        return (whole, socket.gethostname(), _read("/proc/self/cgroup")) if self._is_grouped else (whole,)

    def in_use(self) -> int:
        words = _read("/proc/self/statm").split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0

    def peak(self) -> int:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def there_is(self, sharing: int) -> float:
        free = self.in_use() + _meminfo("MemAvailable") / sharing
        return min(free, self._limit / sharing) if self._is_grouped else free


class CudaMemory:
    """Of this process, on a GPU, whose allocator counts."""

    keeps_rest = False

    def __init__(self, device: torch.device):
        self.device = device

    def place(self) -> tuple:
        return (str(torch.cuda.get_device_properties(self.device).uuid),)

    def in_use(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self.device)

    def there_is(self, sharing: int) -> float:
        free, total = torch.cuda.mem_get_info(self.device)
        own = torch.cuda.memory_reserved(self.device) + free / sharing
        return min(own, torch.cuda.get_per_process_memory_fraction(self.device) * total)


class Memory:
    """`parameters`: gives those that are trained."""

    def __init__(self, device: torch.device, parameters: Callable[[], list[torch.nn.Parameter]]):
        self.of = CudaMemory(device) if device.type == "cuda" else HostMemory()
        self.sharing = 1  # processes with the same `place`
        self._parameters = parameters
        self._rest, self._steps = 0, 0
        self._largest, self._peak = 0, 0  # most samples, and what they took
        self._there, self._read_at = 0.0, -1e9

    def begin(self) -> None:
        """A step's first forward pass begins."""
        if self._rest and self.of.keeps_rest:
            return
        gradients = sum(each.nbytes for each in self._parameters() if each.grad is None)
        self._rest = self.of.in_use() + gradients

    def end(self) -> None:
        """A step's gradients are there."""
        self._steps += 1

    def most(self, samples: int) -> int:
        """That fit, as far as it is known; called when gradients of so many are there."""
        self._largest, self._peak = max(self._largest, samples), max(self._peak, self.of.peak())
        now = time.monotonic()
        if now - self._read_at > EVERY_S:
            self._there, self._read_at = self.of.there_is(self.sharing), now
        if self._there <= 0 or self._rest <= 0:
            return NO_MOST
        room = SPARE * self._there - self._peak
        if self._steps < STATES_BY:
            room -= 2 * sum(each.nbytes for each in self._parameters())
        each = max(self._peak - self._rest, 1) / max(self._largest, 1)
        return min(NO_MOST, self._largest + max(0, int(room / each)))

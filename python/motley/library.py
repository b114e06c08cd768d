"""libmotley.so, Motley's planner in this process: texts in JSON through ctypes (motley/c/motley.h).

It is one file for every Python, and loads no PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import shutil
from collections.abc import Sequence

from motley import program

NAME = "libmotley.so"
NO_MOST = 1 << 40  # samples that nobody limits (motley/adapt/device_limits.h)


class LibraryError(ValueError):
    """What the library refused; `code` is that of the command line's errors."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


def find_library() -> str:
    """In the installed package, beside `motley` (MOTLEY_PROGRAM, PATH), or in the build of this checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    programs = [path for path in (os.environ.get("MOTLEY_PROGRAM"), shutil.which("motley")) if path]
    folders = [program.FOLDER, *(os.path.dirname(os.path.realpath(path)) for path in programs), os.path.join(here, "../../build")]
    for folder in folders:
        if os.path.exists(path := os.path.join(folder, NAME)):
            return os.path.realpath(path)
    raise LibraryError("library.absent", f"no {NAME} found: run make, or name the built motley in MOTLEY_PROGRAM")


@functools.cache
def load() -> ctypes.CDLL:
    library = ctypes.CDLL(find_library())
    for name, arguments in {
        "motley_make_split_policy": [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)],
        "motley_observe": [ctypes.c_void_p, ctypes.c_char_p],
        "motley_share_batch": [ctypes.c_char_p],
        "motley_host_limits": [],
    }.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_void_p
    library.motley_drop_policy.argtypes, library.motley_drop_policy.restype = [ctypes.c_void_p], None
    library.motley_free.argtypes, library.motley_free.restype = [ctypes.c_void_p], None
    return library


def call(name: str, *arguments) -> dict:
    """The object that a function gives; an error object raises LibraryError."""
    library = load()
    text = getattr(library, name)(*arguments)
    try:
        answer = json.loads(ctypes.string_at(text))
    finally:
        library.motley_free(text)
    if error := answer.get("error"):
        raise LibraryError(error["code"], error["message"])
    return answer


def share_batch(batch: int, weights: Sequence[float], most: Sequence[int], least: int = 1) -> list[int]:
    """Whole samples in the ratio of weights, from `least` to `most` for each. LibraryError: the limits do not allow it."""
    devices = [
        {"device": str(i), "least": least, "most": limit, "weight": float(weight)}
        for i, (weight, limit) in enumerate(zip(weights, most, strict=True))
    ]
    return call("motley_share_batch", json.dumps({"batch": batch, "devices": devices}).encode())["samples"]


def host_limits() -> dict:
    """What this process may use of its host now: {"cpu_quota": cores or None, "memory": bytes or None}."""
    return call("motley_host_limits")


class SplitPolicy:
    """A policy of the batch's split (motley/adapt/policies.h) over devices named "0", "1", ..."""

    def __init__(self, most: Sequence[int], policy: str = "motley"):
        devices = [{"device": str(i), "least": 1, "most": limit} for i, limit in enumerate(most)]
        self._made, self._most = ctypes.c_void_p(), list(most)
        call("motley_make_split_policy", json.dumps({"policy": policy, "devices": devices}).encode(), ctypes.byref(self._made))

    def observe(self, step: int, at: float, samples: Sequence[int], seconds: Sequence[float], took: float) -> list[dict]:
        """What it wants done after a step in which device i took so long for its samples, as [{"action", "expected_s", "why"}]; a split's
        action is {"do": "split", "shares": [{"device", "samples"}]}. `took`: the whole step; what it took beyond its devices' work is
        an exchange, which splits do not change."""
        took = max(took, *seconds)
        seen = {
            "seen": "step",
            "step": step,
            "at": at,
            "took": took,
            "plan": 0,
            "global_batch": sum(samples),
            "devices": [
                {"device": str(i), "samples": n, "ready": [], "end": end, "update": []}
                for i, (n, end) in enumerate(zip(samples, seconds, strict=True))
            ],
            "exchange": [],
            "blocking": took - max(seconds),
        }
        return call("motley_observe", self._made, json.dumps(seen).encode())["choices"]

    def limit(self, device: int, most: int) -> None:
        """The device's memory holds so many samples."""
        if most == self._most[device]:
            return
        self._most[device] = most
        call("motley_observe", self._made, json.dumps({"seen": "memory", "device": str(device), "most": most}).encode())

    def __del__(self):
        if getattr(self, "_made", None):
            load().motley_drop_policy(self._made)

"""Which objects of frameworks `share` takes, and how they are changed. A framework is imported by who uses it, never from here."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import types
from collections.abc import Callable

import torch.distributed as dist

from motley.torch.refusals import check_release
from motley.torch.session import session_of

ADAPTERS = {
    ("accelerate", "Accelerator"): "with_accelerate",
    ("accelerate", "DataLoaderShard"): "with_accelerate",
    ("accelerate", "DataLoaderDispatcher"): "with_accelerate",
    ("transformers", "Trainer"): "with_transformers",
    ("lightning", "Trainer"): "with_lightning",
    ("pytorch_lightning", "Trainer"): "with_lightning",
}
# Oldest and newest release whose insides the adapters are known to fit, by tests/zoo/test_frameworks.py under both and some between
# (docs/scripts.md); tests/zoo/requirements.txt pins what the tests use.
VERSIONS = {
    "accelerate": ((1, 8), (1, 15)),
    "transformers": ((4, 57), (5, 24)),
    "lightning": ((2, 2), (2, 6)),
    "pytorch_lightning": ((2, 2), (2, 6)),
}


def check_version(package: str, version: str | None = None) -> None:
    check_release("motley.torch.share", package, version or importlib.metadata.version(package), *VERSIONS[package])


def adapter_of(thing) -> types.ModuleType | None:
    """The module that knows how to share it; none: it is of no framework."""
    for kind in type(thing).__mro__:
        package = kind.__module__.split(".")[0]
        if name := ADAPTERS.get((package, kind.__name__)):
            for each in ("transformers", "accelerate") if package == "transformers" else (package,):
                check_version(each)
            return importlib.import_module(f"motley.torch.{name}")
    return None


def mixed(own: type, mixin: type) -> type:
    """A class with the methods of `mixin` in front of its own."""
    return own if issubclass(own, mixin) else type("Shared" + own.__name__, (mixin, own), {})


def waiting(method: Callable, *arguments, **keywords):
    """Who waits for others is not at work."""
    with session_of().waiting() if dist.is_initialized() else contextlib.nullcontext():
        return method(*arguments, **keywords)


def wait_in(thing, *names: str) -> None:
    """In these methods, of those that a release has, it waits for other ranks."""
    for name in names:
        if method := getattr(thing, name, None):
            setattr(thing, name, functools.partial(waiting, method))

"""What an export found out, kept for the next one of the same model.

Whether a model is the same is judged by what PyTorch traces of it, not by dates of files: the key
is a hash of the exported forward pass with its module paths, and of all else that graph and
self-check depend on: every number of the weights, the example inputs, the versions of all installed
packages, PyTorch's switches, and the source of whatever Python has loaded beside these packages. So
a number read from a file, a global, or an environment variable counts as far as it changes the
step. Weights are never taken from here: they are written as they are now.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import sys
import sysconfig
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch._subclasses.fake_tensor import FakeTensor

from motley.capture import Traced
from motley.selfcheck import SelfCheck
from motley.step import Step

log = logging.getLogger("motley.export")
KEPT = 64  # entries; the oldest ones go


@dataclass
class Found:
    """The result of an export: texts of the graphs, their constants, what the self-check saw."""

    text: str
    evaluation: str
    constants: dict[str, torch.Tensor]
    check: SelfCheck | None


class Cache:
    """Entries in a folder, a file each. One that cannot be read counts as none."""

    def __init__(self, folder: str):
        self.folder = folder

    def path(self, key: str) -> str:
        return os.path.join(self.folder, f"{key}.safetensors")

    def find(self, key: str) -> Found | None:
        try:
            with safe_open(self.path(key), "pt") as file:
                said = file.metadata()
                constants = {name: file.get_tensor(name) for name in file.keys()}
            found = Found(said["text"], said["evaluation"], constants, None)
            if said["check"] != "null":
                found.check = SelfCheck(**json.loads(said["check"]))
            return found if said["digest"] == digest(found) else None
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            return None

    def keep(self, key: str, found: Found) -> None:
        said = {"text": found.text, "evaluation": found.evaluation}
        said |= {"check": check_text(found), "digest": digest(found)}
        constants = {name: value.contiguous().clone() for name, value in found.constants.items()}
        temporary = f"{self.path(key)}.{os.getpid()}"
        try:
            os.makedirs(self.folder, exist_ok=True)
            save_file(constants, temporary, metadata=said)
            os.replace(temporary, self.path(key))
            for old in self.oldest():
                os.remove(old)
        except (OSError, SafetensorError) as error:
            log.warning("not kept for another time: %s", error)

    def oldest(self) -> list[str]:
        entries = [
            entry for entry in os.scandir(self.folder) if entry.name.endswith(".safetensors")
        ]
        entries.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
        return [entry.path for entry in entries[KEPT:]]


def check_text(found: Found) -> str:
    return json.dumps(dataclasses.asdict(found.check) if found.check else None)


def digest(found: Found) -> str:
    """Of a whole entry, so that a damaged one is no entry."""
    hashed = hashlib.sha256(f"{found.text}\0{found.evaluation}\0{check_text(found)}".encode())
    for name, value in sorted(found.constants.items()):
        add_tensor(hashed, name, value)
    return hashed.hexdigest()


def find_key(traced: tuple[Traced, ...], step: Step, examples, options) -> str:
    """Hash of all that the export of a step depends on, traced as it trains and as it evaluates.
    `options`: those of `export`."""
    hashed = hashlib.sha256()
    texts = [text for each in traced for text in program_texts(each.program)]
    texts += [" ".join(each.outputs) for each in traced]
    for text in (repr(options), *switches(), *versions(), *texts):
        hashed.update(text.encode() + b"\0")
    for name, source in loaded_sources():
        hashed.update(name.encode() + b"\0" + source)
    tensors = [
        *step.named_parameters(remove_duplicate=False),
        *step.named_buffers(remove_duplicate=False),
        *zip(step.input_names, examples, strict=True),
        *(pair for each in traced for pair in each.program.constants.items()),
    ]
    first: dict[int, str] = {}  # name of every tensor that was hashed
    for name, tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            tied = first.setdefault(id(tensor), name)
            hashed.update(f"{name} {tied} {isinstance(tensor, torch.nn.Parameter)}".encode())
            if tied == name:
                add_tensor(hashed, name, tensor)
    return hashed.hexdigest()


def add_tensor(hashed, name: str, tensor: torch.Tensor) -> None:
    hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)} {tensor.requires_grad}\0".encode())
    if not isinstance(tensor, FakeTensor) and tensor.numel():
        numbers = tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
        hashed.update(memoryview(numbers.numpy()))


def program_texts(program: torch.export.ExportedProgram):
    """The exported forward pass: operators, arguments, types and module paths."""
    yield f"{program.graph_signature} {program.range_constraints}"
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
            made = node.meta.get("val")
            kind = f"{made.dtype} {made.stride()}" if isinstance(made, torch.Tensor) else ""
            shape = tuple(made.shape) if isinstance(made, torch.Tensor) else made
            yield f"{node.op} {node} {node.target} {node.args} {node.kwargs} {kind} {shape} {paths}"


def switches():
    """What PyTorch's later steps look at beside the exported program."""
    backends = torch.backends
    yield repr((
        torch.get_default_dtype(), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
        backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(),
        backends.cuda.math_sdp_enabled(), torch.get_num_threads(),
    ))  # fmt: skip


def versions():
    yield f"{platform.python_version()} {platform.machine()} {backend_name()}"
    yield f"{torch.__version__} {torch.version.git_version}"
    yield from sorted(
        f"{each.metadata['Name']} {each.version}" for each in importlib.metadata.distributions()
    )


def backend_name() -> str:
    return torch.backends.cpu.get_cpu_capability()


def loaded_sources() -> list[tuple[str, bytes]]:
    """Name and contents of each module that belongs neither to Python nor to a package."""
    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
    found = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if not file or "site-packages" in file or file.startswith(installed):
            continue
        try:
            with open(file, "rb") as source:
                found.append((name, source.read()))
        except OSError:
            found.append((name, b""))
    return found

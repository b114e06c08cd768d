"""Model files: safetensors with the graph's text in the metadata (docs/formats/graph.md)."""

from __future__ import annotations

import os

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from motley.graph import Graph


def stored_tensors(
    module: nn.Module, graph: Graph, constants: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """What the file holds: each name with memory of its own, parameters first."""
    live = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    names = []
    for source in graph.of_kind("param") + graph.of_kind("buffer"):
        names += [source.name, *source.tied]
    tensors, seen = {}, set()
    for name, tensor in [(name, live[name]) for name in names] + list(constants.items()):
        tensor = tensor.detach().contiguous()
        storage = tensor.untyped_storage()
        whole = storage.nbytes() == tensor.nbytes and storage.data_ptr() not in seen
        seen.add(storage.data_ptr())
        tensors[name] = tensor if whole else tensor.clone()
    return tensors


def write_model_file(
    path: str, text: str, tensors: dict[str, torch.Tensor], evaluation: str = "", source: str = ""
) -> None:
    """`evaluation`: the text of the graph that evaluates; `source`: what the command line was given
    to make the module."""
    metadata = {"format": "pt", "motley.graph": text, "motley.torch": torch.__version__}
    if evaluation:
        metadata["motley.eval"] = evaluation
    if source:
        metadata["motley.source"] = source
    save_file(tensors, path, metadata=metadata)
    os.chmod(path, 0o666 & ~current_umask())  # safetensors makes it private


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_evaluation(path: str) -> str:
    """The text of the graph that evaluates; "" without one."""
    with safe_open(path, "pt") as file:
        return file.metadata().get("motley.eval", "")


def read_model_file(path: str) -> tuple[str, dict[str, torch.Tensor]]:
    """The graph's text and the tensors."""
    with safe_open(path, "pt") as file:
        return file.metadata()["motley.graph"], {
            name: file.get_tensor(name) for name in file.keys()
        }

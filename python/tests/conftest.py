"""Paths of the package and the examples, and model files that several tests read."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test sees what another one, or the user, has exported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """exported("bert") is (result, graph, tensors) of the model family; each is exported once."""
    import families
    import motley
    from motley.model_file import read_model_file
    from motley.parse import parse_graph

    folder = tmp_path_factory.mktemp("models")
    made = {}

    def export(name: str):
        if name not in made:
            module, inputs = getattr(families, name)()
            result = motley.export(module, inputs, folder / f"{name}.motley", name=name)
            text, tensors = read_model_file(result.path)
            made[name] = (result, parse_graph(text), tensors)
        return made[name]

    return export

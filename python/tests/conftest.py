"""Paths of the package and the examples, and model files that several tests read."""

import functools
import pickle
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path[:0] = [str(ROOT / "python"), str(EXAMPLES)]
sys.path.append(str(ROOT / "tests"))  # kept.py


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test sees what another one, or the user, has exported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def exported():
    """exported("bert") is (result, graph, tensors) of the model family; each is exported once, by whichever process asks first."""
    import families
    from kept import kept_model
    from motley.model_file import read_model_file
    from motley.parse import parse_graph

    @functools.cache
    def export(name: str):
        folder = kept_model(name, getattr(families, name), EXAMPLES / "families.py")
        result = pickle.loads((folder / "exported.pickle").read_bytes())
        result.path = str(folder / f"{name}.motley")
        text, tensors = read_model_file(result.path)
        return result, parse_graph(text), tensors

    return export

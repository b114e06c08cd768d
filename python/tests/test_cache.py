"""A second export of the same model takes graph and checks of the first; a change does not."""

import json
import os

import pytest
import torch
from motley import command
from motley.cache import KEPT, Cache, Found
from motley.exporter import export
from motley.model_file import read_evaluation, read_model_file
from torch import nn

MODEL = """
import json, os
import torch
from torch import nn
from part import Scaled


def settings():
    with open(os.path.join(os.path.dirname(__file__), "settings.json")) as file:
        return json.load(file)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.scaled = Scaled(float(os.environ.get("SCALE", "1")))
        self.register_buffer("weights", torch.ones(3), persistent=False)

    def forward(self, x, y):
        logits = self.scaled(self.fc(x)) * settings()["factor"] * self.weights
        return nn.functional.cross_entropy(logits, y)


def model(seed=0, classes=3):
    torch.manual_seed(seed)
    return Net(), (torch.randn(6, 4), torch.randint(0, classes, (6,)))


def reseeded():
    return model(1)


def narrow():
    return model(0, 2)


def frozen():
    net, inputs = model()
    net.fc.bias.requires_grad_(False)
    return net, inputs


def buffered():
    net, inputs = model()
    net.weights *= 2
    return net, inputs
"""
PART = """
from torch import nn


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "part.py").write_text(PART)
    (tmp_path / "settings.json").write_text('{"factor": 2.0}')
    return tmp_path


def run(folder, capsys, function="model", *flags, output="net.motley") -> dict:
    """The result of an export in which the user's files are imported anew."""
    import sys

    sys.modules.pop("part", None)
    sys.dont_write_bytecode = True  # two versions of a file within one second
    target = folder / output
    assert command.main([f"{folder}/net.py:{function}", "-o", str(target), "--json", *flags]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_same_model_again(folder, capsys):
    first = run(folder, capsys)
    text, tensors = read_model_file(folder / "net.motley")
    again = run(folder, capsys)
    assert (first["is_cached"], again["is_cached"]) == (False, True)
    assert {**again, "is_cached": False} == first
    found, stored = read_model_file(folder / "net.motley")
    assert found == text and set(stored) == set(tensors)
    assert "output loss" in read_evaluation(folder / "net.motley")
    assert all(torch.equal(stored[name], value) for name, value in tensors.items())
    assert not run(folder, capsys, "model", "--no-cache")["is_cached"]
    assert command.main([f"{folder}/net.py:model", "-o", str(folder / "net.motley")]) == 0
    printed = capsys.readouterr()
    assert "cache       graph and checks of an earlier export of the same model\n" in printed.out
    assert "the same model as before: graph and self-check are those of the cache\n" in printed.err


CHANGES = {
    "weights": lambda folder: "reseeded",
    "example inputs": lambda folder: "narrow",
    "a frozen parameter": lambda folder: "frozen",
    "a buffer that state_dict does not have": lambda folder: "buffered",
    "the user's file": lambda folder: write(folder / "net.py", MODEL + "# more\n"),
    "a file that it imports": lambda folder: write(folder / "part.py", PART + "# more\n"),
    "a file that forward reads": lambda folder: write(folder / "settings.json", '{"factor": 3.0}'),
    "an environment variable": lambda folder: os.environ.update(SCALE="5"),
    "a switch of PyTorch": lambda folder: torch.use_deterministic_algorithms(True),
}


def write(path, text) -> None:
    path.write_text(text)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_exported_anew(folder, capsys, monkeypatch, change):
    monkeypatch.setenv("SCALE", "1")
    run(folder, capsys)
    try:
        function = CHANGES[change](folder) or "model"
        assert not run(folder, capsys, function)["is_cached"]
        assert run(folder, capsys, function)["is_cached"]
    finally:
        torch.use_deterministic_algorithms(False)


def test_other_options_are_other_exports(folder, capsys):
    run(folder, capsys)
    assert not run(folder, capsys, "model", "--verify-batch", "7")["is_cached"]
    assert not run(folder, capsys, "model", "--graph-only")["is_cached"]
    assert run(folder, capsys, "model", "--graph-only")["is_cached"]


def test_a_refused_model_is_not_kept(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            return torch.poisson(self.fc(x).abs()).mean()

    cache = Cache(str(tmp_path / "cache"))
    with pytest.raises(Exception, match="random numbers of this kind cannot be split"):
        export(Net(), (torch.randn(6, 4),), tmp_path / "net.motley", cache=cache)
    assert not (tmp_path / "cache").exists()


def test_a_damaged_entry_is_none(tmp_path):
    cache = Cache(str(tmp_path))
    cache.keep("a", Found("text", "eval", {"motley.constant.0": torch.arange(3)}, None))
    entry = tmp_path / "a.safetensors"
    assert cache.find("a").text == "text" and cache.find("b") is None
    whole = entry.read_bytes()
    for damaged in (
        whole[:-1] + b"\x07",
        whole.replace(b'"text":"text"', b'"text":"tent"'),
        whole.replace(b'"evaluation":"eval"', b'"evaluation":"evil"'),
        whole[:20],
        b"",
    ):
        entry.write_bytes(damaged)
        assert cache.find("a") is None


def test_old_entries_go(tmp_path):
    cache = Cache(str(tmp_path))
    for i in range(KEPT + 3):
        cache.keep(f"{i:03}", Found("text", "eval", {}, None))
        os.utime(tmp_path / f"{i:03}.safetensors", (i, i))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == KEPT and left[0] == "003.safetensors"


def test_a_folder_that_cannot_be_written_is_said(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    Cache(str(tmp_path / "file" / "cache")).keep("a", Found("text", "eval", {}, None))
    assert "not kept for another time: " in caplog.text

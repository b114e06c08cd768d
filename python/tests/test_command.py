"""`python -m motley.export`: files, exit codes, what it prints."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from motley import command
from motley.model_file import read_model_file
from motley.parse import parse_graph

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, view, t):  # names that operators have too
        return nn.functional.cross_entropy(self.fc(view), t)


def model():
    torch.manual_seed(0)
    return Net(), (torch.randn(6, 4), torch.randint(0, 3, (6,)))


def broken():
    raise ValueError("no such weights")


def alone():
    return Net()


def four():
    return Net(), (), {}, 3
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path / "net.py"


def test_as_a_program(file):
    """From the repository's root, whose C++ folder `motley` must not hide the package."""
    output = file.parent / "net.motley"
    arguments = [f"{file}:model", "-o", str(output), "--json", "--verify-batch", "12"]
    done = subprocess.run(
        [sys.executable, "-m", "motley.export", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "python"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    stages = [
        re.fullmatch(r"motley.export: +(\d+\.\d) s  (.*)", line)
        for line in done.stderr.splitlines()
    ]
    # Forward as torch.export writes it: linear and cross_entropy.
    assert [stage[2] for stage in stages] == [
        f"building {file}:model",
        "tracing forward",
        "tracing the evaluation",
        "tracing forward and backward of 2 operators",
        "writing 12 operators",
        "checking against eager PyTorch at batch 1",
        "checking against eager PyTorch at batch 12",
        "done",
    ]
    times = [float(stage[1]) for stage in stages]
    assert times == sorted(times)
    result = json.loads(done.stdout)
    # Forward: t, addmm, _log_softmax, nll_loss_forward. Backward: two of the loss; t, mm, t, t of
    # the weight; sum and view of the bias. Parameters: 3 x 4 + 3 numbers.
    assert (result["operators"], result["parameters"], result["parameter_elements"]) == (12, 2, 15)
    assert result["path"] == str(output)
    assert result["bytes"] == output.stat().st_size
    assert result["check"]["batches"] == [1, 12]
    assert set(result["check"]["worst"]) == {"loss", "gradient", "buffer"}
    text, tensors = read_model_file(output)
    assert parse_graph(text).name == "net"
    assert [source.name for source in parse_graph(text).of_kind("input")] == ["view", "t"]
    assert set(tensors) == {"fc.weight", "fc.bias"}


def test_summary_for_people(file, capsys):
    output = file.parent / "net.motley"
    assert command.main([f"{file}:model", "-o", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        f"{output}: {output.stat().st_size} bytes",
        "inputs      view f32[batch, 4], t i64[batch]",
        "operators   12",
        "parameters  2 tensors, 15 numbers",
        "checked     at batch 1 and 3 against eager PyTorch; worst relative difference:",
    ]
    assert [line.split()[0] for line in lines[5:]] == ["loss", "gradient", "buffer"]


def test_graph_only(file, capsys):
    output = file.parent / "net.motley"
    assert command.main([f"{file}:model", "-o", str(output), "--graph-only"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "weights     none (graph only); shapes checked"
    )
    whole = file.parent / "whole" / "net.motley"
    whole.parent.mkdir()
    assert command.main([f"{file}:model", "-o", str(whole)]) == 0
    text, tensors = read_model_file(output)
    assert tensors == {}
    assert text == read_model_file(whole)[0]


def refusal(arguments, capsys) -> str:
    assert command.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].endswith(f" s  building {arguments[0]}")
    return captured.err.splitlines(keepends=True)[-1]


def test_user_faults(file, capsys):
    output = ["-o", str(file.parent / "net.motley")]
    assert refusal([f"{file}", *output], capsys) == (
        f'motley.export: not a function; command line; found "{file}", wanted FILE.py:FUNCTION; '
        "try model.py:model\n"
    )
    assert refusal(["absent.py:model", *output], capsys) == (
        'motley.export: no such file; command line; found "absent.py", wanted a Python file; '
        "try its full path\n"
    )
    assert refusal([f"{file}:other", *output], capsys) == (
        f'motley.export: no function "other"; {file}; found functions alone, broken, four, model, '
        'wanted "other"; try one of them\n'
    )
    assert refusal([f"{file}:broken", *output], capsys) == (
        f"motley.export: the function fails; {file}:broken; found ValueError: no such weights, "
        "wanted (module, inputs); try calling it in Python\n"
    )
    assert refusal([f"{file}:alone", *output], capsys) == (
        f"motley.export: the function returns something else; {file}:alone; found Net, "
        "wanted (module, inputs); try return module, (x, y)\n"
    )
    assert refusal([f"{file}:four", *output], capsys) == (
        f"motley.export: the function returns something else; {file}:four; "
        "found (Net, tuple, dict, int), wanted (module, inputs); try return module, (x, y)\n"
    )
    file.write_text("import nothing_of_this_name\n")
    assert refusal([f"{file}:model", *output], capsys) == (
        f"motley.export: the file does not run; {file}; found ModuleNotFoundError: No module named "
        f"'nothing_of_this_name', wanted a file that can be imported; try python {file}\n"
    )
    assert sorted(item.name for item in file.parent.iterdir() if item.is_file()) == ["net.py"]


@pytest.mark.parametrize("batch", ["0", "65537", "many"])
def test_wrong_verify_batch(file, capsys, batch):
    with pytest.raises(SystemExit) as caught:
        command.main([f"{file}:model", "-o", "a.motley", "--verify-batch", batch])
    assert caught.value.code == 2
    assert "--verify-batch" in capsys.readouterr().err

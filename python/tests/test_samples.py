"""Samples of Python datasets as a model's inputs, and the command that loads them."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from motley.loader import main
from motley.samples import DataError, Inputs, Source, mix
from torch.utils.data import DataLoader, Dataset, IterableDataset

X = {"name": "x", "dtype": "f32", "shape": [3]}
Y = {"name": "y", "dtype": "i64", "shape": []}


class Rows(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        if i >= 4:
            raise IndexError("past the end")
        return np.full(3, i, np.float32), i


def values(inputs, sample):
    return [tensor.tolist() for tensor in inputs.tensors(sample)]


@pytest.mark.parametrize("sample", [
    (np.ones(3, np.float32), 2), [torch.ones(3), torch.tensor(2)], ([torch.ones(3)], np.int32(2)),
    {"y": 2, "text": "unused", "x": np.ones(3, np.float16)}, ([1.0, 1.0, 1.0], True + 1),
], ids=str)  # fmt: skip
def test_what_people_return(sample):
    assert values(Inputs([X, Y], {}), sample) == [[1, 1, 1], 2]


@pytest.mark.parametrize(("sample", "message"), [
    ((np.ones(3), 1), "input 'x': found float64[3], wanted float32[3]; convert it in the dataset"),
    ((np.ones(4, np.float32), 1), "input 'x': found float32[4], wanted float32[3]; give it this shape"),
    ((np.ones(2, np.float32), 1), "--pad x=VALUE fills samples that are shorter"),
    ((np.ones(3, np.float32), 1.5), "input 'y': found float32[], wanted int64[]"),
    ((np.ones(3, np.float32),), "found 1 values, wanted 2: x, y"),
    ({"x": 1}, "no 'y'; found x; the model's inputs are x, y"),
    (("text", 1), "input 'x': found builtins.str, wanted float32[3]; let the dataset's transform"),
], ids=lambda value: value[:20] if isinstance(value, str) else "")  # fmt: skip
def test_what_does_not_fit(sample, message):
    with pytest.raises(DataError) as error:
        Inputs([X, Y], {}).tensors(sample)
    assert message in str(error.value)


def test_short_samples_are_filled():
    assert values(Inputs([X, Y], {"x": -1.0}), (np.ones(2, np.float32), 1)) == [[1, 1, -1], 1]
    assert values(Inputs([X, Y], {"": 0.0}), (np.ones(1, np.float32), 1)) == [[1, 0, 0], 1]
    with pytest.raises(DataError, match="no input 'z'"):
        Inputs([X, Y], {"z": 0.0})


def test_inputs_lie_side_by_side():
    inputs = Inputs([X, Y], {})
    assert (inputs.offsets, inputs.slot_bytes) == ([0, 64], 128)
    memory = bytearray(300)
    inputs.write((np.arange(3, dtype=np.float32), 7), memory, 128)
    assert np.frombuffer(memory, np.float32, 3, 128).tolist() == [0, 1, 2]
    assert np.frombuffer(memory, np.int64, 1, 192).tolist() == [7]


def test_a_loader_is_its_dataset():
    source = Source(lambda: DataLoader(Rows(), batch_size=2, shuffle=True), "d.py:f", 0)
    assert source.samples() == 5
    assert source.read(0, 3)[1] == 3
    with pytest.raises(DataError, match="IndexError: past the end; its length is said to be 5"):
        source.read(0, 4)


def test_transforms_draw_by_seed_epoch_and_sample():
    class Drawn(Rows):
        def __getitem__(self, i):
            return random.random(), torch.rand(()).item(), np.random.rand()

    def drawn(seed, epoch, number):
        return Source(Drawn, "d.py:f", seed).read(epoch, number)

    assert drawn(1, 2, 3) == drawn(1, 2, 3)
    draws = [drawn(*key) for key in [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)]]
    assert all(len({draw[k] for draw in draws}) == 4 for k in range(3))
    seeds = {mix(a, b, c) for a in range(20) for b in range(20) for c in range(20)}
    assert len(seeds) == 8000


def test_streams_are_read_forwards_and_begun_again():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    def generator():
        yield from range(3)

    for make in (Stream, generator):
        source = Source(make, "d.py:f", 0)
        assert source.samples() is None
        assert [source.read(0, number) for number in (0, 1, 4, 5, 7)] == [0, 1, 1, 2, 1]
        with pytest.raises(DataError, match="past sample 3"):
            source.read(0, 3)
    with pytest.raises(DataError, match="gave nothing"):
        Source(lambda: iter([]), "d.py:f", 0).read(0, 0)
    with pytest.raises(DataError, match="found int, wanted a dataset"):
        Source(lambda: 3, "d.py:f", 0)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.py"
    path.write_text("import numpy as np\ndef rows():\n    return [(np.full(3, i, np.float32), i) for i in range(5)]\n"
                    "def bad():\n    return 1 / 0\n")  # fmt: skip
    return path


def question(file, function="rows", **more):
    return {"source": f"{file}:{function}", "inputs": [X, Y], "pad": {}, "seed": 0, **more}


def test_describe(file, capsys):
    assert main(["describe", json.dumps(question(file))]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 5
    assert main(["describe", json.dumps(question(file, "bad"))]) == 2
    error = json.loads(capsys.readouterr().out)
    assert error["message"] == f"{file}:bad: ZeroDivisionError: division by zero ({file}:5)"


def test_write(file, tmp_path, capsys):
    from safetensors.torch import load_file

    path = str(tmp_path / "some.safetensors")
    assert main(["write", json.dumps(question(file, samples=[[0, 4], [1, 2]], output=path))]) == 0
    assert load_file(path)["x1"].tolist() == [4, 2]
    assert load_file(path)["x0"][1].tolist() == [2, 2, 2]


def test_serve_answers_what_it_is_asked(file, tmp_path):
    import os
    import struct

    memory = tmp_path / "memory"
    memory.write_bytes(bytes(4096))
    asked = question(file, memory=str(memory), offset=1024, processes=2, parent=os.getpid())
    child = subprocess.Popen([sys.executable, "-m", "motley.loader", "serve", json.dumps(asked)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    requests = b"".join(struct.pack("=qqq", slot, 0, number) for slot, number in [(0, 3), (5, 1)])
    out, _ = child.communicate(requests, timeout=60)
    lines = sorted(line.split()[:2] for line in out.decode().splitlines())
    assert lines == [["begin", "0"], ["begin", "5"], ["done", "0"], ["done", "5"], ["ready", "5"]]
    held = memory.read_bytes()
    assert np.frombuffer(held, np.int64, 1, 1024 + 64)[0] == 3
    assert np.frombuffer(held, np.float32, 3, 1024 + 5 * 128).tolist() == [1, 1, 1]

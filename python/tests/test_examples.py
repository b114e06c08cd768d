"""The examples: their data, and the reference loop that runs of Motley are compared with."""

import json
import re
from pathlib import Path

import char_gpt
import digits_cnn
import digits_moved
import mlp
import numpy as np
import pytest
import reference
import torch
from motley.exporter import export
from safetensors.torch import load_file

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DATA = EXAMPLES / "data"


def test_digits():
    """As the source describes them: 1,797 digits of 64 pixels from 0 to 16, about 180 of each."""
    with np.load(DATA / "digits.npz") as file:
        assert file.files == ["x", "y"]
        x, y = file["x"], file["y"]
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((1797, 1, 8, 8), np.float32, (1797,), np.int64)
    assert x.min() == 0 and x.max() == 1 and np.array_equal(x * 16, np.round(x * 16))
    counts = np.bincount(y)
    assert len(counts) == 10 and counts.min() > 170 and counts.max() < 190


def test_text_and_tokens_agree():
    text = (DATA / "devils_dictionary.txt").read_text()
    vocabulary = (DATA / "devils_dictionary.vocab").read_text()
    tokens = np.fromfile(DATA / "devils_dictionary.bin", dtype="<u2")
    assert "".join(vocabulary[token] for token in tokens) == text
    assert len(set(vocabulary)) == len(vocabulary) == len(char_gpt.VOCABULARY)
    assert text.startswith("ABASEMENT, n.") and re.search(r"\bglow-worm\b|\bglowworm\b", text)


def test_token_windows(tmp_path):
    """7 tokens at T = 3: floor(6 / 3) = 2 samples; the target is the input moved on by one."""
    np.arange(7, dtype="<u2").tofile(tmp_path / "seven.bin")
    inputs, targets = reference.load_tokens(str(tmp_path / "seven.bin"), "u16", 3)
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert targets.tolist() == [[1, 2, 3], [4, 5, 6]]
    np.arange(6, dtype="<u4").tofile(tmp_path / "six.bin")
    assert len(reference.load_tokens(str(tmp_path / "six.bin"), "u32", 3)[0]) == 1
    assert inputs.dtype == targets.dtype == torch.int64


def test_batches_wrap_around():
    """Step 1 of batch 4 over 6 samples: positions 4 to 7 are samples 4, 5, 0, 1."""
    assert reference.batch_of([torch.arange(6)], 1, 4)[0].tolist() == [4, 5, 0, 1]


def test_moved_digits():
    trained, tested = digits_moved.train(), digits_moved.test()
    assert (len(trained), len(tested)) == (1500, 297)
    with np.load(DATA / "digits.npz") as arrays:
        assert torch.equal(tested[0][0], torch.from_numpy(arrays["x"][1500]))
        assert [int(trained[i][1]) for i in range(9)] == arrays["y"][:9].tolist()
    one, other = trained[0][0], trained[0][0]
    assert one.shape == other.shape == (1, 8, 8) and not torch.equal(one, other)
    assert 0 <= one.min() and one.max() <= 1


@pytest.mark.parametrize("name", ["mlp", "digits_cnn", "char_gpt"])
def test_examples_export(tmp_path, name):
    module, inputs = {"mlp": mlp, "digits_cnn": digits_cnn, "char_gpt": char_gpt}[name].model()
    result = export(module, inputs, tmp_path / f"{name}.motley")
    assert max(result.check.worst.values()) < 1e-6


def train(capsys, *arguments) -> list[float]:
    assert reference.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["losses"]


def test_reference_learns_digits(tmp_path, capsys):
    output = tmp_path / "trained.safetensors"
    given = [f"{EXAMPLES}/digits_cnn.py:model", "--data", str(DATA / "digits.npz")]
    given += ["--global-batch", "32", "--steps", "12", "--lr", "0.05", "--momentum", "0.9"]
    losses = train(capsys, *given, "-o", str(output))
    assert len(losses) == 12 and losses[-1] < 0.6 * losses[0]
    module, _ = digits_cnn.model()
    module.load_state_dict(load_file(output))
    assert module.features[0][1].num_batches_tracked == 12


@pytest.mark.parametrize("optimizer, lr", [("sgd", "0.05"), ("adam", "1e-3"), ("adamw", "1e-3")])
def test_reference_is_reproducible(tmp_path, capsys, optimizer, lr):
    given = [f"{EXAMPLES}/char_gpt.py:model", "--data", str(DATA / "devils_dictionary.bin")]
    given += ["--seq", "64", "--global-batch", "4", "--steps", "3"]
    given += ["--optimizer", optimizer, "--lr", lr]
    first = train(capsys, *given)
    assert first == train(capsys, *given)
    assert first != train(capsys, *given, "--no-dropout")
    # Before any step the model knows nothing: about log(82) = 4.41.
    assert first[0] == pytest.approx(4.41, abs=0.1)


def test_reference_is_plain_sgd(tmp_path, capsys):
    """One step by hand: w - lr g."""
    output = tmp_path / "trained.safetensors"
    given = [f"{EXAMPLES}/mlp.py:model", "--data", str(DATA / "digits.npz")]
    given += ["--global-batch", "5", "--steps", "1", "--lr", "0.5", "-o", str(output)]
    train(capsys, *given)
    module, _ = mlp.model()
    with np.load(DATA / "digits.npz") as file:
        x, y = (torch.from_numpy(file[name][:5]) for name in ("x", "y"))
    module(x, y)[0].backward()
    trained = load_file(output)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(trained[name], parameter.detach() - 0.5 * parameter.grad)

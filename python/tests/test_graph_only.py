"""Graph-only export of a model whose weights would not be worth their memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from motley.user_function import build_model, load_function

ROOT = Path(__file__).resolve().parents[2]

# A GPT of 613 million parameters: 2 layers of width 4,096, 50,257 tokens, 1,024 positions.
MODEL = """
import torch
from families import Gpt


def model():
    shape = dict(vocabulary=50257, length=1024, width=4096, heads=32, layers=2)
    tokens = torch.randint(0, 50257, (4, 1025))
    return Gpt(**shape), (tokens[:, :-1], tokens[:, 1:])
"""

MEASURE = """
import resource, sys
from motley.command import main
status = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
sys.exit(status)
"""


def test_large_model_without_memory_for_its_weights(tmp_path):
    (tmp_path / "large.py").write_text(MODEL)
    output = tmp_path / "large.motley"
    arguments = [f"{tmp_path}/large.py:model", "-o", str(output), "--graph-only", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/examples"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # Embeddings 4096 (50257 + 1024); a layer: 12 x 4096^2 weights and 13 x 4096 biases and norms
    # (3 + 1 + 4 + 1 biases and 4 of two norms); the last norm 2 x 4096. The head is tied.
    layer = 12 * 4096**2 + 13 * 4096
    assert result["parameter_elements"] == 4096 * (50257 + 1024) + 2 * layer + 2 * 4096
    assert result["check"] is None
    assert output.stat().st_size < 1_000_000
    peak = int(done.stderr.splitlines()[-1])
    assert peak < 4 * result["parameter_elements"] / 2  # half of the weights, PyTorch itself with it


CONVERTED = """
import torch
from torch import nn


def model():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)).half()
    module[0].to(torch.bfloat16).to(torch.float16)
    return module, (torch.randn(2, 4, dtype=torch.float16),)
"""


def test_parameters_may_be_converted(tmp_path):
    (tmp_path / "converted.py").write_text(CONVERTED)
    module, inputs, _ = build_model(load_function(f"{tmp_path}/converted.py:model"), "model", True)
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float16}
    assert inputs[0].dtype == torch.float16

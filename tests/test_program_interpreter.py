"""The interpreter of programs that other tests rely on, against PyTorch's own words for the same."""

import sys

import torch
from conftest import ROOT

sys.path[:0] = [str(ROOT / "python")]

from program_interpreter import run_program  # noqa: E402

COLUMNS = [3, 2, 0]


def test_uneven_parts():
    """Samples 3, 1 and 1 become columns 3, 2 and 0; weights are summed and gathered by column."""
    text = (ROOT / "tests/golden/program/uneven.txt").read_text()
    x, w = torch.randn(5, 5), torch.randn(2, 5)
    tensors = {"w": w, "gathered": torch.zeros(2, 5)}
    for rank, columns in enumerate(COLUMNS):
        tensors[f"columns.{rank}"] = torch.zeros(5, columns)
        tensors[f"summed.{rank}"] = torch.zeros(2, columns)
    machines = run_program(text, tensors, [x])
    for rank, (columns, weights) in enumerate(zip(x.split(COLUMNS, 1), w.split(COLUMNS, 1))):
        named = machines[rank].named()
        assert torch.equal(named[f"columns.{rank}"], columns)
        torch.testing.assert_close(named[f"summed.{rank}"], 3 * weights)
        assert torch.equal(named["gathered"], w)

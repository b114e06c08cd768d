"""motley.torch where ranks have GPUs: shares learned by events in their streams, within memory, and what one device computes."""

import json
import pathlib

import pytest
import ranks

SCRIPT = pathlib.Path(__file__).with_name("torch_rank.py")


def row_of(case, *words, **environment):
    devices = [word for word in words if isinstance(word, str)]
    ends, rows = ranks.start(SCRIPT, [case, *map(str, words)], len(devices), **environment)
    assert [code for code, _ in ends] == [0] * len(devices), "\n".join(errors[-1500:] for _, errors in ends)
    return rows[case]


@pytest.mark.parametrize("devices", [("cuda", "cpu"), ("cpu", "cuda")])
def test_shares_are_learned_on_a_gpu_beside_a_cpu(tmp_path, devices):
    """15. A script's shares are learned where ranks have GPUs, and give what one device gives."""
    row = row_of("learns", 1024, 6, 1024, 30, *devices, MOTLEY_RUN_DIR=str(tmp_path))
    own, other = row["samples"] if devices[0] == "cuda" else reversed(row["samples"])
    assert own[0] == other[0] == 512 and [a + b for a, b in zip(own, other, strict=True)] == [1024] * 30
    assert min(own[20:]) > 800, row["samples"]
    assert row["max_param_diff"] < 1e-4 < row["moved"]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["loss"] is None for line in lines] == [False] * 29 + [True]  # each is told a step later
    assert [len(line["compute_s"]) for line in lines] == [0] + [2] * 28 + [0]
    assert [line["loss"] for line in lines[:29]] == pytest.approx(row["losses"][:29], rel=1e-3)


def test_two_ranks_of_one_gpu_stay_even():
    """15. Two ranks that share a GPU have about the same samples, and give what one device gives."""
    row = row_of("same", 1024, 6, 1024, 30, "cuda", "cuda")
    assert all(400 < each < 624 for each in row["samples"][0][20:]), row["samples"]
    assert row["max_param_diff"] < 1e-4 < row["moved"]


def test_memory_limits_are_found():
    """15. What a GPU's memory holds is found, and no step runs out of it."""
    row = row_of("memory", 1024, 16, 16384, 14, "cuda", "cpu")
    gpu = row["samples"][0]
    # All of the batch would take more than there is; more than half of it fits.
    assert gpu[0] == 8192 and 8192 < gpu[-1] < 16000, gpu
    assert 0.75 * row["limit_bytes"] < row["peak_bytes"] < row["limit_bytes"]

"""motley.torch under scripts in shapes that people use, and under scripts that are drawn: one device's result, or a sentence with the line to write."""

import functools
import os
import pathlib
import random
import subprocess

import pytest
import ranks
import warm
from conftest import ROOT

HERE = pathlib.Path(__file__).parent
LIMIT = 1e-5


def rows_of(script, names, world=3, **environment):
    ends, rows = ranks.start(HERE / script, names, world, ranks.Fresh if warm.IS_REAL else ranks.start_warm, **environment)
    assert [code for code, _ in ends] == [0] * world, "\n".join(errors[-1500:] for _, errors in ends)
    return rows


RIGHT = [
    "accumulate_without_no_sync", "accumulate_what_nobody_can_read", "gradients_thrown_away", "two_backward_passes", "norm_of_a_rank_without_labels", "nobody_has_a_target", "causal_tokens",
    "means_over_less", "sums", "sums_that_are_none", "second_derivative_of_a_norm", "gathered", "read_ahead", "read_by_a_thread", "two_sizes",
    "lists_of_images", "reentrant_checkpoint", "frozen_by_class", "communication_hooks", "copied",
]  # fmt: skip
# What is said on every rank that says something.
SAID = {
    "read_by_a_thread_learned": "a thread of its own reads the loader, so that ranks would change shares at different batches. Give shares=[...]",
    "read_ahead": "nobody knows which one weight= is to be asked of. Leave it out, and write motley.torch.weigh(loss, weight=what it averages over).backward()",
    "nobody_can_read": "it is not known what the loss averages over: it ends in SqrtBackward0. Please say what it averages over: DDP(model, weight='samples')",
    "gathered": "all_gather wants as many numbers of each rank, and they have 6 : 9 : 12, as their shares are unequal. Write motley.torch.gather(tensor)",
    "exchanged_already": "a second backward pass through a forward pass whose gradients were exchanged; PyTorch would leave each rank its own. Write (a + b)",
    "second_line_forgotten": "an optimizer steps on batches of unequal lengths, whose gradients nobody weighs. Write motley.torch.DDP(model)",
    "lists_of_images": "weight='samples' counts along the first tensor of the model's arguments, and there is none; give weight= a function",
    "even_parts": "multiple_of=2 does not divide global batches of",
}


@functools.cache
def script_rows():
    """All in one process group; those that end with ranks at different places have their own."""
    return rows_of("torch_scripts.py", [*dict.fromkeys([*RIGHT, *SAID, "one_rank_alone", "exported_after_training", "half_precision", "autocast"])])


@pytest.mark.parametrize("case", RIGHT)
def test_a_script_trains_as_one_device(case):
    assert script_rows()[case]["apart"] <= LIMIT


@pytest.mark.parametrize("case", SAID)
def test_a_script_is_told_what_to_write(case):
    found = script_rows()[case]["of_ranks"]
    assert all(SAID[case] in each for each in found if "does not know what" not in each) and any(SAID[case] in each for each in found), found


def test_batch_norms_stay_pytorch_s():
    assert script_rows()["frozen_by_class"]["moved"] == 0
    assert script_rows()["exported_after_training"]["said"] == "BatchNorm2d"
    assert script_rows()["one_rank_alone"]["said"] == "goes on"


def test_shares_are_multiples_and_begin_where_they_were():
    row = script_rows()["even_parts"]
    assert all(size % 2 == 0 for sizes in row["sizes"] for size in sizes) and row["sizes"][0][-1] > row["sizes"][2][-1]
    assert row["shares"][0] > row["shares"][2] and row["kept"] == [2, 2, 8]


def test_a_weighed_loss_stays_within_half_precision():
    assert script_rows()["half_precision"]["said"] == "True"
    assert script_rows()["autocast"]["rough"] < 0.02


def test_ranks_at_different_places_are_told_both():
    found = rows_of("torch_scripts.py", ["places_that_differ"])["places_that_differ"]["of_ranks"]
    assert any("is at loss, rank 1 at batch norm 1" in each for each in found), found


def test_the_group_s_timeout_counts():
    found = rows_of("torch_scripts.py", ["waits_too_long"])["waits_too_long"]["of_ranks"]
    assert any("waited 1 s for rank 0, at batch norm 1" in each for each in found), found


def test_a_script_that_fails_is_reported_so(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("""
import sys, traceback, torch, torch.distributed as dist, motley.torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(96, 6), torch.randint(4, (96,)))
model = motley.torch.DDP(nn.Linear(6, 4))
loader = motley.torch.share(DataLoader(data, 4, sampler=DistributedSampler(data)))
try:
    for step, (x, y) in enumerate(loader):
        nn.functional.cross_entropy(model(x), y).backward()
        if step == 2:
            raise RuntimeError("boom")
except Exception:
    traceback.print_exc()
    sys.exit(1)
""")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_RUN_DIR": str(tmp_path / "run"), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run([*warm.torchrun(2), str(script)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert (tmp_path / "run/failure.json").read_text().count("exit code 1") == 1


def seeds_of(world):
    """Of this commit; a thousand before a release."""
    begin = random.Random(int(os.environ.get("MOTLEY_SAMPLE", 0)) * 7919).randrange(10**6)
    count = {2: 13, 3: 14, 4: 13}[world] * (25 if os.environ.get("MOTLEY_SLOW") == "1" else 1)
    return [str(world * 10**7 + begin + i) for i in range(count)]


REFUSED = ("root", "norm", "product")  # losses that are no sums of means


@pytest.mark.parametrize("world", [2, 3, 4])
def test_drawn_scripts_train_as_one_device(world):
    rows = rows_of("torch_drawn.py", seeds_of(world), world)
    assert len(rows) == len(seeds_of(world))
    for row in rows.values():
        told = [each for each in row["said"] if each]
        if row["idioms"]["loss"] in REFUSED:
            assert any("DDP(model, weight=" in each for each in told), row
        elif told:  # a loss of several counts has no one mean over micro-batches
            assert str(row["idioms"]["accumulate"]).startswith("weighed") and any("weigh(loss, weight=" in each for each in told), row
        else:
            assert row["apart"] <= 1e-4, row

"""Functions as they are captured, beside PyTorch's."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from motley.functions import averaged_norms, chunk, embedding_bag
from torch import nn

CASES = [
    *itertools.product(("sum", "mean", "max"), (None, 2, -1), (False,)),
    *itertools.product(("sum",), (None, 2), (True,)),
]


@pytest.mark.parametrize("mode, padding_idx, is_weighed", CASES)
def test_bags_that_are_rows(mode, padding_idx, is_weighed):
    torch.manual_seed(0)
    weight, bags = torch.randn(4, 3), torch.randint(0, 4, (20, 3))
    bags[0] = 2  # nothing but padding
    flags = {"mode": mode, "padding_idx": padding_idx}
    flags["per_sample_weights"] = torch.randn(20, 3) if is_weighed else None
    torch.testing.assert_close(embedding_bag(bags, weight, **flags), F.embedding_bag(bags, weight, **flags))


def test_bags_one_behind_the_other_are_pytorch_s():
    weight, flat, offsets = torch.randn(4, 3), torch.randint(0, 4, (7,)), torch.tensor([0, 3])
    assert torch.equal(embedding_bag(flat, weight, offsets), F.embedding_bag(flat, weight, offsets))


@pytest.mark.parametrize("rows, chunks", [(6, 2), (7, 2), (2, 3)])
def test_chunks(rows, chunks):
    tensor = torch.randn(rows, 4)
    for dim in (0, 1):
        for mine, theirs in zip(chunk(tensor, chunks, dim), tensor.chunk(chunks, dim), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("training", [True, False])
def test_norms_averaged_over_all_batches(training):
    torch.manual_seed(0)
    mine, theirs = (nn.Sequential(nn.BatchNorm1d(3, momentum=None), nn.BatchNorm1d(3)).train(training) for _ in range(2))
    for batch in torch.randn(3, 5, 3):
        with averaged_norms(mine):
            found = mine(batch)
        torch.testing.assert_close(found, theirs(batch))
    for (name, value), wanted in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(value, wanted, msg=name)
    assert not any("forward" in vars(each) for each in mine)

"""What a loss averages over, as its graph says: six samples of four classes, of which one label is masked."""

import types

import pytest
import torch
from motley.torch import backward
from motley.torch.losses import Reader, Term, Unreadable
from torch import nn
from torch.nn import functional as F

Y = torch.tensor([0, 1, 2, -100, 3, 1])
MASK = torch.tensor([1.0, 0, 1, 1, 0, 0])
ZEROS = torch.zeros(6, 4)


@pytest.fixture
def line():
    torch.manual_seed(0)
    return nn.Linear(3, 4)


@pytest.fixture
def out(line):
    return line(torch.randn(6, 3))


def each_of(out):
    return F.cross_entropy(out, Y.clamp(min=0), reduction="none")


def read(loss):
    return sorted((term.key.strip("/"), term.count) for term in Reader().read(loss))


@pytest.mark.parametrize(("loss", "wanted"), [
    (lambda o: F.cross_entropy(o, Y), [("Loss", 5)]),
    (lambda o: F.cross_entropy(o, Y.clamp(min=0), weight=torch.tensor([1.0, 2, 4, 8])), [("Loss", 1 + 2 + 4 + 1 + 8 + 2)]),
    (lambda o: F.cross_entropy(o, Y, label_smoothing=0.1), [("Div", 5), ("Loss", 5)]),
    (lambda o: F.cross_entropy(o, torch.full_like(Y, -100)), [("Loss", 0)]),
    (lambda o: F.mse_loss(o, ZEROS), [("Loss", 24)]),
    (lambda o: F.mse_loss(o, ZEROS, reduction="none").mean(0).sum(), [("Mean", 6)]),
    (lambda o: F.binary_cross_entropy_with_logits(o, ZEROS), [("Loss", 24)]),
    (lambda o: F.kl_div(F.log_softmax(o, 1), ZEROS + 0.25, reduction="batchmean"), [("Div", 6)]),
    (lambda o: F.triplet_margin_loss(o, 2 * o, o / 2), [("Mean", 6)]),
    (lambda o: each_of(o).sum() / 6, [("Div", 6)]),
    (lambda o: each_of(o).sum() * (1 / 6), [("Mul", 1)]),
    (lambda o: (each_of(o) * MASK).sum() / MASK.sum(), [("Div", 3)]),
    (lambda o: (each_of(o) * (0 * MASK)).sum() / (0 * MASK).sum().clamp(min=1), [("Div", 0)]),
    (lambda o: (each_of(o) * (0 * MASK)).sum() / (0 * MASK).sum().clamp(min=1) / 2, [("Div/Div", 0)]),
    (lambda o: F.cross_entropy(o, torch.full_like(Y, -100), reduction="sum") / max(1, 0), [("Div", 0)]),
    (lambda o: each_of(o)[MASK > 5].mean(), [("Mean", 0)]),
    (lambda o: each_of(o)[MASK > 0].mean(), [("Mean", 3)]),
    (lambda o: o.sum() * 0, []),
    (lambda o: o.sum(), []),
    (lambda o: F.mse_loss(o, ZEROS, reduction="sum") - o.square().sum(), []),
    (lambda o: (F.mse_loss(o, ZEROS, reduction="sum") + o.square().sum()) / 6, [("Div", 6), ("Div", 6)]),
    (lambda o: torch.stack([F.cross_entropy(o, Y), o.square().mean()]).sum(), [("Loss", 5), ("Mean", 24)]),
    (lambda o: torch.stack([row.square().mean() for row in o]).mean(), [("Mean/Mean", 24)] * 6),
    (lambda o: 0.3 * F.cross_entropy(o, Y) + 0.7 * F.cross_entropy(o, Y.flip(0)), [("Loss", 5)] * 2),
    (lambda o: F.cross_entropy(o, Y) / 4, [("Div/Loss", 5)]),
    (lambda o: F.cross_entropy(o, Y) * torch.tensor(1024.0), [("Loss", 5)]),
    (lambda o: 1 - F.cosine_similarity(o, ZEROS + 1).mean(), [("Mean", 6)]),
    (lambda o: ((1 - torch.exp(-each_of(o))) ** 2 * each_of(o)).mean(), [("Mean", 6)]),
    (lambda o: F.cross_entropy(o.half(), Y).float(), [("Loss", 5)]),
])  # fmt: skip
def test_what_a_loss_averages_over(out, loss, wanted):
    assert read(loss(out)) == wanted


def test_terms_of_parameters_are_of_no_rank_s_own(line, out):
    scales = nn.Parameter(torch.zeros(2))
    assert read(F.cross_entropy(out, Y) + sum(each.norm() for each in line.parameters())) == [("Loss", 5)]
    assert read(F.cross_entropy(out, Y) + sum(each.square().sum() for each in line.parameters())) == [("Loss", 5)]
    # Both factors of a product get the loss's.
    uncertain = torch.exp(-scales[0]) * F.cross_entropy(out, Y) + scales[0] + scales[1].exp() * out.mean()
    found = Reader().read(uncertain)
    assert sorted((each.key, each.count, each.node.name()) for each in found) == [("/Loss", 5, "MulBackward0"), ("/Mean", 24, "MulBackward0")]


@pytest.mark.parametrize("loss", [
    lambda o: F.mse_loss(o, ZEROS).sqrt(),
    lambda o: o.norm(),
    lambda o: F.mse_loss(o, ZEROS) * o.mean(),
    lambda o: 1 - 2 * o.sigmoid().sum() / (o.sigmoid().sum() + 3),
    lambda o: (lambda each: each.mean() + each.sum() / 3)(o.square().sum(1)),
    lambda o: (lambda each: each / 3 + each / 4)(o.square().sum()),
])  # fmt: skip
def test_other_losses_are_unreadable(out, loss):
    with pytest.raises(Unreadable):
        Reader().read(loss(out))


class Ranks:
    """A session whose other ranks say what a test wants."""

    world, rank, is_alone = 3, 0, False

    def __init__(self, *others, length=6):
        self.others, self.batches = others, types.SimpleNamespace(length=length)

    def exchange(self, _what, row):
        return [row, *self.others]


def said(samples, **terms):
    row = [backward.HEAD, 0.0, samples]
    for key, found in terms.items():
        row += [backward.number_of("/" + key), len(found), *(each for count in found for each in (count, 1.0))]
    return row


def agree(terms, *others):
    return backward.agree([Term("/" + key, None, count) for key, count in terms], Ranks(*others), False)


def test_ranks_tell_each_other_their_counts():
    found = agree([("Loss", 5.0), ("Mean", 24.0)], said(4, Loss=[3.0], Mean=[8.0]), said(2, Mean=[16.0]))
    assert found.counts == [[5, 3, 0], [24, 8, 16]] and sorted(found.totals) == [8, 48]
    assert found.weights == [[15 / 8, 9 / 8, 0], [1.5, 0.5, 1]]
    assert agree([("Loss", 5.0), ("Loss", 2.0)], said(4, Loss=[3.0, 1.0]), said(2)).counts == [[5, 3, 0], [2, 1, 0]]


def test_a_mean_of_each_sample_s_mean_counts_as_one():
    found = agree([("Mean", 8.0), ("Mean", 8.0)], said(4, Mean=[4.0]), said(2, Mean=[12.0] * 3))
    assert found.counts == [[8, 4, 12]] * 2
    with pytest.raises(Unreadable, match="the ranks have 2 : 1 : 3 terms of one kind"):
        agree([("Mean", 8.0), ("Mean", 7.0)], said(4, Mean=[4.0]), said(2, Mean=[12.0] * 3))


def test_a_rank_that_cannot_read_its_loss_is_named():
    with pytest.raises(ValueError, match="rank 2 does not know what its loss averages over, and says why"):
        agree([("Loss", 5.0)], said(4, Loss=[3.0]), [backward.REFUSED, 0.0, 0.0])


@pytest.mark.parametrize(("counts", "factors", "wanted"), [
    ([30, 20, 10], [1, 1, 1], [1.5, 1, 0.5]),
    ([30, 20, 10], [0.3, 0.7, 0.1], [1.5, 1, 0.5]),  # mixup
    ([30, 20, 10], [18, 12, 6], [1, 1, 1]),  # a mean over samples, times three times their number: a sum
    ([10, 20, 30], [6, 4, 2], [0.5 * 4 / 6, 1, 1.5 * 4 / 2]),  # a mean over targets, times the number of samples
    ([10, 20, 0], [6, 4, 0], [4 / 6, 2, 0]),  # of a rank without targets
    ([10, 20, 30], [1 / 6, 1 / 4, 1 / 2], [0.5 * 6 / 4, 1, 1.5 * 2 / 4]),
    ([0, 0, 0], [1, 1, 1], [0, 0, 0]),
])  # fmt: skip
def test_what_ranks_weigh(counts, factors, wanted):
    assert backward.weights_of(counts, factors, [6, 4, 2]) == pytest.approx(wanted)


def test_what_a_sum_is_multiplied_by():
    assert backward.counts_of_sum([1 / 6, 1 / 4, 1 / 2]) == pytest.approx([6, 4, 2])
    assert backward.counts_of_sum([0.3, 0.7, 0.1]) == [1, 1, 1]
    assert backward.counts_of_sum([0.5, 0.5, 0.5]) == [2, 2, 2]  # as in another step, where they differ


def test_a_one_that_may_stand_for_nothing_is_no_count():
    """A sum over all, by max(1, number of some)."""
    line = nn.Linear(3, 4)
    (term,) = Reader().read(line(torch.ones(2, 3)).square().sum() / max(1, 0))
    assert (term.count, term.is_sure) == (1, False)
    row = [backward.HEAD, 0.0, 4, backward.number_of("/Div"), 1, 9.0, 1.0]
    with pytest.raises(Unreadable, match=r"rank 0 divides a sum by 1, where others divide by up to 9: by 1 target, or by max\(1, n\) for none\?"):
        backward.agree([term], Ranks(row, row), False)
    assert backward.agree([term], Ranks(row, row, length=1), False).counts == [[1, 9, 9]]  # its number of samples

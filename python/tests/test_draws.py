"""Random operators in terms of draws have PyTorch's distributions."""

import motley
import pytest
import torch
import torch.nn.functional as F
from motley.draws import DrawnEagerly, Numbers, decompositions
from motley.model_file import read_model_file
from torch import nn

MANY = 20000
# Of two samples of n, sqrt(n / 2) times the largest difference between the shares below a number
# exceeds 2.2 once in 8,000 times (Kolmogorov, Smirnov).
DISTANCE = 2.2 * (2 / MANY) ** 0.5

FILLED = {
    "uniform": lambda x: x.uniform_(-1, 3),
    "normal": lambda x: x.normal_(2, 0.5),
    "log_normal": lambda x: x.log_normal_(0.1, 0.4),
    "exponential": lambda x: x.exponential_(3.0),
    "geometric": lambda x: x.geometric_(0.3),
    "cauchy": lambda x: x.cauchy_(1.0, 2.0),
    "random": lambda x: x.random_(),
    "random to": lambda x: x.random_(9),
    "random from": lambda x: x.random_(-4, 5),
    "bernoulli": lambda x: x.bernoulli_(0.3),
    "bernoulli tensor": lambda x: x.bernoulli_(torch.linspace(0, 1, MANY)),
    "rand": lambda x: torch.rand(MANY),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn(MANY),
    "randn_like": torch.randn_like,
    "randint": lambda x: torch.randint(-3, 4, (MANY,)),
    "randint_like": lambda x: torch.randint_like(x, 7),
    "randperm": lambda x: torch.randperm(MANY)[:100].repeat(MANY // 100),
    "normal of tensors": lambda x: torch.normal(x + 1, x + 2),
    "normal of a mean": lambda x: torch.normal(x + 1, 0.5),
    "normal of a deviation": lambda x: torch.normal(1.0, x + 0.5),
    "normal of numbers": lambda x: torch.normal(1.0, 0.5, (MANY,)),
    "dropout": lambda x: F.dropout(x + 1, 0.3),
    "alpha_dropout": lambda x: F.alpha_dropout(x + 1, 0.3, True),
    "feature_dropout": lambda x: F.dropout1d(x.view(MANY, 1, 1) + 1, 0.3).view(-1),
    "rrelu": lambda x: F.rrelu(x - 1, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x.view(-1, 2)).view(-1),
    "one of four": lambda x: torch.multinomial(weights(), 1)[:, 0],
    "two of four": lambda x: torch.multinomial(weights(), 2) @ torch.tensor([4, 1]),
    "four times one": lambda x: torch.multinomial(weights(), 4, True) @ torch.tensor([64, 16, 4, 1]),
}  # fmt: skip


def weights():
    return torch.tensor([1.0, 0.0, 3.0, 4.0]).expand(MANY, 4)


def distance(a, b):
    """The largest difference between the shares of two samples below any number."""
    every = torch.cat([a, b]).sort().values
    below = [torch.searchsorted(x.sort().values, every, right=True) / len(x) for x in (a, b)]
    return (below[0] - below[1]).abs().max().item()


@pytest.mark.parametrize("name", FILLED)
def test_draws_have_the_distribution_of_pytorch(name):
    torch.manual_seed(0)
    wanted = FILLED[name](torch.zeros(MANY))
    with DrawnEagerly():
        found = FILLED[name](torch.zeros(MANY))
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if name != "randperm":  # 100 numbers, 200 times each
        assert not torch.equal(found, wanted)
        assert distance(found.double(), wanted.double()) < DISTANCE
    else:
        assert len(found.unique()) == 100 and distance(found[:100] / MANY, torch.rand(100)) < 0.3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_draws_have_the_range_of_their_type(dtype):
    def fill():
        return torch.empty(MANY, dtype=dtype).random_()

    torch.manual_seed(0)
    wanted = fill()
    with DrawnEagerly():
        found = fill()
    assert found.dtype == dtype and found.min() >= 0
    assert distance(found.double(), wanted.double()) < DISTANCE


def test_every_draw_has_numbers_of_its_own():
    numbers = Numbers(3)
    first = numbers.random("uniform", [MANY], torch.float32, 0)
    assert torch.equal(Numbers(3).random("uniform", [MANY], torch.float32, 0), first)
    for other in (numbers.random("uniform", [MANY], torch.float32, 1), Numbers(4).random("uniform", [MANY], torch.float32, 0)):
        # 0 but for 1 / sqrt(n); five of them.
        assert abs(torch.corrcoef(torch.stack([first, other]))[0, 1]) < 5 / MANY**0.5


def test_operators_of_no_fixed_count_of_draws_are_not_there():
    table = decompositions(None)
    aten = torch.ops.aten
    assert not {aten.poisson.default, aten.binomial.default, aten._standard_gamma.default} & set(table)


def test_without_numbers_the_shapes_are_checked(tmp_path):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            rows = torch.randperm(x.size(0))
            return F.dropout(self.fc(x[rows] + torch.randn_like(x)), 0.5).mean()

    result = motley.export(Noisy(), (torch.randn(4, 3),), tmp_path / "m.motley", graph_only=True)
    assert result.check is None and result.operators > 0


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 2, num_layers=3, dropout=0.25, bidirectional=True)

    def forward(self, x):
        return self.rnn(x.transpose(0, 1))[0].square().mean()


def test_dropout_between_recurrent_layers_is_kept(tmp_path):
    path = tmp_path / "model.motley"
    result = motley.export(Recurrent(), (torch.randn(4, 2, 3),), path)
    text = read_model_file(path)[0]
    assert text.count("= motley::dropout(") == 2  # of three layers, after all but the last
    assert ", 0.25, 0)" in text and ", 0.25, 1)" in text
    assert result.check.worst["gradient"] <= 1e-5


def test_dropout_in_place_of_nothing_leaves_the_tensor(tmp_path):
    """What the backward pass reads: timm's attention drops so, with a rate that is 0 by default."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x, y):
            shares = F.dropout(self.fc(x).softmax(-1), 0.0, inplace=True)
            return F.mse_loss(shares, y)

    result = motley.export(Net(), (torch.randn(6, 4), torch.randn(6, 3)), tmp_path / "model.motley")
    assert result.check.worst["gradient"] < 1e-6

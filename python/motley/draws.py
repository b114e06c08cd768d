"""Random numbers that any device can draw again.

PyTorch's random operators take their numbers from a generator, in an order that no split of the
work keeps. Here each becomes arithmetic on two operators of our own, whose numbers follow from the
number of the draw and the element's place (docs/formats/graph.md):

    motley::random(distribution, shape, dtype, draw) -> x
    motley::dropout(x, p, draw) -> out, mask

A capture numbers the draws in the order of the forward pass; the self-check gives both sides the
same numbers, draw by draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

_library = torch.library.Library("motley", "DEF")
_library.define("random(str distribution, SymInt[] shape, ScalarType dtype, int draw) -> Tensor")
_library.define("dropout(Tensor x, float p, int draw) -> (Tensor, Tensor)")


@torch.library.register_fake("motley::random", lib=_library)
def _fake_random(distribution, shape, dtype, draw):
    return torch.empty(shape, dtype=dtype)


@torch.library.register_fake("motley::dropout", lib=_library)
def _fake_dropout(x, p, draw):
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


class Draws(Protocol):
    """Where numbers come from. Each call is a draw of its own."""

    def random(self, distribution: str, shape, dtype: torch.dtype) -> torch.Tensor: ...

    def dropout(self, x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]: ...


class NumberedDraws:
    """Operators of our own, numbered as they come."""

    def __init__(self):
        self.next = 0

    def number(self) -> int:
        self.next += 1
        return self.next - 1

    def random(self, distribution, shape, dtype):
        return torch.ops.motley.random(distribution, list(shape), dtype, self.number())

    def dropout(self, x, p):
        return torch.ops.motley.dropout(x, p, self.number())


class Numbers:
    """The numbers of every draw, for a seed: those that `EagerDraws` gives after
    `torch.manual_seed`. Not those of a run, which come from Philox, but as good for a check."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        self.keys: list[int] = []

    def key(self, draw: int) -> int:
        while len(self.keys) <= draw:
            self.keys.append(next_key(self.generator))
        return self.keys[draw]

    def random(self, distribution: str, shape, dtype: torch.dtype, draw: int) -> torch.Tensor:
        return numbers_of(self.key(draw), distribution, shape, dtype)

    def dropout(self, x, p, draw):
        return drop(x, p, self.random("uniform", x.shape, torch.float32, draw))


class EagerDraws:
    """Numbers by keys from PyTorch's own generator: what repeats a part of the forward pass with
    the generator's old state (checkpointing) draws the same again."""

    def random(self, distribution, shape, dtype):
        return numbers_of(next_key(None), distribution, shape, dtype)

    def dropout(self, x, p):
        return drop(x, p, self.random("uniform", x.shape, torch.float32))


def next_key(generator: torch.Generator | None) -> int:
    with unset_fake_temporarily():
        return torch.randint(2**62, (), generator=generator).item()


def numbers_of(key: int, distribution: str, shape, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(key)
    if distribution == "uniform":
        return torch.rand(shape, dtype=dtype, generator=generator)
    if distribution == "exponential":
        return torch.empty(shape, dtype=dtype).exponential_(generator=generator)
    if distribution == "normal":
        return torch.randn(shape, dtype=dtype, generator=generator)
    if distribution == "bits":
        return torch.randint(2**63 - 1, shape, generator=generator)
    return torch.randperm(shape[0], generator=generator)


def drop(x: torch.Tensor, p: float, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What motley::dropout gives for these numbers."""
    mask = uniform >= p
    return x * mask * (0.0 if p == 1 else 1 / (1 - p)), mask


class DrawnEagerly(TorchDispatchMode):
    """Makes eager PyTorch draw as the exported graph does, number by number from `draws`."""

    def __init__(self, draws: Draws | None = None):
        super().__init__()
        self.table = decompositions(draws or EagerDraws())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out_of_place = IN_PLACE.get(func, func)
        drawn = self.table.get(out_of_place)
        if drawn is None:
            return func(*args, **(kwargs or {}))
        result = drawn(*args, **(kwargs or {}))
        return result if out_of_place is func else args[0].copy_(result)


IN_PLACE = {
    aten.bernoulli_.Tensor: aten.bernoulli.Tensor,
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.cauchy_.default: aten.cauchy.default,
    aten.exponential_.default: aten.exponential.default,
    aten.geometric_.default: aten.geometric.default,
    aten.log_normal_.default: aten.log_normal.default,
    aten.normal_.default: aten.normal_functional.default,
    aten.random_.default: aten.random.default,
    getattr(aten.random_, "from"): getattr(aten.random, "from"),
    aten.random_.to: aten.random.to,
    aten.uniform_.default: aten.uniform.default,
}


def decompositions(draws: Draws) -> dict[torch._ops.OpOverload, Callable]:
    """What each random operator of PyTorch is in terms of draws. Not there: those whose numbers
    follow from no fixed count of draws (Poisson, binomial, gamma, Dirichlet)."""
    table: dict[torch._ops.OpOverload, Callable] = {}

    def register(*operators):
        def add(function):
            table.update(dict.fromkeys(operators, function))
            return function

        return add

    def integers(shape, low, high, dtype):
        bits = draws.random("bits", shape, torch.int64)
        return (bits.remainder(high - low) + low).to(dtype)

    def normal(shape, dtype, mean, std):
        return draws.random("normal", shape, dtype) * std + mean

    # Tensors out of nothing, or like others

    @register(aten.rand.default)
    def rand(size, dtype=None, **_):
        return draws.random("uniform", size, dtype or torch.get_default_dtype())

    @register(aten.rand_like.default)
    def rand_like(x, dtype=None, **_):
        return draws.random("uniform", x.shape, dtype or x.dtype)

    @register(aten.randn.default)
    def randn(size, dtype=None, **_):
        return draws.random("normal", size, dtype or torch.get_default_dtype())

    @register(aten.randn_like.default)
    def randn_like(x, dtype=None, **_):
        return draws.random("normal", x.shape, dtype or x.dtype)

    @register(aten.randint.default)
    def randint(high, size, dtype=None, **_):
        return integers(size, 0, high, dtype or torch.int64)

    @register(aten.randint.low)
    def randint_low(low, high, size, dtype=None, **_):
        return integers(size, low, high, dtype or torch.int64)

    @register(aten.randint_like.default)
    def randint_like(x, high, dtype=None, **_):
        return integers(x.shape, 0, high, dtype or x.dtype)

    @register(aten.randint_like.low_dtype)
    def randint_like_low(x, low, high, dtype=None, **_):
        return integers(x.shape, low, high, dtype or x.dtype)

    @register(aten.randperm.default)
    def randperm(n, dtype=torch.int64, **_):
        return draws.random("permutation", [n], torch.int64).to(dtype or torch.int64)

    # By numbers: what the operators that fill a tensor become

    @register(aten.uniform.default)
    def uniform(x, low=0.0, high=1.0, generator=None):
        return draws.random("uniform", x.shape, x.dtype) * (high - low) + low

    @register(aten.normal_functional.default)
    def normal_functional(x, mean=0.0, std=1.0, generator=None):
        return normal(x.shape, x.dtype, mean, std)

    @register(aten.log_normal.default)
    def log_normal(x, mean=1.0, std=2.0, generator=None):
        return normal(x.shape, x.dtype, mean, std).exp()

    @register(aten.exponential.default)
    def exponential(x, rate=1.0, generator=None):
        return draws.random("exponential", x.shape, x.dtype) / rate

    @register(aten.geometric.default)
    def geometric(x, p, generator=None):
        waits = draws.random("exponential", x.shape, torch.float32)
        return (waits / -math.log1p(-p)).ceil().to(x.dtype)

    @register(aten.cauchy.default)
    def cauchy(x, median=0.0, sigma=1.0, generator=None):
        turn = draws.random("uniform", x.shape, x.dtype) - 0.5
        return (turn * math.pi).tan() * sigma + median

    @register(aten.random.default)
    def random(x, generator=None):
        return integers(x.shape, 0, count_of(x.dtype), x.dtype)

    @register(getattr(aten.random, "from"))
    def random_from(x, low, high, generator=None):
        return integers(x.shape, low, count_of(x.dtype) if high is None else high, x.dtype)

    @register(aten.random.to)
    def random_to(x, high, generator=None):
        return integers(x.shape, 0, high, x.dtype)

    @register(aten.bernoulli.p)
    def bernoulli_p(x, p=0.5, generator=None):
        # As dropout of 1 - p keeps; a bf16 tensor's p is as fine as any other's.
        return (draws.random("uniform", x.shape, torch.float32) >= 1 - p).to(x.dtype)

    # By tensors

    def is_below(shape, p):
        wide = torch.float64 if p.dtype == torch.float64 else torch.float32
        return draws.random("uniform", shape, wide) < p.to(wide)

    @register(aten.bernoulli.default)
    def bernoulli(p, generator=None):
        return is_below(p.shape, p).to(p.dtype)

    @register(aten.bernoulli.Tensor)
    def bernoulli_tensor(x, p, generator=None):
        return is_below(x.shape, p).to(x.dtype)

    @register(aten.normal.Tensor_float)
    def normal_mean(mean, std=1.0, generator=None):
        return normal(mean.shape, mean.dtype, mean, std)

    @register(aten.normal.float_Tensor)
    def normal_std(mean, std, generator=None):
        return normal(std.shape, std.dtype, mean, std)

    @register(aten.normal.Tensor_Tensor)
    def normal_both(mean, std, generator=None):
        shape = torch.broadcast_tensors(mean, std)[0].shape
        return normal(shape, torch.result_type(mean, std), mean, std)

    @register(aten.normal.float_float)
    def normal_numbers(mean, std, size, dtype=None, generator=None, **_):
        return normal(size, dtype or torch.get_default_dtype(), mean, std)

    @register(aten.multinomial.default)
    def multinomial(weights, count, replacement=False, generator=None):
        if replacement and count > 1:
            ends = weights.double().cumsum(-1)
            at = draws.random("uniform", (*weights.shape[:-1], count), torch.float64)
            at = at * ends[..., -1:]
            return (at.unsqueeze(-1) >= ends.unsqueeze(-2)).sum(-1)
        # The first to arrive of waits with these rates: a race without ties.
        race = weights / draws.random("exponential", weights.shape, weights.dtype)
        if count == 1:
            return race.argmax(-1, keepdim=True)
        return race.topk(count, -1).indices

    # Layers

    @register(aten.native_dropout.default)
    def native_dropout(x, p, train):
        if train is False or p == 0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        return draws.dropout(x, p)

    @register(aten.rrelu_with_noise_functional.default)
    def rrelu(x, noise, lower=1 / 8, upper=1 / 3, training=False, generator=None):
        if not training:
            return aten.leaky_relu(x, (lower + upper) / 2), noise.clone()
        slopes = draws.random("uniform", x.shape, x.dtype) * (upper - lower) + lower
        slopes = torch.where(x <= 0, slopes, 1.0)
        return x * slopes, slopes

    @register(aten.rrelu_with_noise.default)
    def rrelu_in_place(x, noise, *options, **named):
        result, slopes = rrelu(x, noise, *options, **named)
        noise.copy_(slopes)
        return result

    return table


def count_of(dtype: torch.dtype) -> int:
    """How many integers `random_` chooses from: those that the type has exactly, from 0 on."""
    if dtype == torch.bool:
        return 2
    if dtype.is_floating_point:
        return 2 ** round(1 - math.log2(torch.finfo(dtype).eps)) + 1
    return torch.iinfo(dtype).max + (dtype != torch.int64)


def keep_draws(module: torch.fx.GraphModule) -> None:
    """Replaces operators whose own decomposition loses what they draw, or draws at a higher price."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            node.target = KEPT.get(node.target, node.target)


def dropout_in_place(x, p, train):
    """As one operator, where PyTorch makes four of it."""
    return x.copy_(aten.dropout.default(x, p, train)) if train and p > 0 else x


def by_layer(operator):
    """A recurrent operator's layers, one call each, with the dropout between them that PyTorch's
    decomposition forgets."""

    def run(x, hidden, weights, bias, layers, p, train, both_ways, batch_first):
        x = x.transpose(0, 1) if batch_first else x
        has_cells = isinstance(hidden, (list, tuple))
        states = hidden if has_cells else [hidden]
        rows, count = 2 if both_ways else 1, len(weights) // layers
        ends = []
        for i in range(layers):
            own = [state[i * rows : (i + 1) * rows] for state in states]
            own_weights = weights[i * count : (i + 1) * count]
            x, *last = operator(
                x, own if has_cells else own[0], own_weights, bias, 1, 0.0, train, both_ways, False
            )
            ends.append(last)
            if i + 1 < layers:
                x = aten.dropout.default(x, p, train)
        x = x.transpose(0, 1) if batch_first else x
        return x, *(torch.cat(parts) for parts in zip(*ends, strict=True))

    return run


KEPT = {
    operator: by_layer(operator)
    for operator in (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
} | {aten.dropout_.default: dropout_in_place}

"""Batches between a shared loader and the forward pass that they are in: scripts read ahead, copy what they read, and skip."""

from __future__ import annotations

import dataclasses
import weakref
from collections import deque
from collections.abc import Callable

import torch
from torch.utils._pytree import tree_leaves

from motley.torch.refusals import refuse

MOST_AHEAD = 64  # batches that were given, of which one is in the next forward pass: a Trainer reads a step's micro-batches at once


def tensors_of(batch) -> list[torch.Tensor]:
    return [each for each in tree_leaves(batch) if isinstance(each, torch.Tensor) and each.numel()]


def storages_of(batch) -> set[int]:
    return {each.untyped_storage().data_ptr() for each in tensors_of(batch)}


def count_samples(arguments) -> int | None:
    """The length of the first tensor of a model's arguments."""
    return next((len(each) for each in tensors_of(arguments) if each.dim()), None)


class Drawn:
    """What is drawn of a loader, in one pass over it."""

    def __init__(self):
        self.begin([])

    def begin(self, weights: list[float]) -> None:
        self._taken, self._drawn = 0, 0  # batches
        self._samples: deque[list[int]] = deque()  # of each rank, of what is drawn and not taken
        self._splits = [(0, weights)]  # from which batch on

    def change(self, ahead: int, weights: list[float]) -> None:
        """From the batch on that no rank has drawn."""
        self._splits = [*self._splits[-3:], (self._taken + ahead, weights)]

    def next_weights(self) -> list[float]:
        return next(weights for begins, weights in reversed(self._splits) if begins <= self._drawn)

    def draw(self, samples: list[int]) -> None:
        self._samples.append(samples)
        self._drawn += 1

    def take(self) -> list[int]:
        self._taken += 1
        return self._samples.popleft()


@dataclasses.dataclass(eq=False)
class Given:
    """A batch that a shared loader has given."""

    samples: list[int]  # of each rank
    batch: object  # none: nobody will ask
    tensors: list  # weak references


class Batches:
    """Of one rank: what was given, and what of it a loss averages over where a weight says so."""

    def __init__(self, rank: int):
        self.taken = 0  # that loaders have given, on all ranks alike
        self.keeps = False  # for a function of the batch
        self._rank = rank
        self._given: list[Given] = []
        self._current: Given | None = None  # of the last forward pass
        self._counts: list[float] = []  # of forward passes since the last backward pass; of none, what was last
        self._is_counted = True  # they had a backward pass
        self.length: int | None = None  # samples in the last forward pass, as the model's arguments have them

    @property
    def samples(self) -> list[int] | None:
        """Of each rank, in the batch of the last forward pass."""
        return self._current.samples if self._current else None

    def take(self, samples: list[int], batch) -> None:
        self.taken += 1
        tensors = [weakref.ref(each) for each in tensors_of(batch)]
        self._given = [*self._given[-MOST_AHEAD:], Given(samples, batch if self.keeps else None, tensors)]

    def begin_forward(self, weight: str | Callable | None, arguments) -> None:
        self.length = count_samples(arguments)
        is_sure = self._find(arguments)
        if not callable(weight) and weight != "samples":
            return
        refuse(
            callable(weight) and not is_sure,
            "several batches were read ahead, and the model's arguments are none of them: nobody knows which one weight= is to be asked of. "
            "Leave it out, and write motley.torch.weigh(loss, weight=what it averages over).backward()",
            "DDP",
        )
        refuse(
            weight == "samples" and self.length is None,
            "weight='samples' counts along the first tensor of the model's arguments, and there is none; give weight= a function of the batch "
            "that gives the number of its samples",
            "DDP",
        )
        count = self.length if weight == "samples" else weight(self._current.batch if self._current else arguments)
        self._counts = [float(count)] if self._is_counted else [*self._counts, float(count)]
        self._is_counted = False

    def end_backward(self) -> None:
        self._is_counted = True

    def _find(self, arguments) -> bool:
        """The batch that a forward pass is of; is that sure? One that was read later waits."""
        storages, own = storages_of(arguments), None
        for place, each in enumerate(self._given):
            if any((tensor := ref()) is not None and tensor.untyped_storage().data_ptr() in storages for ref in each.tensors):
                own = place
        is_sure = own is not None or len(self._given) < 2
        if own is None and self._given:
            # A copy: the first that has as many samples, as batches are trained on in the order in which they are read; or the same again.
            own = next((place for place, each in enumerate(self._given) if each.samples[self._rank] == self.length), None)
            if own is None and (self._current is None or self._current.samples[self._rank] != self.length):
                own = len(self._given) - 1
        if own is None:
            return True  # the same one again
        self._current, self._given = self._given[own], self._given[own + 1 :]
        return is_sure

    def given_count(self) -> float:
        """What the loss averages over, by the weight that the model was given."""
        refuse(not self._counts, "give it the number that the loss averages over: weigh(loss, weight=...)", "weigh")
        refuse(
            len(set(self._counts)) > 1,
            f"forward passes that average over {self._counts} go into one loss, which weight= gives one number. Leave weight= out, or write "
            "motley.torch.weigh(loss, weight=...).backward() for each",
            "DDP",
        )
        return self._counts[-1]

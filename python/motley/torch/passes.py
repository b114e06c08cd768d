"""Forward passes, and what a rank did in a step of them.

A step may be more than one backward pass (a generator's and a discriminator's), and a backward pass may go through several models in DDP
(an encoder and a decoder): each weighs its gradients by its own forward passes.
"""

from __future__ import annotations

import math

import torch

from motley.torch.clocks import UNKNOWN

NOTHING = "motley.torch.DDP: the losses of all ranks average over nothing: every target is masked"


class Micro:
    """One forward pass: what its loss averages over here, and on all ranks.

    `is_sure`: it trains, so that other ranks have it, too. In evaluation mode a backward pass shows that.
    """

    def __init__(self, count: float, total: float | None, session, is_sure: bool = True):
        self.is_weighed, self.is_part, self.is_sure, self._session = False, False, is_sure, session
        self.recount(count, total)

    def recount(self, count: float, total: float | None = None) -> None:
        self.count, self._total, self._posted, self._alike = count, total, None, None
        if total is None and self.is_sure:
            self._post()

    def _post(self) -> None:
        self._posted = self._session.mesh.post(torch.tensor([self.count], dtype=torch.float64))

    def count_as(self, other: Micro) -> None:
        """A pass of another model, of the same samples."""
        self.count, self._alike = other.count, other

    def total(self) -> float:
        if self._alike is not None:
            return self._alike.total()
        if self._total is None:
            if self._posted is None:
                self._post()
            with self._session.waiting():
                self._total = self._session.mesh.sum(self._posted).item()
        return self._total

    def loss_part(self) -> float:
        """Of this rank's loss in that of all ranks; of a weighed loss 1, as its sums need no more."""
        return 1.0 if self.is_weighed or self.is_part else self.count / self.total()


class Passes:
    """Of one model, since its gradients were exchanged last."""

    def __init__(self, module: torch.nn.Module):
        self.parameters = [each for each in module.parameters() if each.requires_grad]
        self.micros: list[Micro] = []
        self._is_synced = False  # the last one exchanges gradients

    def drop_unused(self) -> Micro | None:
        """The last one, if it should have had a backward pass and had none."""
        return self.micros.pop() if self._is_synced and self.micros else None

    def begin(self, micro: Micro, is_synced: bool) -> None:
        self.micros.append(micro)
        self._is_synced = is_synced

    def factor(self) -> float:
        """Of the gradients here, summed over the micro-batches, in those of all ranks."""
        if not self.micros:
            raise RuntimeError("motley.torch.DDP: gradients of a model that had no forward pass of its own since the last exchange")
        if all(micro.is_part for micro in self.micros):
            return 1.0
        weighed = sum(micro.is_weighed for micro in self.micros)
        total = sum(micro.total() for micro in self.micros)
        if total == 0:
            raise ValueError(NOTHING)
        if weighed == len(self.micros):
            return 1.0 / total
        if weighed:
            raise ValueError(f"motley.torch.weigh: {weighed} of {len(self.micros)} micro-batches were weighed; weigh the loss of each")
        if len({(micro.count, micro.total()) for micro in self.micros}) > 1:
            found = [micro.count for micro in self.micros]
            raise ValueError(
                f"motley.torch.DDP: micro-batches that average over {found} are accumulated; a mean of their means is not the mean. "
                "Write motley.torch.weigh(loss).backward(), without a division by the number of micro-batches"
            )
        return sum(micro.count for micro in self.micros) / total

    def end(self) -> int:
        """The gradients are on their way; how many passes they are of."""
        ended, self.micros, self._is_synced = len(self.micros), [], False
        return max(1, ended)


class Work:
    """What a rank did in one step and has not told yet: readings of its clock, one a backward pass, and losses."""

    def __init__(self):
        self.samples: list[int] = []  # of each rank, in a pass
        self.passes = 1  # forward passes of the same samples
        self.readings: list = []  # functions that give seconds
        self.losses: list[tuple[torch.Tensor, Micro]] = []
        self.is_begun = False  # a batch was taken for it
        self.is_posted = False

    def seconds(self) -> float:
        """Of a pass; not a number: nothing is new, UNKNOWN: something else came between."""
        new, self.readings = [read() for read in self.readings], []
        return add_seconds(new) / self.passes if new else math.nan

    def loss(self) -> float:
        """This rank's part in the sum of the losses that backward passes began from; not a number: none did."""
        losses, self.losses = [(value.item(), micro) for value, micro in self.losses], []
        total = sum(micro.total() for _, micro in losses)

        def part(value: float, micro: Micro) -> float:
            if micro.count == 0:
                return 0.0  # a mean over nothing is no number
            return value / total if micro.is_weighed and not micro.is_part else value * micro.loss_part()

        return sum(part(*each) for each in losses) if losses else math.nan


def add_known(values) -> float:
    """Of numbers that say something; not a number: none does."""
    known = [each for each in values if not math.isnan(each)]
    return sum(known) if known else math.nan


def add_seconds(values) -> float:
    """Of a step's backward passes; UNKNOWN: something else came between."""
    known = [each for each in values if not math.isnan(each)]
    return UNKNOWN if UNKNOWN in known else sum(known)

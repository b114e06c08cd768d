"""What a rank did in a step, which may be more than one backward pass (a generator's and a discriminator's)."""

from __future__ import annotations

import math

import torch

from motley.torch.clocks import UNKNOWN

class Work:
    """What a rank did in one step and has not told yet: readings of its clock, one a backward pass, and losses."""

    def __init__(self):
        self.samples: list[int] = []  # of each rank, in a pass
        self.passes = 1  # forward passes of the same samples
        self.readings: list = []  # functions that give seconds
        self.losses: list[tuple[torch.Tensor, float]] = []  # with this rank's part in that of all
        self.is_begun = False  # a batch was taken for it
        self.is_posted = False

    def seconds(self) -> float:
        """Of a pass; not a number: nothing is new, UNKNOWN: something else came between."""
        new, self.readings = [read() for read in self.readings], []
        return add_seconds(new) / self.passes if new else math.nan

    def loss(self) -> float:
        """This rank's part in the losses that backward passes began from; not a number: none did."""
        losses, self.losses = self.losses, []
        return sum(part * value.item() for value, part in losses if part) if losses else math.nan


def add_known(values) -> float:
    """Of numbers that say something; not a number: none does."""
    known = [each for each in values if not math.isnan(each)]
    return sum(known) if known else math.nan


def add_seconds(values) -> float:
    """Of a step's backward passes; UNKNOWN: something else came between."""
    known = [each for each in values if not math.isnan(each)]
    return UNKNOWN if UNKNOWN in known else sum(known)

"""A step in micro-batches as PyTorch's own loop takes them: a backward pass each, of a part of the
loss, then one update.

Random numbers are those of a run in micro-batches: an element of a micro-batch has its place in the
whole batch. Which dimension of a draw has samples is seen by giving the module a micro-batch once and
several times over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from motley.draws import DrawnEagerly
from motley.philox import PhiloxDraws, place_index


class SeenDraws(PhiloxDraws):
    """Remembers the shape of each draw."""

    def __init__(self):
        super().__init__(0, 0)
        self.shapes = []

    def places(self, shape):
        self.shapes.append(list(shape))
        return super().places(shape)


class MicroBatchDraws(PhiloxDraws):
    """Those of micro-batch `number` of `times`; `sample_dims` by draw, none where it has no samples."""

    def __init__(self, seed, step, number, times, sample_dims):
        super().__init__(seed, step)
        self.number, self.times, self.sample_dims = number, times, sample_dims

    def places(self, shape):
        dim = self.sample_dims[self.next]
        if dim is None:
            return super().places(shape)
        run = max(math.prod(shape[dim:]), 1)
        return place_index(math.prod(shape), 1, 1, 0, 0, run, self.number * run, self.times * run)


@dataclass
class MicroBatches:
    times: int
    part: float  # of a micro-batch's loss that counts: 1 / times of a mean, 1 of a sum
    sample_dims: list[int | None]  # by draw

    @staticmethod
    def find(loop, inputs, times: int, part: float) -> MicroBatches:
        """Of a loop (motley.eager.Loop), whose buffers stay as they are."""
        first = [value.chunk(times)[0] for value in inputs]
        buffers = {name: value.clone() for name, value in loop.module.named_buffers()}
        shapes = []
        for count in (1, times):
            draws = SeenDraws()
            with torch.no_grad(), DrawnEagerly(draws):
                loop.forward(*(torch.cat([value] * count) for value in first))
            shapes.append(draws.shapes)
        with torch.no_grad():
            for name, value in loop.module.named_buffers():
                value.copy_(buffers[name])
        return MicroBatches(times, part, [_first_other(*each) for each in zip(*shapes, strict=True)])

    def backward(self, loop, inputs, seed: int, step: int) -> float:
        """The gradients and the loss of a step."""
        parts = zip(*(value.chunk(self.times) for value in inputs), strict=True)
        losses = []
        for number, each in enumerate(parts):
            with DrawnEagerly(MicroBatchDraws(seed, step, number, self.times, self.sample_dims)):
                losses.append(loop.backward(each, self.part))
        return sum(losses)


def times_of(plan: dict) -> int:
    """In how many micro-batches PyTorch's loop must take a step to do what the plan does; otherwise the
    result is that of the whole batch."""
    is_own = plan.get("batch_norm_span") == "micro_batch"
    return plan["replicas"][0].get("micro_batches", 1) if is_own else 1


def _first_other(few, many):
    return next((dim for dim, sizes in enumerate(zip(few, many, strict=True)) if len(set(sizes)) == 2), None)

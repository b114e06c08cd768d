"""Factors of learning rates by step, from a job's schedule (docs/formats/job.md)."""

from __future__ import annotations

import math


def factor(schedule: dict, step: int) -> float:
    """What every learning rate is multiplied by in a step, counted from 0."""
    kind, warmup, steps = schedule["kind"], schedule["warmup"], schedule["steps"]
    if kind == "file":
        return schedule["factors"][min(step, len(schedule["factors"]) - 1)]
    if step < warmup:
        return step / warmup
    count = max(steps - warmup, 1)
    over = min(step - warmup, count)
    fallen = {"linear": 1 - over / count, "cosine": (1 + math.cos(math.pi * over / count)) / 2}
    if kind in fallen:
        return schedule["floor"] + (1 - schedule["floor"]) * fallen[kind]
    if kind == "step":
        return schedule["gamma"] ** ((step - warmup) // schedule["every"])
    return one_cycle(min(over, count - 1), count) if kind == "one-cycle" else 1.0


def one_cycle(step: int, steps: int) -> float:
    """torch.optim.lr_scheduler.OneCycleLR with its defaults."""

    def anneal(begin: float, end: float, part: float) -> float:
        return end + (begin - end) / 2 * (1 + math.cos(math.pi * part))

    top, last = 0.3 * steps - 1, steps - 1
    if step <= top:
        return anneal(1 / 25, 1, step / top)
    return anneal(1, 1 / 25 / 1e4, (step - top) / (last - top))

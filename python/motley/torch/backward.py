"""Backward passes that weigh a loss's terms where they begin (losses.py), and say what a rank's own work took.

Wraps torch.autograd.backward, which Tensor.backward, scalers and frameworks come to. A pass that reaches no parameter of a model in DDP is left
alone, and so is autograd.grad: its values are the script's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re

import torch

from motley.torch import losses
from motley.torch.losses import Reader, Term, Unreadable

REFUSED, HEAD = -1.0, -2.0  # what a row begins with
LOST = re.compile("connection (was )?closed|connection reset|broken pipe|timed out waiting|remote process exited|socket closed", re.IGNORECASE)
_pytorch_s = torch.autograd.backward
_sessions: list = []  # whose models' backward passes are weighed


class Mark(torch.autograd.Function):
    """Of the loss of a micro-batch: what it averages over, where the script says so."""

    @staticmethod
    def forward(context, loss, count):
        context.count = count
        return loss.view_as(loss)

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def number_of(key: str) -> float:
    """Of a term's key: a whole number that float64 holds."""
    return float(int.from_bytes(hashlib.blake2s(key.encode(), digest_size=6).digest(), "big"))


@dataclasses.dataclass
class Agreed:
    """What all ranks said of a loss: by term of this rank's the counts of all ranks, and their weights."""

    counts: list[list[float]]
    weights: list[list[float]]
    totals: list[float]  # of all ranks' terms, also of those that are not here
    has_gradients: bool  # a rank has some already


def agree(terms: list[Term], session, has_gradients: bool) -> Agreed:
    """All ranks call it together. Unreadable: their terms are not alike."""
    groups: dict[float, list[int]] = {}
    for place, term in enumerate(terms):
        groups.setdefault(number_of(term.key), []).append(place)
    row = [HEAD, float(has_gradients), float(session.batches.length or 0)]
    for key, places in groups.items():
        row += [key, len(places), *(each for place in places for each in said_of(terms[place]))]
    rows = session.exchange("loss", row)
    if refused := [rank for rank, each in enumerate(rows) if each[0] == REFUSED]:
        raise ValueError(f"motley.torch.DDP: rank {refused[0]} does not know what its loss averages over, and says why")
    tables, samples = [read_terms(each[3:]) for each in rows], [each[2] for each in rows]
    agreed = Agreed([[]] * len(terms), [[]] * len(terms), [], any(each[1] for each in rows))
    for key in sorted({key for table in tables for key in table}):
        found = [table.get(key, []) for table in tables]
        lengths = {len(each) for each in found if each}
        if len(lengths) > 1:  # means over each sample's own mean
            if any(pair != each[0] for each in found for pair in each):
                raise Unreadable(f"the ranks have {' : '.join(str(len(each)) for each in found)} terms of one kind")
            found = [each[:1] * max(lengths) for each in found]
        for i in range(max(lengths)):
            counts, factors = zip(*(each[i] if each else (0.0, 0.0) for each in found), strict=True)
            counts = sure_counts(counts, samples)
            if key == SUM:
                counts, factors = counts_of_sum(factors), [1.0] * session.world
            agreed.totals.append(sum(counts))
            if i < len(groups.get(key, [])):
                place = groups[key][i]
                agreed.counts[place], agreed.weights[place] = list(counts), weights_of(counts, factors, samples)
    return agreed


def said_of(term: Term) -> tuple[float, float]:
    """(count, factor); below 0: a count of 1 that may be one of nothing."""
    return float(term.count) if term.is_sure else -1.0, float(term.factor)


def sure_counts(counts, samples) -> list[float]:
    """Unreadable: a rank divides by 1, more of the others, and it is not its number of samples."""
    for rank, count in enumerate(counts):
        if count < 0 and max(counts) > 1 and samples[rank] > 1:
            raise Unreadable(
                f"rank {rank} divides a sum by 1, where others divide by up to {max(counts):g}: by 1 target, or by max(1, n) for none? Divide by the mean of n "
                "over all ranks (dist.all_reduce(n); n / world), or"
            )
    return [abs(each) for each in counts]


def read_terms(row: list[float]) -> dict[float, list[tuple[float, float]]]:
    """(count, factor) of each term, by key."""
    table, i = {}, 0
    while i < len(row):
        end = i + 2 + 2 * int(row[i + 1])
        table[row[i]] = list(zip(row[i + 2 : end : 2], row[i + 3 : end : 2], strict=True))
        i = end
    return table


def is_one_ratio(values, by) -> bool:
    """Of numbers that are not 0."""
    ratios = [a / b for a, b in zip(values, by, strict=True) if a and b]
    return len(ratios) == sum(each != 0 for each in values) > 0 and max(ratios) - min(ratios) <= 1e-6 * max(ratios)


def counts_of_sum(factors) -> list[float]:
    """Of a sum times 1 / n the n; of any other factors nothing that differs."""
    here = [each for each in factors if each]
    if all(abs(1 / each - round(1 / each)) < 1e-4 for each in here):
        return [1 / each if each else 0.0 for each in factors]
    return [1.0] * len(factors)


def weights_of(counts, factors, samples) -> list[float]:
    """Of each rank's gradients, for DistributedDataParallel's mean over ranks to be that of one device.

    A factor that differs between ranks is the script's own (mixup's), unless it is as their numbers of samples or of what is averaged: then the
    script makes a mean a sum by it (a loss times the batch size), or of a sum a mean, and one device would have the number of all ranks.
    """
    world, here = len(counts), [each for each in factors if each]
    total = sum(counts)
    if total <= 0:
        return [0.0] * world
    weights = [world * each / total for each in counts]
    if len(set(here)) <= 1:
        return weights
    for numbers in (samples, counts):
        for power in (1, -1):
            of_all = [each**power if each else 0.0 for each in numbers]
            if is_one_ratio(factors, of_all):
                ratio = next(a / b for a, b in zip(factors, of_all, strict=True) if a)
                mean = ratio * (sum(numbers) / world) ** power
                return [weight * mean / factor if factor else weight for weight, factor in zip(weights, factors, strict=True)]
    return weights


SUM = number_of("/Mul")


class Pass:
    """One backward pass."""

    def __init__(self, session, roots: list[torch.Tensor]):
        self.session, self.roots = session, roots
        self.is_begun, self.is_ours = False, False
        self.terms: list[Term] = []
        self.factors: list[float] = []
        self.problem: Unreadable | None = None
        self.handles: list = []
        self.models = contextlib.ExitStack()
        reader = Reader()
        try:
            self.terms = [term for root in roots for term in reader.read(root)]
        except Unreadable as problem:
            self.problem = problem
        self.mark = reader.mark  # none: `weigh` has not seen it
        if session.weight is not None or self.mark is not None and self.mark >= 0:
            self.terms = [Term("given", root.grad_fn, 0.0) for root in roots if session.weight != "sum" or self.mark is not None]
            self.problem = None

    def __enter__(self) -> Pass:
        # In the order in which they run where a node is both.
        self.handles += [node.register_prehook(self.begin) for node in {root.grad_fn for root in self.roots}]
        for i, term in enumerate(self.terms):
            self.handles.append(term.node.register_prehook(lambda gradients, i=i: self.weigh(gradients, i)))
            self.handles.append(term.node.register_hook(lambda gradients, _, i=i: self.clear(gradients, i)))
        return self

    def __exit__(self, kind, error, _trace) -> None:
        for each in self.handles:
            each.remove()
        self.models.close()
        if error is None:
            if self.is_ours:
                self.session.end_backward()
        elif isinstance(error, RuntimeError) and LOST.search(str(error)) and (ended := self.session.mesh.find_ended()):
            raise RuntimeError(f"motley.torch: rank {ended[0]} has ended; rank {self.session.rank} exchanged gradients with it") from error

    def begin(self, _gradients) -> None:
        """Before anything is derived, within the engine, which knows what it will reach."""
        if self.is_begun:
            return
        self.is_begun = True
        self.is_ours = self.mark is not None or self.session.reaches_model()
        if not self.is_ours:
            if self.session.is_exchanged(self.roots):
                raise ValueError(
                    "motley.torch.DDP: a second backward pass through a forward pass whose gradients were exchanged; PyTorch would leave each rank its own. "
                    "Write (a + b).backward() for both losses, or call the model once for each"
                )
            return
        torch.autograd.Variable._execution_engine.queue_callback(self.session.end_compute)
        try:
            self.factors = self._find_factors()
        except Unreadable as problem:
            raise ValueError(f"motley.torch.DDP: it is not known what the loss averages over: {problem}. Please {losses.ADVICE}") from None
        self.models = self.session.within_models()
        part = self.factors[0] if self.factors else 1.0
        self.session.begin_backward(self.roots, part / self.session.world)

    def _find_factors(self) -> list[float]:
        session = self.session
        if self.problem is not None:
            session.exchange("loss", [REFUSED, 0.0, 0.0])
            raise self.problem
        if self.terms and self.terms[0].key == "given":
            count = self.mark if self.mark is not None and self.mark >= 0 else session.batches.given_count()
            self.terms = [Term(term.key, term.node, count) for term in self.terms]
        if session.weight == "sum" and self.mark is None:
            return []
        agreed = agree(self.terms, session, self.mark is not None and session.has_gradients())
        before = session.accumulate(agreed.totals, agreed.has_gradients) if self.mark is not None else 0.0
        rank, totals = 0 if session.is_alone else session.rank, [sum(each) for each in agreed.counts]
        return [each[rank] * (total / (total + before) if before else 1) for each, total in zip(agreed.weights, totals, strict=True)]

    def weigh(self, gradients, i: int):
        factor = self.factors[i] if self.is_ours else 1.0
        return None if factor == 1.0 else tuple(None if each is None else each * factor for each in gradients)

    def clear(self, gradients, i: int):
        """A mean over nothing has gradients that are no numbers."""
        if self.is_ours and self.factors[i] == 0.0:
            return tuple(None if each is None else torch.zeros_like(each) for each in gradients)
        return None


def backward(tensors, *arguments, **keywords):
    """torch.autograd.backward."""
    session = _sessions[-1] if _sessions else None
    if session is not None and torch._C._current_graph_task_id() != -1:
        session.has_nested = True  # a reentrant checkpoint: what is behind it no graph says
        session = None
    roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    roots = [each for each in roots if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    if session is None or not roots:
        return _pytorch_s(tensors, *arguments, **keywords)
    with Pass(session, roots):
        return _pytorch_s(tensors, *arguments, **keywords)


def watch(session) -> None:
    """From now on, of the models of this session."""
    if any(each.group is not session.group for each in _sessions):
        raise ValueError("motley.torch.DDP: models of two process groups; those of one can be weighed")
    _sessions[:] = [session]
    torch.autograd.backward = backward


def forget(session) -> None:
    if session in _sessions:
        _sessions.remove(session)

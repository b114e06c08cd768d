"""What a loss averages over, read from its graph.

A loss is a sum of terms c (sum over elements) / d. On rank i of W its sums are s_i and its divisors d_i: the elements of a mean, the weights of
the targets that a cross entropy does not ignore, the number that the script divides by. One device would divide the sum of all s_i by the sum
of all d_i. DistributedDataParallel averages gradients over ranks, so with those of each term multiplied by
    f_i = W d_i / (d_1 + ... + d_W)
where they enter its sum, all gradients are those of one device. A divisor that is the same on all ranks (a constant, a number of boxes that
the script averaged over ranks) makes every f_i 1, and so does a plain sum: there it is what DistributedDataParallel makes of it.
What lies behind the sums (models, checkpoints, penalties) is linear in these gradients, and needs to know nothing.
"""

from __future__ import annotations

import dataclasses
import math

import torch

ADVICE = (
    "say what it averages over: DDP(model, weight='samples') for a mean over this rank's samples, weight='sum' where nothing is to be weighed, "
    "or weight= a function of the batch that gives the number"
)
# What is linear in each of its inputs, and adds no average of its own.
LINEAR = frozenset(
    "Add Sub Rsub Neg Stack Cat View ReshapeAlias UnsafeView Squeeze Unsqueeze Expand Permute T Transpose Select Slice Index Gather IndexSelect "
    "MaskedSelect MaskedFill Where ToCopy Clone Alias Split SplitWithSizes Unbind Diagonal Flip Repeat Sum Nansum Mul Div Mean".split()
)
# Of parameters, what a loss may have beside data: a norm, exp(-s), softplus(s) + 1.
OF_PARAMETERS = frozenset("Exp Log Log1P Softplus Sigmoid Tanh Pow Sqrt Norm LinalgVectorNorm Neg Add Sub Rsub Clamp Reciprocal ToCopy View Squeeze Select".split())
PARAMETERS_WITHIN = 64  # nodes that are looked at before a scalar is taken to be of more than parameters


class Unreadable(ValueError):
    """The graph does not say what the loss averages over."""


@dataclasses.dataclass(frozen=True)
class Term:
    key: str  # the divisions between it and the loss, alike on all ranks
    node: torch.autograd.graph.Node  # its sum, or mean: what comes into it is weighed
    count: float | torch.Tensor  # what it is divided by; where a GPU knows that, on the GPU
    factor: float | torch.Tensor = 1.0  # what it is multiplied by beside that
    is_sure: bool = True  # no number of nothing that became 1, in max(1, n)


@dataclasses.dataclass(frozen=True)
class Path:
    """From the loss to some node. Of a mean all sizes count; a sum is divided by the last number that the script divides by, and numbers before
    that multiply."""

    key: str = ""
    mean: float | torch.Tensor | None = None
    divisor: float | torch.Tensor | None = None
    factor: float | torch.Tensor = 1.0
    is_multiplied: bool = False
    places: tuple = ()  # sums and means on it
    first: object = None  # the first sum behind the divisor

    def average(self, kind: str, count) -> Path:
        return dataclasses.replace(self, key=f"{self.key}/{kind}", mean=count if self.mean is None else self.mean * count)

    def divide(self, divisor) -> Path:
        factor = self.factor if self.divisor is None else self.factor / self.divisor
        return dataclasses.replace(self, key=f"{self.key}/Div", divisor=divisor, factor=factor, first=None)

    def multiply(self, factor) -> Path:
        return dataclasses.replace(self, factor=self.factor * factor, is_multiplied=True)

    def sum(self, node) -> Path:
        return dataclasses.replace(self, places=(*self.places, node), first=self.first or node)

    def term(self, node) -> Term | None:
        """None: a plain sum."""
        key, count, factor, is_sure = self.key, self.mean, self.factor, True
        if count is not None:
            factor = factor if self.divisor is None else factor / self.divisor
        elif self.divisor is not None:
            count = self.divisor
            if not isinstance(count, torch.Tensor) and abs(count) == 1:
                found = is_empty(self.first or node)
                count, is_sure = 0.0 if found else count, found is not None
        elif self.is_multiplied:
            key, count = "/Mul", 1.0
        return None if count is None else Term(key, node, abs(count), abs(factor), is_sure)


def kind_of(node) -> str:
    return node.name().rsplit("::", 1)[-1].rstrip("0123456789").removesuffix("Backward")


def shape_of(node, number: int) -> tuple[int, ...]:
    return tuple(node.variable.shape if hasattr(node, "variable") else node._input_metadata[number].shape)


def inputs_of(node) -> list[tuple]:
    return [each for each in node.next_functions if each[0] is not None]


def scalar_of(node):
    """The number that a product or a quotient has beside what is derived; none: there is none."""
    other = getattr(node, "_saved_other", None)
    if other is None:
        other = getattr(node, "_saved_self", None) if kind_of(node) == "Mul" else None
    if not isinstance(other, torch.Tensor):
        return None if other is None else float(other)
    other = other.detach()
    return None if other.numel() != 1 else other if other.device.type != "cpu" else float(other)


def is_empty(node) -> bool | None:
    """Has a sum no element that counts? Asked where a script divides by 1: by max(1, number of targets), say. None: nobody knows."""
    if kind_of(node).startswith("NllLoss"):
        return not node._saved_total_weight.any()
    following, number = inputs_of(node)[0]
    if math.prod(shape_of(following, number)) == 0:
        return True
    kind = kind_of(following)
    if kind == "Mul" and len(inputs_of(following)) == 1:
        masks = [each for each in (following._saved_other, following._saved_self) if isinstance(each, torch.Tensor)]
        return any(not each.any() for each in masks) if masks else None
    if kind == "MaskedFill":
        return bool(following._saved_mask.all())
    if kind == "Where":
        return not following._saved_condition.any() and following.next_functions[-1][0] is None
    return None


def is_of_parameters(node) -> bool:
    """Is a scalar computed from parameters alone, as far as one sees?"""
    waiting, seen = [node], 0
    while waiting and (seen := seen + 1) < PARAMETERS_WITHIN:
        each = waiting.pop()
        if hasattr(each, "variable"):
            continue
        if kind_of(each) not in OF_PARAMETERS:
            return False
        waiting += [following for following, number in inputs_of(each) if following not in waiting]
    return not waiting


class Reader:
    """Walks from a loss to its sums."""

    def __init__(self):
        self._terms: dict[torch.autograd.graph.Node, Term] = {}
        self._above: set = set()  # sums on the way to further ones
        self.mark: float | None = None  # of a loss that `weigh` marked: what it averages over; below 0: as the graph says

    def read(self, loss: torch.Tensor) -> list[Term]:
        waiting = [(loss.grad_fn, loss.output_nr, Path())] if loss.grad_fn is not None else []
        visited = set()
        while waiting:
            node, number, path = waiting.pop()
            if (node, number, path) in visited:
                continue
            visited.add((node, number, path))
            waiting += self._follow(node, number, path)
        if self._above & self._terms.keys():
            raise Unreadable("a mean is taken over means and sums at once")
        return list(self._terms.values())

    def _follow(self, node, number: int, path: Path) -> list[tuple]:
        """Where the walk goes on from a node; nowhere: a term is found."""
        kind = kind_of(node)
        if kind == "_DDPSink":  # outputs of a model, one by one
            return [(*node.next_functions[number], path)]
        if kind == "Mark":
            self.mark = node.count
            return [(*each, path) for each in inputs_of(node)]
        if hasattr(node, "_saved_reduction"):
            if node._saved_reduction == 1:
                path = path.average("Loss", self._loss_count(node, kind))
            return self._end(node, number, path if node._saved_reduction == 0 else path.sum(node))
        following = inputs_of(node)
        if kind not in LINEAR:
            return self._end(node, number, path)
        if kind in ("Mul", "Div"):
            if len(following) > 1:
                return self._product(node, number, path)
            scalar = scalar_of(node)
            if kind == "Mul" and isinstance(scalar, float) and scalar == 0:
                return []  # of a rank without targets
            if scalar is not None:
                path = path.divide(scalar) if kind == "Div" else path.multiply(scalar)
        elif kind == "Mean":
            sizes, dims = node._saved_self_sym_sizes, getattr(node, "_saved_dim", ())
            dims = [dim - (1 << 64) if dim >> 63 else dim for dim in dims] or range(len(sizes))
            path = path.average(kind, float(math.prod(int(sizes[dim]) for dim in dims))).sum(node)
        elif kind in ("Sum", "Nansum"):
            path = path.sum(node)
        return [(*each, path) for each in following]

    @staticmethod
    def _loss_count(node, kind: str):
        if kind.startswith("NllLoss"):
            total = node._saved_total_weight
            return total if total.device.type != "cpu" else float(total)
        return float(math.prod(shape_of(*inputs_of(node)[0])))

    def _product(self, node, number: int, path: Path) -> list[tuple]:
        """Of two that are derived. Of a loss and a function of parameters both get the loss's factor."""
        of_data = [each for each in inputs_of(node) if not is_of_parameters(each[0])]
        if kind_of(node) == "Div" or math.prod(shape_of(node, number)) != 1 or len(of_data) != 1:
            return self._end(node, number, path)
        inner = Reader()
        waiting = [(*of_data[0], path)]
        while waiting:
            waiting += inner._follow(*waiting.pop())
        found = [dataclasses.replace(each, node=node) for each in inner._terms.values()]
        if len(set(found)) > 1:
            raise Unreadable("a product with a loss of several terms")
        if found:
            self._put(found[0], path.places)
        return []

    def _end(self, node, number: int, path: Path) -> list[tuple]:
        """Nothing behind the node divides."""
        if is_of_parameters(node) and (not path.places or math.prod(shape_of(node, number)) == 1):
            return []
        if not path.places:
            raise Unreadable(f"it ends in {node.name()}")
        if (term := path.term(path.places[-1])) is not None:
            self._put(term, path.places[:-1])
        return []

    def _put(self, term: Term, above: tuple) -> None:
        self._above.update(above)
        before = self._terms.setdefault(term.node, term)
        if not bool(before.count == term.count):
            raise Unreadable("one sum is divided in two ways")
        if not bool(before.factor == term.factor):  # a mean that is there twice
            self._terms[term.node] = dataclasses.replace(before, factor=1.0)

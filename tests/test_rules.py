"""Every sharding rule, by running its parts.

Each operator of each model is run whole on real values. Then, for every factor that its rule lets
be split, it is run on uneven parts with the local arguments, and the parts are put together: cut
along the factor, summed, or equal on all, as the rule says. And with operands that are sums of
parts, for what the rule calls linear. Of operators that are identical (sweep.case_of) the first of all
models is checked; with make test-slow all are.
"""

import json
import math
import random
import re
import sys

import pytest
import torch
from conftest import BUILD, ROOT, SLOW
from kept import EXPORTER, kept
from sweep import BATCH, COVER, SOURCES, WRITTEN, case_of, find_cover, graph_and_rules, make, model_file

sys.path[:0] = [str(ROOT / "python")]

from motley.graph import Ref  # noqa: E402
from motley.interpret import Runner, call, dtype_of, last_uses, references  # noqa: E402
from motley.model_file import read_model_file  # noqa: E402

PARTS = 3
RANDOM = {"motley::dropout", "motley::random"}  # every split of them is rewritten
EMPTY = {"aten::empty", "aten::empty_like", "aten::new_empty"}  # what they hold is nobody's
# What models have on purpose for want of a rule: each device runs it whole (tests/test_lowering.py).
WITHOUT_RULE = {"aten::linalg_inv_ex", "aten::_cdist_forward", "aten::_cdist_backward"}


def first_of_each_case():
    """By model the numbers of the operators that no operator before is like: of all models, that in half precision last,
    whose results are compared less closely."""
    seen, found = set(), {}
    for name in sorted(WRITTEN, key=lambda name: name == "bf16"):
        found[name] = []
        for i, case in cases(name):
            if case not in seen:
                found[name].append(i)
            seen.add(case)
    return found


def cases(name):
    """The operators of a model that can be checked: number and sweep.case_of."""
    graph, rules = graph_and_rules(name)
    for i, (op, rule) in enumerate(zip(graph.ops, rules, strict=True)):
        if rule is not None and op.name not in RANDOM | EMPTY:
            yield i, case_of(op, rule)


@pytest.fixture(scope="session")
def checked_operators():
    made = kept(
        [*EXPORTER, *SOURCES, BUILD / "rules_tool", ROOT / "tests/sweep.py", ROOT / "tests/test_rules.py"],
        lambda path: path.write_text(json.dumps(first_of_each_case())),
    )
    return json.loads(made.read_text())


def cut(size):
    """Sizes of three parts, at most one of them empty, and all but two empty for 1."""
    if size == 1:
        return [0, 1, 0]
    marks = sorted(random.sample(range(1, size + 1), 2)) if size > 2 else [1, 2]
    return [marks[0], marks[1] - marks[0], size - marks[1]]


class Piece:
    """A part [begin, end) of one factor's middle: outer * extent * inner indices."""

    def __init__(self, rule, factor, outer, inner, begin, end):
        self.rule, self.factor = rule, factor
        self.outer, self.inner, self.begin, self.end = outer, inner, begin, end

    def local_sizes(self):
        sizes = [factor["size"] for factor in self.rule["factors"]]
        sizes[self.factor] = self.outer * (self.end - self.begin) * self.inner
        return sizes

    def where(self, factors):
        """Dimension, and how many indices lie before and after the extent in it."""
        sizes = [factor["size"] for factor in self.rule["factors"]]
        for dim, ids in enumerate(factors):
            if self.factor in ids:
                place = ids.index(self.factor)
                before = math.prod(sizes[i] for i in ids[:place]) * self.outer
                after = math.prod(sizes[i] for i in ids[place + 1 :]) * self.inner
                return dim, before, after
        return None

    def take(self, tensor, factors):
        found = self.where(factors)
        if found is None:
            return tensor
        dim, before, after = found
        split = tensor.reshape(*tensor.shape[:dim], before, -1, after, *tensor.shape[dim + 1 :])
        part = split.narrow(dim + 1, self.begin, self.end - self.begin)
        return part.reshape(*tensor.shape[:dim], -1, *tensor.shape[dim + 1 :]).contiguous()


def join(parts, pieces, factors):
    """The whole tensor from what the pieces hold of it; None if they do not have the factor."""
    found = pieces[0].where(factors)
    if found is None:
        return None
    dim, before, after = found
    shaped = [
        part.reshape(*part.shape[:dim], before, piece.end - piece.begin, after, *part.shape[dim + 1 :])
        for part, piece in zip(parts, pieces, strict=True)
        if piece.end > piece.begin
    ]
    whole = torch.cat(shaped, dim + 1)
    return whole.reshape(*parts[0].shape[:dim], -1, *parts[0].shape[dim + 1 :])


def precise(value):
    """In double precision, so that rounding is told from errors."""
    if isinstance(value, list):
        return [precise(item) for item in value]
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    if isinstance(value, torch.Tensor):
        return value.to(wide.get(value.dtype, value.dtype))
    return wide.get(value, value) if isinstance(value, torch.dtype) else value


class Checker:
    def __init__(self, op, rule, values, runner, is_mixed):
        self.op, self.rule, self.is_mixed = op, rule, is_mixed
        keep = (lambda value: value) if is_mixed else precise
        self.operands = [keep(values[i]) for i in rule["operands"]]
        self.arguments = [keep(runner.argument(argument)) for argument in op.arguments]
        self.results = self.run(self.operands, None)
        terms = {operand: t for t, term in enumerate(rule["terms"]) for operand in term}
        self.term_of = [terms.get(i) for i in range(len(self.operands))]

    def run(self, operands, local_sizes):
        given = iter(operands)

        def fill(argument, found):
            if isinstance(argument, Ref):
                return next(given)
            if isinstance(argument, list):
                return [fill(a, f) for a, f in zip(argument, found, strict=True)]
            return found

        arguments = [fill(a, f) for a, f in zip(self.op.arguments, self.arguments, strict=True)]
        for slot in self.rule["slots"] if local_sizes else ():
            size = slot["multiple"] * math.prod(local_sizes[i] for i in slot["factors"])
            if slot["element"] < 0:
                arguments[slot["argument"]] = size
            else:
                arguments[slot["argument"]][slot["element"]] = size
        results = call(self.op.name, arguments)
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def check(self, parts, result, what):
        """The sum of parts is the whole result, to rounding errors of the parts."""
        wanted, found = self.results[result], sum(parts[1:], parts[0])
        assert found.shape == wanted.shape, self.words(what)
        if wanted.is_complex():
            parts = [torch.view_as_real(part.resolve_conj()) for part in parts]
            wanted, found = torch.view_as_real(wanted), sum(parts[1:], parts[0])
        if wanted.is_floating_point():
            found, wanted = found.double(), wanted.double()
            finite = torch.isfinite(wanted)
            assert torch.equal(found[~finite], wanted[~finite]) or not finite.any(), self.words(what)
            norms = [part.double()[finite].norm() for part in parts] + [wanted[finite].norm()]
            scale = max(norms) + 1e-3
            error = (found[finite] - wanted[finite]).norm() / scale
            assert error < (3e-2 if self.is_mixed else 1e-6), self.words(f"{what}: off by {error}")
        else:
            assert torch.equal(found, wanted), self.words(what)

    def words(self, what):
        return f"{self.op.name} %{self.op.results[0].id} {self.rule['text']}: {what}"

    def partial_operands(self, factor):
        """One operand of each term that lacks the factor although another term sums over it."""
        has = [any(factor in dim for dim in dims) for dims in self.rule["operand_factors"]]
        terms = [any(has[i] for i in term) for term in self.rule["terms"]]
        sums = any(
            not any(factor in dim for dim in dims) and [r, factor] not in self.rule["independent"]
            for r, dims in enumerate(self.rule["result_factors"])
        )
        if not sums or not any(terms):
            return set()
        return {term[0] for term, found in zip(self.rule["terms"], terms, strict=True) if not found}

    def check_split(self, factor, outer, extent, inner):
        sizes = cut(extent)
        pieces = [
            Piece(self.rule, factor, outer, inner, sum(sizes[:i]), sum(sizes[: i + 1]))
            for i in range(PARTS)
        ]
        partial = self.partial_operands(factor)
        parts = []
        for i, piece in enumerate(pieces):
            if piece.end == piece.begin:
                parts.append(None)
                continue
            operands = []
            for o, operand in enumerate(self.operands):
                local = piece.take(operand, self.rule["operand_factors"][o])
                keeps = o not in partial or all(part is None for part in parts)
                operands.append(local if keeps else torch.zeros_like(local))
            parts.append(self.run(operands, piece.local_sizes()))
        what = f"factor {factor} cut {sizes} of {outer}*{extent}*{inner}"
        live = [(part, piece) for part, piece in zip(parts, pieces, strict=True) if part is not None]
        for r, factors in enumerate(self.rule["result_factors"]):
            if self.op.results[r].dtype == "none":
                continue
            each = [part[r] for part, _ in live]
            if self.rule["factors"][factor]["split"] == "mean":
                each = [part * (piece.end - piece.begin) / extent for part, (_, piece) in zip(each, live, strict=True)]
            whole = join(each, [piece for _, piece in live], factors)
            if whole is not None:
                self.check([whole], r, what)
            elif [r, factor] in self.rule["independent"]:
                for part in each:
                    self.check([part], r, what)
            else:
                self.check(each, r, what)

    def check_splits(self, factor):
        """Whether it can be split at all."""
        if self.rule["factors"][factor]["split"] not in ("plain", "mean"):
            return False
        for outer, extent, inner in splits_of(self.rule["factors"][factor]["size"]):
            self.check_split(factor, outer, extent, inner)
        return True

    def check_linear(self):
        """One operand of each term as a sum of two parts, in every way."""
        if not self.rule["terms"]:
            return
        ways = [[]]
        for term in self.rule["terms"]:
            ways = [way + [operand] for way in ways for operand in term]
        for way in ways[:4]:
            runs = []
            noises = [noise_like(self.operands[o]) for o in way]
            if any(noise is None for noise in noises):
                continue
            for is_first in (True, False):
                operands = list(self.operands)
                for o, noise in zip(way, noises, strict=True):
                    operands[o] = noise if is_first else self.operands[o] - noise
                runs.append(self.run(operands, None))
            for r, parts in enumerate(zip(*runs, strict=True)):
                if self.op.results[r].dtype != "none":
                    self.check(parts, r, f"operands {way} partial")


def noise_like(tensor):
    """As large as the tensor itself; none for truth values, which have no sums."""
    if tensor.dtype == torch.bool:
        return None
    if tensor.is_complex():
        return torch.view_as_complex(noise_like(torch.view_as_real(tensor).contiguous()))
    if not tensor.is_floating_point():
        return torch.randint_like(tensor, 5)
    usual = torch.where(tensor.abs() < 1e30, tensor, 0)  # without infinities, and what stands for them
    return torch.randn_like(tensor) * usual.float().std(correction=0)


def splits_of(size):
    """The whole factor, and for composite ones a cut within."""
    found = [(1, size, 1)]
    for divisor in range(2, size):
        if size % divisor == 0:
            found.append((1, divisor, size // divisor))
            found.append((divisor, size // divisor, 1))
            break
    return found


@pytest.mark.parametrize("name", WRITTEN)
def test_every_part_of_every_operator(checked_operators, name):
    random.seed(0)
    graph, rules = graph_and_rules(name)
    wanted = set(range(len(rules)) if SLOW else checked_operators[name])
    (_, inputs), tensors = make(name), read_model_file(model_file(name))[1]
    is_mixed = any(value.dtype == "bf16" for op in graph.ops for value in op.results)
    runner = Runner({size: BATCH for size in graph.sizes})
    given = iter(inputs)
    for source in graph.sources:
        if source.kind == "tangent":
            tensor = torch.ones((), dtype=dtype_of(source.value))
        else:
            tensor = next(given) if source.kind == "input" else tensors[source.name]
        runner.store(source.value, tensor, source.name)
    last_use = last_uses(graph)
    checked = set()
    with torch.no_grad():
        for i, (op, rule) in enumerate(zip(graph.ops, rules, strict=True)):
            assert (rule is None) == (op.name in WITHOUT_RULE), op
            if i in wanted and rule is not None and op.name not in RANDOM | EMPTY:
                assert rule["operands"] == list(references(op.arguments))
                checker = Checker(op, rule, runner.values, runner, is_mixed)
                checker.check_linear()
                checked |= {(i, f) for f in range(len(rule["factors"])) if checker.check_splits(f)}
            runner.run(op)
            for id in last_use.get(i, ()):
                runner.values.pop(id, None)
    assert checked or not wanted


def test_every_case_is_checked(checked_operators):
    """Of whatever any model has, some model's test checks an operator, the same as in every other process."""
    checked = [case for name in WRITTEN for i, case in cases(name) if i in checked_operators[name]]
    assert len(checked) == len(set(checked))
    assert set(checked) == {case for name in WRITTEN for _, case in cases(name)}


def test_the_cover_has_every_split_of_every_operator():
    assert find_cover() == COVER


# Random by their tag, and never in an exported graph: they are taken apart, or are of other devices.
TAKEN_APART = re.compile(
    r"_?(cudnn|miopen|flash|efficient|fused|triton|scaled_dot|lstm|gru|rnn|lstm|fill_mem|nested)_?.*|scaled_dot_product_attention"
)


def test_every_random_operator_is_known_as_one():
    """What is not would be run by each of several devices with numbers of its own."""
    source = (ROOT / "motley/graph/draws.cc").read_text()
    known = set(re.findall(r'"(\w+)"', source[source.index("kRandom") : source.index("static_assert")]))
    tagged = set()
    for full in torch._C._dispatch_get_all_op_names():
        space, name = full.split("::")
        base, _, overload = name.partition(".")
        if space == "aten" and hasattr(torch.ops.aten, base):
            packet = getattr(torch.ops.aten, base)
            if overload in packet.overloads() and torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags:
                tagged.add(base)
            elif not overload and torch.Tag.nondeterministic_seeded in getattr(packet, "default").tags:
                tagged.add(base)
    assert "bernoulli" in tagged
    assert {name for name in tagged if name.removesuffix("_") not in known and not TAKEN_APART.fullmatch(name)} == set()

"""The models of the sweeps over lowered programs and sharding rules, exported once for all tests (kept.py)."""

import json
import subprocess
import sys
from functools import cache, partial

import torch
from conftest import BUILD, EXAMPLES, ROOT, SLOW, sampled

sys.path[:0] = [str(ROOT / "python"), str(EXAMPLES)]

import families  # noqa: E402
import lowering_models  # noqa: E402
import motley.ctc  # noqa: E402, F401 (what a kept model is run with, an operator of the exporter's)
from kept import kept_model  # noqa: E402
from motley.graph import Number, Ref, Size  # noqa: E402
from motley.model_file import read_model_file  # noqa: E402
from motley.parse import parse_graph  # noqa: E402
from random_models import draw_model  # noqa: E402

BATCH = lowering_models.BATCH
FAMILIES = {family.__name__: family for family in families.FAMILIES}
WRITTEN = FAMILIES | {model.__name__: model for model in lowering_models.MODELS}
DRAWN = {f"drawn_{seed}": partial(draw_model, seed, BATCH) for seed in range(40 if SLOW else 6)}
MODELS = WRITTEN | DRAWN


SOURCES = [EXAMPLES / "families.py", ROOT / "tests/lowering_models.py", ROOT / "tests/random_models.py"]


def make(name):
    """(module, inputs), always the same."""
    torch.manual_seed(0)
    return MODELS[name]()


def model_file(name):
    return kept_model(name, MODELS[name], *(SOURCES[:1] if name in FAMILIES else SOURCES[1:])) / f"{name}.motley"


@cache
def graph_and_rules(name):
    """The graph of a model, and of each operator its sharding rule as JSON, None without one."""
    path = model_file(name)
    done = subprocess.run([BUILD / "rules_tool", path, str(BATCH)], capture_output=True, text=True, check=True)
    return parse_graph(read_model_file(path)[0]), [json.loads(line) for line in done.stdout.splitlines()]


def case_of(op, rule):
    """What two operators have in common of which one proves what the other does: operator, types, arguments but for values and
    sizes that follow from factors, all of the rule but the sizes of its factors, and of these whether they can be cut, and cut within."""
    slots = {(slot["argument"], slot["element"]) for slot in rule["slots"]}

    def literal(argument, place):
        if isinstance(argument, list):
            return [literal(each, (place[0], i)) for i, each in enumerate(argument)]
        if isinstance(argument, Ref | Size | Number) or place in slots:
            return type(argument).__name__
        return repr(argument)

    arguments = [literal(argument, (i, -1)) for i, argument in enumerate(op.arguments)]
    factors = [(factor["split"], _divisibility(factor["size"])) for factor in rule["factors"]]
    of_rule = {key: value for key, value in rule.items() if key not in ("factors", "operands")}
    return json.dumps([op.name, [value.dtype for value in op.results], arguments, factors, of_rule])


def _divisibility(size):
    return "one" if size == 1 else "composite" if any(size % divisor == 0 for divisor in range(2, size)) else "prime"


def pairs_of(name):
    """The ways in which a model's operators can be split: operator, how it is split along a factor, and where this factor lies in each
    operand and result: a dimension of its own, the outermost, innermost or another one of several, or nowhere."""
    graph, rules = graph_and_rules(name)
    return {
        (op.name, factor["split"], *(_place(f, tensor) for tensor in rule["operand_factors"] + rule["result_factors"]))
        for op, rule in zip(graph.ops, rules, strict=True)
        for f, factor in enumerate(rule["factors"] if rule else ())
    }


def _place(factor, dims):
    for factors in dims:
        if factor in factors:
            i = factors.index(factor)
            return "own" if len(factors) == 1 else "first" if i == 0 else "last" if i == len(factors) - 1 else "inner"
    return None


def find_cover():
    """Few models that together have every pair of all: that which adds most, again and again; then those go without which none is missing."""
    pairs = {name: pairs_of(name) for name in WRITTEN}
    left, cover = set.union(*pairs.values()), []
    while left:
        cover.append(max(pairs, key=lambda name: len(pairs[name] & left)))
        left -= pairs[cover[-1]]
    for name in list(cover):
        others = [pairs[each] for each in cover if each != name]
        if set.union(*others) >= pairs[name]:
            cover.remove(name)
    return sorted(cover, key=list(WRITTEN).index)


# What find_cover() finds; test_rules.py compares.
COVER = [
    "cnn", "bert", "lstm", "vit", "llama", "recommender", "windows", "volumes", "more_losses", "spectra", "bags", "row_numbers",
    "without_rules", "resampling", "selections", "norms", "weighted_pixels", "weighted_labels", "pixel_sums", "losses", "sum_losses",
    "batch_norms", "normed_sums", "normed_mask", "normalized_rows", "empty_cache", "recurrent_dropout", "attention_dropout",
    "transcripts", "noises", "drawn_masks", "two_views", "indexing", "reductions", "products", "attention_by_hand",
]  # fmt: skip


def covering(turn=0):
    """Models that have every pair, and every third of the others; all with make test-slow."""
    return COVER + sampled([name for name in MODELS if name not in COVER], turn)

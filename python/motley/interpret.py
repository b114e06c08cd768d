"""Runs the text form of a graph with PyTorch, operator by operator.

The reference for what the text means: sizes are evaluated at the batch, the views run as
`reshape`, attention as the fused CPU operator pair. Every result is compared with its declared
type, so a wrong shape is found where it arises.
"""

from __future__ import annotations

import logging
import time

import torch

from motley.draws import Numbers
from motley.graph import (
    DTYPES,
    MEMORY_FORMATS,
    Argument,
    Graph,
    Keyword,
    Number,
    Op,
    Ref,
    Size,
    Value,
)

log = logging.getLogger("motley.export")
aten = torch.ops.aten
PATIENCE = 10  # seconds without a word
_DTYPE_OF = {name: dtype for dtype, name in DTYPES.items()}
_FORMAT_OF = {name: memory_format for memory_format, name in MEMORY_FORMATS.items()}


def dtype_of(value: Value) -> torch.dtype:
    return _DTYPE_OF[value.dtype]


class InterpretError(Exception):
    """The text does not describe what its operators do."""


def evaluate_size(text: str, sizes: dict[str, int]) -> int | float:
    """Value of a size expression, whose grammar is a part of Python's."""
    if text.isdigit():
        return int(text)
    return eval(text, {"__builtins__": {}, "max": max, "min": min}, dict(sizes))


def run_graph(
    graph: Graph, tensors: dict[str, torch.Tensor], inputs, batch: int, seed: int = 0
) -> dict[int, torch.Tensor]:
    """Values of the graph's outputs, by value id.

    `tensors` holds parameters, buffers and constants by name, `inputs` is in the graph's order,
    `seed` is that of the random numbers (draws.py).
    """
    runner = Runner({name: batch for name in graph.sizes}, seed)
    given = iter(inputs)
    for source in graph.sources:
        if source.kind == "tangent":
            tensor = torch.ones((), dtype=dtype_of(source.value))
        else:
            tensor = next(given) if source.kind == "input" else tensors[source.name]
        runner.store(source.value, tensor, f'{source.kind} "{source.name}"')
    last_use = last_uses(graph)
    said = time.monotonic()
    with torch.no_grad():
        for i, op in enumerate(graph.ops):
            if time.monotonic() > said + PATIENCE:
                log.info("%d of %d operators run", i, len(graph.ops))
                said = time.monotonic()
            runner.run(op)
            for id in last_use.get(i, ()):
                runner.values.pop(id, None)
    return {output.value: runner.values[output.value] for output in graph.outputs}


def last_uses(graph: Graph) -> dict[int, list[int]]:
    """Values that nothing needs after an operator, by its position."""
    last = {}
    for i, op in enumerate(graph.ops):
        for id in [value.id for value in op.results] + list(references(op.arguments)):
            last[id] = i
    for output in graph.outputs:
        last.pop(output.value, None)
    freed: dict[int, list[int]] = {}
    for id, i in last.items():
        freed.setdefault(i, []).append(id)
    return freed


def references(argument: Argument):
    if isinstance(argument, Ref):
        yield argument.id
    elif isinstance(argument, list):
        for item in argument:
            yield from references(item)


class Runner:
    def __init__(self, sizes: dict[str, int], seed: int = 0):
        self.sizes = sizes
        numbers = Numbers(seed)
        self.drawn = {"motley::random": numbers.random, "motley::dropout": numbers.dropout}
        self.values: dict[int, torch.Tensor] = {}

    def run(self, op: Op) -> None:
        arguments = [self.argument(item) for item in op.arguments]
        results = (
            self.drawn[op.name](*arguments) if op.name in self.drawn else call(op.name, arguments)
        )
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        if len(results) != len(op.results):
            found = f"found {len(results)} results, declared {len(op.results)}"
            raise InterpretError(f"{op.name} (%{op.results[0].id}): {found}")
        for value, tensor in zip(op.results, results, strict=True):
            self.store(value, tensor, op.name)

    def store(self, value: Value, tensor: torch.Tensor | None, where: str) -> None:
        if value.dtype == "none":
            return
        shape = [evaluate_size(size, self.sizes) for size in value.shape]
        if tensor is None or list(tensor.shape) != shape or DTYPES.get(tensor.dtype) != value.dtype:
            found = "nothing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
            raise InterpretError(f"{where} (%{value.id}): found {found}, declared {value.type}")
        self.values[value.id] = tensor

    def argument(self, argument: Argument):
        if isinstance(argument, Ref):
            return self.values[argument.id]
        if isinstance(argument, list):
            return [self.argument(item) for item in argument]
        if isinstance(argument, (Size, Number)):
            return evaluate_size(argument.text, self.sizes)
        if isinstance(argument, Keyword):
            return keyword(argument)
        return argument


def keyword(argument: Keyword):
    if argument.kind == "dtype":
        return _DTYPE_OF[argument.word]
    if argument.kind == "memory_format":
        return _FORMAT_OF[argument.word]
    return torch.device("cpu") if argument.kind == "device" else torch.strided


def call(name: str, arguments: list):
    """Calls an operator with the arguments of its schema, by position."""
    if name == "motley::attention":
        query, key, value, mask, dropout, causal, scale = arguments
        return aten._scaled_dot_product_flash_attention_for_cpu.default(
            query, key, value, dropout, causal, attn_mask=mask, scale=scale
        )
    if name == "motley::attention_backward":
        *tensors, mask, dropout, causal, scale = arguments
        return aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
            *tensors, dropout, causal, attn_mask=mask, scale=scale
        )
    operator = aten.reshape.default if name == "aten::view" else find_operator(name)
    positional, named = [], {}
    for spec, argument in zip(operator._schema.arguments, arguments, strict=True):
        if spec.kwarg_only:
            named[spec.name] = argument
        else:
            positional.append(argument)
    return operator(*positional, **named)


def find_operator(name: str) -> torch._ops.OpOverload:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")

"""Compares a model file with the model it came from.

The file's own text and tensors are run at batch sizes other than the captured one and compared
with eager PyTorch: the loss, every gradient, every buffer. Where they differ by more than single
precision usually makes of it, what rounding does to eager PyTorch itself is measured: deep nets
with batch norm over few values amplify the last bit a thousandfold.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import torch

from motley.capture import evaluating, portable
from motley.draws import DrawnEagerly
from motley.errors import refuse
from motley.graph import Graph
from motley.interpret import InterpretError, run_graph
from motley.rounding import with_last_bits_changed
from motley.step import Step, copy_step

log = logging.getLogger("motley.export")

# Difference allowed, relative to the tensor's norm. Where a step computes in bf16 or f16, a sum
# taken in another order already differs by more than single precision would.
TOLERANCE = 1e-5
TOLERANCE_HALF = 1e-2
# A gradient below this part of the norm of all gradients together is rounding noise, such as that
# of a bias in front of BatchNorm; it is compared on this scale instead of its own.
NOISE = 1e-3
ATTEMPTS = 4
SMALL = (1, 2, 3, 4)  # batch sizes of which the first that can be is compared
# A tensor may differ by this many times what changes of the weights' last bits make of it in eager
# PyTorch, the most of so many changes.
AMPLIFIED = 10
CHANGES = 3
MANY = "ten times what a change of the last bit of every weight does to eager PyTorch"
# Where such a change alters most tensors by more than this, a comparison says nothing.
UNSTEADY = 1e-2


@dataclass
class SelfCheck:
    """Batch sizes that were checked, and the worst relative difference of each kind of tensor."""

    batches: list[int] = field(default_factory=list)
    tolerance: float = TOLERANCE
    worst: dict[str, float] = field(
        default_factory=lambda: {"loss": 0.0, "gradient": 0.0, "buffer": 0.0}
    )
    notes: list[str] = field(default_factory=list)


Key = tuple[str, str]  # kind of a tensor and name


@dataclass
class Difference:
    """Of one tensor: relative, and what was found in the graph, maybe nothing, and in eager."""

    value: float
    found: torch.Tensor | None
    wanted: torch.Tensor


class EagerError(Exception):
    """The model itself fails on these inputs."""


class Unsteady(Exception):
    """Rounding decides what the model gives for these inputs."""


def check(graph: Graph, tensors, step: Step, inputs, batches: tuple[int, int]) -> SelfCheck:
    """Refuses a graph that differs from `step` at the second of `batches` or at batch 1.

    The first of `batches` is the captured one. Where the model itself fails at batch 1, or rounding
    decides what it gives, a batch of 2, 3 or 4 takes its place.
    """
    captured, other = batches
    result = SelfCheck(tolerance=tolerance_of(graph))
    model = (graph, tensors, step, inputs)
    for batch in SMALL:
        if batch not in batches and batch >= graph.sizes["batch"][0]:
            why = check_batch(model, batch, result)
            if not why:
                break
            result.notes.append(f"batch {batch} is not checked: {why}")
    if not result.batches:
        refuse_to_compare("batch 1 to 4", why)
    why = check_batch(model, other, result)
    if why:
        refuse_to_compare(f"batch {other}", why)
    return result


def refuse_to_compare(where: str, found: str) -> NoReturn:
    advice = "example inputs that resemble real ones"
    wanted = "a finite loss that rounding does not decide"
    refuse("the model cannot be compared with eager PyTorch", where, found, wanted, advice)


def tolerance_of(graph: Graph) -> float:
    half = any(value.dtype in ("bf16", "f16") for op in graph.ops for value in op.results)
    return TOLERANCE_HALF if half else TOLERANCE


def check_batch(model, batch: int, result: SelfCheck) -> str:
    """Compares at one batch size. Says why not where no inputs drawn are fit for that."""
    graph, tensors, step, inputs = model
    why = ""
    log.info("checking against eager PyTorch at batch %d", batch)
    for attempt in range(ATTEMPTS):
        draw = random_inputs if attempt < ATTEMPTS - 1 else resampled_inputs
        generator = torch.Generator().manual_seed(1000 * batch + attempt)
        drawn = [draw(value, batch, generator) for value in inputs]
        try:
            with portable():
                expected = run_eager(step, drawn, seed=batch)
                values = run_exported(graph, tensors, drawn, batch)
                differences = compare(graph, values, expected)
                judge(differences, partial(rounding, step, drawn, expected), batch, result)
        except (EagerError, Unsteady) as error:
            why = why or str(error)
            continue
        result.batches.append(batch)
        return ""
    return why


def check_evaluation(graph: Graph, tensors, step: Step, inputs, batch: int) -> None:
    """Refuses a graph that evaluates otherwise than `step` in eval mode: its loss and metrics."""
    tolerance = tolerance_of(graph)
    for attempt in range(ATTEMPTS):  # a metric that counts may turn on a tie
        generator = torch.Generator().manual_seed(attempt)
        draw = random_inputs if attempt < ATTEMPTS - 1 else resampled_inputs
        drawn = [draw(value, batch, generator) for value in inputs]
        try:
            with portable(), evaluating(step.module), torch.no_grad(), DrawnEagerly():
                torch.manual_seed(batch)
                wanted = step(*drawn)
        except Exception as error:  # of the user's code, where the inputs drawn are not fit
            if attempt == ATTEMPTS - 1:
                first = str(error).splitlines()[0]
                refuse_to_compare(f"batch {batch} in eval mode", f"{type(error).__name__}: {first}")
            continue
        found = run_exported(graph, tensors, drawn, batch)
        named = zip(step.result.names, wanted[1:], strict=True)
        expected = {name: value.double() for name, value in named if not value.is_complex()}
        expected[""] = wanted[0].double()
        pairs = [(item.name, found[item.value].double()) for item in graph.outputs]
        unequal = [
            (name, value)
            for name, value in pairs
            if not torch.allclose(value, expected[name], tolerance, 1e-6, equal_nan=True)
        ]
        if not unequal:
            return
    name, value = unequal[0]
    where = f'metric "{name}" in eval mode' if name else "the loss in eval mode"
    wanted = f"{expected[name].item():.9g}, as eager PyTorch gives at batch {batch}"
    refuse(
        "the exported graph differs", where, f"{value.item():.9g}", wanted, "python -m motley.export"
    )


def run_exported(graph: Graph, tensors, inputs, batch: int) -> dict[int, torch.Tensor]:
    """Values of the graph's outputs. The random numbers are those of `run_eager` at this batch."""
    try:
        return run_graph(graph, tensors, inputs, batch, seed=batch)
    except (InterpretError, RuntimeError) as error:
        refuse_to_run(error, batch)


def refuse_to_run(error: Exception, batch: int) -> NoReturn:
    found, wanted = str(error).splitlines()[0], "the operators to run as declared"
    refuse("the exported graph does not run", f"batch {batch}", found, wanted, "another batch size")


def random_inputs(example: torch.Tensor, batch: int, generator: torch.Generator) -> torch.Tensor:
    """Numbers of the example's kind: in its range, or drawn from its values if they are integers.

    Masks, and numbers that are not all finite, keep their rows, whose pattern may matter.
    """
    shape = (batch, *example.shape[1:])
    if example.is_floating_point() and bool(torch.isfinite(example).all()):
        low, high = example.double().min(), example.double().max()
        return (low + (high - low) * torch.rand(shape, generator=generator)).to(example.dtype)
    if example.is_floating_point() or example.dtype == torch.bool:
        return resampled_inputs(example, batch, generator)
    return example.flatten()[torch.randint(example.numel(), shape, generator=generator)]


def resampled_inputs(example: torch.Tensor, batch: int, generator: torch.Generator) -> torch.Tensor:
    """Rows of the example in a random order."""
    return example[torch.randint(example.shape[0], (batch,), generator=generator)]


def run_eager(step: Step, inputs, seed: int) -> dict[tuple[str, str], torch.Tensor]:
    """Loss, gradients and buffers of a step, by kind and name. The module stays as it is."""
    step = copy_step(step)
    module = step.module
    torch.manual_seed(seed)
    try:
        with DrawnEagerly():
            loss = step(*inputs)[0]
            loss.backward()
    except Exception as error:  # whatever the user's code raises
        raise EagerError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    if not torch.isfinite(loss):
        raise EagerError(f"loss {loss.item()}")
    found = {("loss", ""): loss.detach()}
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            if parameter.grad.layout is not torch.strided:
                layout = str(parameter.grad.layout)
                where = f'gradient of "{name}"'
                refuse(
                    "sparse gradients are not supported",
                    where,
                    layout,
                    "a dense tensor",
                    "sparse=False",
                )
            found["gradient", name] = parameter.grad
    found.update({("buffer", name): buffer for name, buffer in module.named_buffers()})
    return found


def compare(graph: Graph, values: dict[int, torch.Tensor], expected) -> dict[Key, Difference]:
    """All that eager PyTorch computed beside the graph's outputs."""
    kinds = {"loss": "loss", "gradient": "gradient", "update": "buffer"}
    found = {
        (kinds[output.kind], output.of): values[output.value]
        for output in graph.outputs
        if output.kind in kinds
    }
    floor = noise_floor(expected)
    updated = {output.of for output in graph.outputs if output.kind == "update"}
    differences = {}
    for key, tensor in expected.items():
        kind, name = key
        if kind == "buffer" and name not in updated:
            continue
        if key in found:
            scale = floor if kind == "gradient" else 0.0
            value = relative_difference(found[key], tensor, scale)
            differences[key] = Difference(value, found[key], tensor)
        elif norm(tensor) != 0:  # else a parameter without influence
            differences[key] = Difference(math.inf, None, tensor)
    return differences


def judge(differences: dict[Key, Difference], changes, batch: int, result: SelfCheck) -> None:
    """Refuses differences beyond the tolerance that rounding does not explain.

    `changes()`: what changes of the weights' last bits make of each tensor in eager PyTorch.
    """
    beyond = {key for key, each in differences.items() if not each.value <= result.tolerance}
    changed = changes() if beyond else {}
    if sum(value > UNSTEADY for value in changed.values()) * 2 > len(changed) > 0:
        raise Unsteady("a change of the last bit of every weight changes most results")
    for key, each in differences.items():
        limit = AMPLIFIED * changed.get(key, 0.0)
        if key not in beyond:
            result.worst[key[0]] = max(result.worst[key[0]], each.value)
        elif not each.value <= limit:
            refuse_difference(words(key, batch), each, max(limit, result.tolerance), result)
    if beyond:
        key = max(beyond, key=lambda key: differences[key].value)
        result.notes.append(
            f"{words(key, batch)} differs by {differences[key].value:.2g}, less than {MANY} "
            f"({AMPLIFIED * changed[key]:.2g}); so do {len(beyond) - 1} more tensors"
        )


def rounding(step: Step, inputs, expected) -> dict[Key, float]:
    """The largest relative difference that changes of the weights' last bits make, by tensor."""
    floor = noise_floor(expected)
    worst = dict.fromkeys(expected, 0.0)
    for seed in range(CHANGES):
        changed = run_eager(with_last_bits_changed(step, seed), inputs, seed=len(inputs[0]))
        for key, tensor in expected.items():
            scale = floor if key[0] == "gradient" else 0.0
            worst[key] = max(worst[key], relative_difference(changed[key], tensor, scale))
    return worst


def words(key: Key, batch: int) -> str:
    kind, name = key
    return f'{kind} "{name}" at batch {batch}' if name else f"{kind} at batch {batch}"


def refuse_difference(where: str, each: Difference, limit: float, result: SelfCheck) -> NoReturn:
    eager = describe(each.wanted)
    if each.found is None:
        found, wanted = "no output in the graph", eager
    else:
        found = f"{describe(each.found)} in the graph and {eager} in eager PyTorch "
        found += f"(relative difference {each.value:.3g})"
        wanted = f"a relative difference of {limit:.2g} at most"
    if limit > result.tolerance:
        wanted += f", {MANY}"
    advice = "other operators for what it is computed from"
    refuse("the exported graph differs from the model", where, found, wanted, advice)


def noise_floor(expected) -> float:
    gradients = [norm(tensor) for (kind, _), tensor in expected.items() if kind == "gradient"]
    return NOISE * math.sqrt(sum(value**2 for value in gradients))


def norm(tensor: torch.Tensor) -> float:
    """In double precision, without a copy in it."""
    floating = tensor if tensor.is_floating_point() else tensor.double()
    return float(torch.linalg.vector_norm(floating, dtype=torch.float64))


def relative_difference(found: torch.Tensor, wanted: torch.Tensor, floor: float) -> float:
    if found.shape != wanted.shape:
        return math.inf
    if found.dtype == wanted.dtype and torch.equal(found, wanted):
        return 0.0
    scale = max(norm(wanted), floor)
    return norm(found.double() - wanted.double()) / scale if scale else math.inf


def describe(tensor: torch.Tensor) -> str:
    """The value of a scalar, the norm of anything larger."""
    return f"{tensor.item():.8g}" if tensor.dim() == 0 else f"norm {norm(tensor):.8g}"

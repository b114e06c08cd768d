"""Compares a model file with the model it came from.

The file's own text and tensors are run at batch sizes other than the captured one and compared
with eager PyTorch: the loss, every gradient, every buffer.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NoReturn

import torch

from motley.capture import portable
from motley.errors import refuse
from motley.graph import Graph
from motley.interpret import InterpretError, run_graph
from motley.step import Step

# Difference allowed, relative to the tensor's norm. Where a step computes in bf16 or f16, a sum
# taken in another order already differs by more than single precision would.
TOLERANCE = 1e-5
TOLERANCE_HALF = 1e-2
# A gradient below this part of the norm of all gradients together is rounding noise, such as that
# of a bias in front of BatchNorm; it is compared on this scale instead of its own.
NOISE = 1e-3
ATTEMPTS = 4


@dataclass
class SelfCheck:
    """Batch sizes that were checked, and the worst relative difference of each kind of tensor."""

    batches: list[int] = field(default_factory=list)
    tolerance: float = TOLERANCE
    worst: dict[str, float] = field(
        default_factory=lambda: {"loss": 0.0, "gradient": 0.0, "buffer": 0.0}
    )
    notes: list[str] = field(default_factory=list)


class EagerError(Exception):
    """The model itself fails on these inputs."""


def check(graph: Graph, tensors, step: Step, inputs, batches: tuple[int, int]) -> SelfCheck:
    """Refuses a graph that differs from `step` at the second of `batches` or at batch 1.

    The first of `batches` is the captured one. Where the model itself fails at batch 1, a batch of
    2 or 3 takes its place.
    """
    captured, other = batches
    result = SelfCheck(tolerance=tolerance_of(graph))
    small = [size for size in (1, 2, 3) if size not in batches]
    small = [size for size in small if size >= graph.sizes["batch"][0]]
    if not any(check_batch(graph, tensors, step, inputs, batch, result) for batch in small):
        refuse_to_compare("batch 1, 2 or 3")
    if result.batches[0] != 1 and 1 not in batches:
        result.notes.append(f"the model fails at batch 1; checked at {result.batches[0]} instead")
    if not check_batch(graph, tensors, step, inputs, other, result):
        refuse_to_compare(f"batch {other}")
    return result


def refuse_to_compare(where: str) -> NoReturn:
    found = "an error or a loss that is not finite"
    advice = "example inputs that resemble real ones"
    refuse("the model fails in eager PyTorch", where, found, "a finite loss", advice)


def tolerance_of(graph: Graph) -> float:
    half = any(value.dtype in ("bf16", "f16") for op in graph.ops for value in op.results)
    return TOLERANCE_HALF if half else TOLERANCE


def check_batch(graph: Graph, tensors, step: Step, inputs, batch: int, result: SelfCheck) -> bool:
    """Compares at one batch size. False where the eager model gives no finite loss there."""
    for attempt in range(ATTEMPTS):
        draw = random_inputs if attempt < ATTEMPTS - 1 else resampled_inputs
        generator = torch.Generator().manual_seed(1000 * batch + attempt)
        drawn = [draw(value, batch, generator) for value in inputs]
        try:
            with portable():  # oneDNN's recurrent layers draw dropout in another order
                expected = run_eager(step, drawn, seed=batch)
                values = run_exported(graph, tensors, drawn, batch)
        except EagerError:
            continue
        compare(graph, values, expected, batch, result)
        result.batches.append(batch)
        return True
    return False


def run_exported(graph: Graph, tensors, inputs, batch: int) -> dict[int, torch.Tensor]:
    """Values of the graph's outputs. The random numbers are those of `run_eager` at this batch."""
    torch.manual_seed(batch)
    try:
        return run_graph(graph, tensors, inputs, batch)
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
    step = copy.deepcopy(step)
    module = step.module
    module.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    try:
        loss = step(*inputs)[0]
        loss.backward()
    except Exception as error:  # whatever the user's code raises
        raise EagerError(str(error)) from error
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


def compare(
    graph: Graph, values: dict[int, torch.Tensor], expected, batch: int, result: SelfCheck
) -> None:
    """Compares all that eager PyTorch computed with the graph's outputs."""
    kinds = {"loss": "loss", "gradient": "gradient", "update": "buffer"}
    found = {
        (kinds[output.kind], output.of): values[output.value]
        for output in graph.outputs
        if output.kind in kinds
    }
    gradients = [norm(tensor) for (kind, _), tensor in expected.items() if kind == "gradient"]
    floor = NOISE * sum(value**2 for value in gradients) ** 0.5
    updated = {output.of for output in graph.outputs if output.kind == "update"}
    for (kind, name), tensor in expected.items():
        if kind == "buffer" and name not in updated:
            continue
        where = f'{kind} "{name}" at batch {batch}' if name else f"{kind} at batch {batch}"
        if (kind, name) not in found:
            if norm(tensor) == 0:
                continue  # a parameter without influence
            refuse_difference(where, "no output in the graph", describe(tensor))
        difference = relative_difference(
            found[kind, name], tensor, floor if kind == "gradient" else 0.0
        )
        result.worst[kind] = max(result.worst[kind], difference)
        if not difference <= result.tolerance:
            graph_value, eager_value = describe(found[kind, name]), describe(tensor)
            refuse_difference(
                where,
                f"{graph_value} in the graph and {eager_value} in eager PyTorch "
                f"(relative difference {difference:.3g})",
                f"a relative difference of {result.tolerance:g} at most",
            )


def refuse_difference(where: str, found: str, wanted: str) -> NoReturn:
    advice = "other operators for what it is computed from"
    refuse("the exported graph differs from the model", where, found, wanted, advice)


def norm(tensor: torch.Tensor) -> float:
    return float(tensor.double().norm())


def relative_difference(found: torch.Tensor, wanted: torch.Tensor, floor: float) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    difference = norm(found.double() - wanted.double())
    return difference / max(norm(wanted), floor) if difference else 0.0


def describe(tensor: torch.Tensor) -> str:
    """The value of a scalar, the norm of anything larger."""
    return f"{tensor.item():.8g}" if tensor.dim() == 0 else f"norm {norm(tensor):.8g}"

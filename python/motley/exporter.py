"""`motley.export`: from a PyTorch module to a model file that was checked."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from motley.cache import Cache, Found, find_key
from motley.capture import Traced, capture, capture_evaluation, trace, trace_evaluation
from motley.emit import emit
from motley.errors import refuse
from motley.graph import Graph, print_graph
from motley.interpret import InterpretError, dtype_of, evaluate_size, run_graph
from motley.model_file import (
    read_evaluation,
    read_model_file,
    stored_tensors,
    write_model_file,
)
from motley.parse import parse_graph
from motley.selfcheck import SelfCheck, check, check_evaluation, refuse_to_run
from motley.step import Step, make_step

log = logging.getLogger("motley.export")


@dataclass
class Exported:
    """What an export wrote. `check` is none for a graph-only file."""

    path: str
    inputs: dict[str, str]  # type of every input, by name
    shared: list[str]  # names of tensors that all samples share: constants of the file
    outputs: list[str]  # names of what forward returns beside the loss; "" without one
    operators: int
    parameters: int  # tensors, tied ones counted once
    parameter_elements: int
    bytes: int
    check: SelfCheck | None
    is_cached: bool  # graph and check are those of an earlier export of the same model


def export(
    module: nn.Module,
    inputs,
    path,
    *,
    batch_dims=None,
    graph_only=False,
    verify_batch=None,
    name=None,
    cache: Cache | None = None,
    source="",
) -> Exported:
    """Writes a model file of one training step of `module`.

    `module(*inputs)`, or `module(**inputs)` of a dict, gives the scalar loss: alone, in front of a
    tuple, or as the item or field `loss`. Dimension 0 of every tensor among the inputs is the
    batch, but for those whose dimension `batch_dims` has by name: `{"tokens": 1, "mask": None}`,
    none for what all samples share. The file is compared with eager PyTorch at batch 1 and at
    `verify_batch` (default: 3, or 5 where the example has 3), and refused with ExportError where
    they differ; then nothing is written. With `graph_only` the file holds no weights, and neither
    need the module: build it on the meta device or under
    `FakeTensorMode(allow_non_fake_inputs=True)`. A `cache` of an earlier export of the same model
    spares the graph and the checks. `source` is kept in the file: the words of the command line
    that make the module, for `motley verify --against eager`.
    """
    target = check_target(path)
    step, examples = make_step(module, inputs, batch_dims, graph_only=graph_only)
    traced, evaluated = trace(step, examples), trace_evaluation(step, examples)
    name = name or type(module).__name__
    key = cache and find_key((traced, evaluated), step, examples, (name, graph_only, verify_batch))
    known = cache.find(key) if cache else None
    if known:
        log.info("the same model as before: graph and self-check are those of the cache")
        graph, constants, evaluation = parse_graph(known.text), known.constants, known.evaluation
    else:
        captured = capture(step, traced, fake_weights=graph_only and is_fake(step))
        graph, constants = emit(captured, name)
        evaluation = export_evaluation(step, evaluated, graph, constants)
    text = print_graph(graph)
    tensors = {} if graph_only else stored_tensors(step.module, graph, constants)
    temporary = f"{target}.{os.getpid()}.partial"
    log.info("writing %d operators", len(graph.ops))
    try:
        write(temporary, text, tensors, evaluation, source)
        result = known.check if known else None
        if not known:
            batches = (traced.batch, verify_batch or (3 if traced.batch != 3 else 5))
            result = check_file(temporary, None if graph_only else step, examples, batches)
        os.replace(temporary, target)
        log.info("done")
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    if cache and not known:
        cache.keep(key, Found(text, evaluation, {} if graph_only else constants, result))
    return summary(target, graph, step, result, is_cached=known is not None)


def check_file(path: str, step: Step | None, examples, batches) -> SelfCheck | None:
    """Refuses a file that does not do what the step does. Without a step: whose shapes are wrong."""
    text, tensors = read_model_file(path)
    graph = parse_graph(text)
    evaluated = parse_graph(read_evaluation(path))
    if step is None:
        check_shapes(evaluated, batches[1])
        return check_shapes(graph, batches[1])
    result = check(graph, tensors, step, examples, batches)
    check_evaluation(evaluated, tensors, step, examples, batches[1])
    return result


def export_evaluation(step: Step, traced: Traced, graph: Graph, constants) -> str:
    """The text of the graph that evaluates. Its further constants are added to `constants`; what
    only it reads of the module is a constant, too."""
    captured = capture_evaluation(step, traced, fake_weights=is_fake(step))
    evaluated, more = emit(captured, graph.name, evaluates=True, known=constants)
    constants.update(more)
    return print_graph(evaluated)


def check_target(path) -> str:
    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        found = f'no folder "{folder}"'
        refuse("the model file cannot be written", target, found, "a folder that exists", "mkdir")
    if os.path.isdir(target):
        refuse(
            "the model file cannot be written",
            target,
            "a folder",
            "a file name",
            f"{target}.motley",
        )
    return target


def is_fake(module: nn.Module) -> bool:
    return any(isinstance(parameter, FakeTensor) for parameter in module.parameters())


def write(path: str, *content) -> None:
    """`content` as of write_model_file."""
    try:
        write_model_file(path, *content)
    except Exception as error:  # safetensors wraps the system's errors in a type of its own
        folder = os.path.dirname(path) or "."
        found, wanted = str(error).split(" at path")[0], "room and permission to write"
        refuse("the model file cannot be written", folder, found, wanted, "another folder")


def check_shapes(graph: Graph, verify_batch: int) -> None:
    """Runs a graph without numbers: every operator exists and gives the declared types."""
    smallest = graph.sizes["batch"][0]
    for batch in (smallest, verify_batch):
        log.info("checking shapes at batch %d", batch)
        with FakeTensorMode():
            sources = [source for source in graph.sources if source.kind != "tangent"]
            made = {source.name: empty_value(source.value, batch) for source in sources}
            given = [made.pop(source.name) for source in graph.of_kind("input")]
            try:
                run_graph(graph, made, given, batch)
            except (InterpretError, RuntimeError) as error:
                refuse_to_run(error, batch)


def empty_value(value, batch: int) -> torch.Tensor:
    shape = [evaluate_size(size, {"batch": batch}) for size in value.shape]
    return torch.empty(shape, dtype=dtype_of(value))


def summary(
    path: str, graph: Graph, step: Step, result: SelfCheck | None, *, is_cached: bool
) -> Exported:
    parameters = list(step.module.parameters())
    return Exported(
        path=path,
        inputs={source.name: source.value.type for source in graph.of_kind("input")},
        shared=list(step.shared.values()),
        outputs=[output.name for output in graph.outputs if output.kind == "extra"],
        operators=len(graph.ops),
        parameters=len(parameters),
        parameter_elements=sum(parameter.numel() for parameter in parameters),
        bytes=os.path.getsize(path),
        check=result,
        is_cached=is_cached,
    )

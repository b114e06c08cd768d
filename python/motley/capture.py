"""Captures one training step, forward and backward, as a joint FX graph.

Route: `torch.export` with a dynamic batch, then `aot_export_joint_with_descriptors` over the
exported module. Placeholders and outputs of the result carry descriptors that say which
parameter, buffer, input or gradient they are.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import logging
import re
import traceback
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from motley.draws import NumberedDraws, decompositions, keep_draws
from motley.errors import AS_PARTS, ExportError, refuse, refuse_complex
from motley.functions import OwnFunctions, averaged_norms
from motley.step import MODULE, Step

log = logging.getLogger("motley.export")

MAX_BATCH = 65536


@dataclass
class Captured:
    """A joint graph, and what is needed to name its placeholders."""

    graph_module: torch.fx.GraphModule
    batch: int  # of the example inputs
    min_batch: int
    symbol: str  # PyTorch's name of the batch size
    inputs: list[str]  # names, in order
    outputs: list[str]  # names of what forward returns beside the loss, in order
    shared: dict[str, str]  # buffer that holds an input which all samples share -> the input
    tied: dict[str, str]  # further name of a parameter -> the name that is kept
    frozen: set[str]
    buffers: set[str]  # those that state_dict has
    constants: dict[str, torch.Tensor]  # buffers that state_dict does not have


@dataclass
class Traced:
    """The exported forward pass."""

    program: torch.export.ExportedProgram
    batch: int  # of the example inputs
    min_batch: int
    outputs: list[str]  # names of what forward returns beside the loss, in order


def trace(step: Step, examples, *, trains: bool = True) -> Traced:
    """Exports `step(*examples)`, whose first output is the scalar loss, for batches of any size."""
    batch = examples[0].shape[0]
    check_module(step.module, trains)
    if batch == 1:  # PyTorch takes a size of one as fixed
        examples, batch = tuple(torch.cat([value, value]) for value in examples), 2
    log.info("tracing forward" if trains else "tracing the evaluation")
    with refusing_other_autocast(examples[0].device.type):
        program, min_batch = export_program(step, examples)
    check_loss(program)
    return Traced(program, batch, min_batch, step.result.names)


def capture(step: Step, traced: Traced, *, fake_weights: bool = False) -> Captured:
    """The joint graph of a traced step; of forward alone where no parameter takes a gradient.

    With `fake_weights` the module was built under FakeTensorMode and has no memory for weights.
    """
    module, program = step.module, traced.program
    operators = sum(node.op == "call_function" for node in program.graph.nodes)
    if any(parameter.requires_grad for parameter in module.parameters()):
        log.info("tracing forward and backward of %d operators", operators)
    joint, symbol = joint_graph(program, fake_weights)
    return Captured(
        graph_module=joint,
        batch=traced.batch,
        min_batch=traced.min_batch,
        symbol=symbol,
        inputs=step.input_names,
        outputs=list(traced.outputs),
        shared=step.shared,
        tied=tied_names(module),
        frozen={name for name, value in module.named_parameters() if not value.requires_grad},
        buffers=set(module.state_dict()) - {name for name, _ in module.named_parameters()},
        constants={name.removeprefix(MODULE): value for name, value in program.constants.items()},
    )


_make_autocast = torch.autocast.__init__


def make_autocast(self, device_type, dtype=None, enabled=True, cache_enabled=None):
    """Remembers what was asked for: where a machine lacks the device, PyTorch only warns, and casts nothing."""
    _make_autocast(self, device_type, dtype, enabled, cache_enabled)
    self.asked_dtype = self.fast_dtype if enabled else None


torch.autocast.__init__ = make_autocast


@contextlib.contextmanager
def refusing_other_autocast(device: str):
    """Of another device than a model is traced on, whose casts would be missing in the graph."""
    enter = torch.autocast.__enter__

    def checked(self):
        if self.device != device and getattr(self, "asked_dtype", None) is not None:
            refuse(
                "forward casts on another device alone", f'torch.autocast("{self.device}", dtype={self.asked_dtype})', f"a model that is traced on a {device}",
                f'torch.autocast("{device}"), or none', f"torch.autocast(x.device.type, dtype={self.asked_dtype}), which casts on any device",
            )  # fmt: skip
        return enter(self)

    torch.autocast.__enter__ = checked
    try:
        yield
    finally:
        torch.autocast.__enter__ = enter


@contextlib.contextmanager
def evaluating(module: nn.Module):
    """The module in eval mode, none of its parameters taking a gradient."""
    modes = {part: part.training for part in module.modules()}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        module.eval()
        for parameter in trained:
            parameter.requires_grad_(False)
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
        for parameter in trained:
            parameter.requires_grad_(True)


def trace_evaluation(step: Step, examples) -> Traced:
    with evaluating(step.module):
        return trace(step, examples, trains=False)


def capture_evaluation(step: Step, traced: Traced, *, fake_weights: bool = False) -> Captured:
    """The graph of a step traced in eval mode: forward alone, its loss and the other outputs that
    are single numbers, which are metrics."""
    with evaluating(step.module):
        captured = capture(step, traced, fake_weights=fake_weights)
    output = list(captured.graph_module.graph.nodes)[-1]
    nodes, descs = output.args[0], output.meta["desc"]
    plain = [type(desc).__name__ == "PlainAOTOutput" for desc in descs]
    names = iter(["", *captured.outputs])
    kept, captured.outputs = [], []
    for i, (node, is_plain) in enumerate(zip(nodes, plain, strict=True)):
        name = next(names) if is_plain else ""
        is_number = name and node.meta["val"].dim() == 0 and not node.meta["val"].is_complex()
        if is_plain and (i == plain.index(True) or is_number):
            kept.append((node, descs[i]))
            captured.outputs += [name] if len(kept) > 1 else []
    output.args = ([node for node, _ in kept],)
    output.meta["desc"] = [desc for _, desc in kept]
    return captured


def tied_names(module: nn.Module) -> dict[str, str]:
    """Further names of parameters that have several, each with the name that comes first."""
    first: dict[int, str] = {}
    tied = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        kept = first.setdefault(id(parameter), name)
        if kept != name:
            tied[name] = kept
    return tied


def check_module(module: nn.Module, trains: bool) -> None:
    stored = module.state_dict(keep_vars=True)
    for name, tensor in stored.items():
        if isinstance(tensor, torch.Tensor) and tensor.is_complex():
            is_table = not isinstance(tensor, nn.Parameter)
            advice = f"persistent=False if it is fixed, or {AS_PARTS}" if is_table else AS_PARTS
            refuse_complex(f'tensor "{name}"', tensor.dtype, advice)
    if trains and not any(parameter.requires_grad for parameter in module.parameters()):
        found = "no parameter that takes a gradient"
        refuse("there is nothing to train", "the module", found, "one or more", "requires_grad_()")


def export_program(step: Step, inputs) -> tuple[torch.export.ExportedProgram, int]:
    """Exports with a batch down to 1, or down to 2 where the model refuses a batch of one; where
    both fail, with lengths that may be symbolic."""
    failures = []
    for min_batch, lengths in ((1, contextlib.nullcontext), (2, contextlib.nullcontext), (1, symbolic_lengths)):
        batch = torch.export.Dim("batch", min=min_batch, max=MAX_BATCH)
        shapes = (tuple({0: batch} for _ in inputs),)
        try:
            # Where a branch depends on data PyTorch prints the graph so far.
            with portable(), lengths(), OwnFunctions(), averaged_norms(step), contextlib.redirect_stderr(io.StringIO()):
                return torch.export.export(step, inputs, dynamic_shapes=shapes), min_batch
        except ExportError:
            raise
        except Exception as error:  # torch.export has no common type for its refusals
            failures.append(error)
    refuse_export(failures[1], inputs[0].shape[0])


@contextlib.contextmanager
def symbolic_lengths():
    """len() of a tensor is its first size, which may be the batch: PyTorch takes it as a number.
    What Dynamo captures (torch.cond) does not work so."""
    plain = builtins.len

    def length(value):
        is_tensor = isinstance(value, torch.Tensor) and value.dim() > 0
        return value.shape[0] if is_tensor else plain(value)

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = plain


def refuse_export(error: Exception, batch: int) -> None:
    """Says what torch.export found in the user's terms."""
    text = str(error)
    where = user_line(text, user_line("".join(traceback.format_exception(error))))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0].split(" (unhinted")[0].rstrip(".;:") if lines else type(error).__name__
    first = re.sub(r"\bs\d+\b", "batch", first)  # PyTorch's names of the batch size
    if "unbacked" in text or "ata-dependent" in text or "DataDependent" in text:
        wanted = "sizes that depend on the batch alone"
        advice = "a mask: torch.arange(most) < count" if "integer" in first else "torch.where"
        refuse("a shape or branch depends on the data", where, first, wanted, advice)
    if "onstraints violated" in text or "specialized" in text or "constant" in first:
        found = batch_condition(text, batch)
        wanted = f"any batch from 1 to {MAX_BATCH}"
        advice = "x.shape[0] in place of a number"
        refuse("the model works for some batch sizes only", where, found, wanted, advice)
    found = f"{type(error).__name__}: {first}"
    advice = "torch.export.export(module, inputs) alone"
    refuse("PyTorch cannot export the model", where, found, "a model that it exports", advice)


def batch_condition(text: str, batch: int) -> str:
    """What torch.export says must hold of the batch, in words or as an expression."""
    guard = re.search(r"satisfy the generated guard (.+?)\.?$", text, re.MULTILINE)
    if guard is None:
        return f"the batch fixed to {batch}"
    expression = re.sub(r"L\[[^ ]*?\]\.size\(\)\[0\]", "batch", guard[1])
    return f"the condition {expression}"


@functools.cache
def user_line(text: str, otherwise: str = "torch.export") -> str:
    """The innermost source line outside of PyTorch that an error or a stack trace shows."""
    places = re.findall(r'File "([^"]+)", line (\d+), in', text)
    foreign = ("/torch/", "/motley/", "<")  # "<eval_with_key>" is generated
    own = [place for place in places if not any(word in place[0] for word in foreign)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else otherwise


def check_loss(program) -> None:
    nodes = {node.name: node for node in program.graph.nodes}
    loss = nodes[program.graph_signature.user_outputs[0]].meta["val"]
    wanted = "one floating-point number"
    if loss.is_complex():
        refuse_complex("output 0 of forward", loss.dtype, "loss.abs() or loss.real")
    if loss.dim() != 0 or not loss.is_floating_point():
        shape = ", ".join(str(size) if isinstance(size, int) else "batch" for size in loss.shape)
        found = f"{loss.dtype} of shape [{shape}]"
        refuse("the loss is not a scalar", "output 0 of forward", found, wanted, "loss.mean()")


def joint_graph(program, fake_weights: bool) -> tuple[torch.fx.GraphModule, str]:
    """The joint graph and the name of its batch symbol."""
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with portable():
        module = program.module()
    keep_draws(module)
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = program.graph_signature.user_inputs
    fakes = tuple(placeholders[name].meta["val"] for name in names)
    if fake_weights:
        replace_weights(module, fakes[0].fake_mode)
    with contextlib.ExitStack() as stack, portable():
        try:
            joint = aot_export_joint_with_descriptors(
                stack, module, fakes, decompositions=decompositions(NumberedDraws())
            )
        except RuntimeError as error:
            if "does not require grad" not in str(error):
                raise
            refuse_no_gradient()
    return joint.graph_module, str(fakes[0].shape[0].node.expr)


def refuse_no_gradient() -> None:
    found = "a loss without a gradient"
    wanted = "a loss that a trainable parameter influences"
    refuse("there is nothing to train", "output 0 of forward", found, wanted, "removing detach()")


def replace_weights(module: nn.Module, fake_mode) -> None:
    """Gives every parameter and buffer a copy without memory that belongs to `fake_mode`."""
    made: dict[int, torch.Tensor] = {}
    for owner in module.modules():
        for table in (owner._parameters, owner._buffers):
            for name, old in table.items():
                if old is not None:
                    if id(old) not in made:
                        made[id(old)] = fake_copy(old, fake_mode)
                    table[name] = made[id(old)]


def fake_copy(old: torch.Tensor, fake_mode) -> torch.Tensor:
    with fake_mode:
        new = torch.empty(old.shape, dtype=old.dtype)
    if isinstance(old, nn.Parameter):
        return nn.Parameter(new, requires_grad=old.requires_grad)
    return new


@contextlib.contextmanager
def portable():
    """Without oneDNN's own operators, and without PyTorch's words about its own innards."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.backends.mkldnn.flags(enabled=False):
                yield
    finally:
        logging.disable(before)

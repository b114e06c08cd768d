"""The user's module as a step: tensors with their samples in front go in, the loss comes out first.

`Step` hides how the module is called (positions, keywords, nested dicts, numbers and tensors that
all samples share, samples in another dimension than 0) and what it returns (a tensor, a tuple, a
dict, a dataclass). What captures, checks and writes a model knows steps only.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import types
from collections.abc import Mapping

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from motley.errors import refuse, refuse_complex

MODULE = "module."  # in front of every name of the user's module
GIVEN = "motley_given."  # in front of the names of tensors that all samples share
NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
PLAIN = (bool, int, float, str, bytes, torch.dtype, torch.device, type(None))


@dataclasses.dataclass
class Given:
    """One leaf of the inputs: a tensor of samples, a tensor that all share, or a plain value."""

    name: str
    value: object
    dim: int | None = None  # of the samples; none where all samples share the value


class Step(nn.Module):
    """`module(*args, **kwargs)` as a function of its inputs with samples alone.

    `forward` takes tensors like the examples, samples first, and returns the loss, then the other
    tensors of the result, detached; `result.names` has the names of these after a call.
    """

    def __init__(self, module: nn.Module, leaves: list[Given], spec):
        super().__init__()
        self.module = module
        self.leaves = [
            dataclasses.replace(leaf, value=None) if is_tensor(leaf) else leaf for leaf in leaves
        ]
        self.spec = spec
        self.motley_given = nn.Module()
        self.shared = {}
        for i, leaf in enumerate(leaves):
            if is_tensor(leaf) and leaf.dim is None:
                self.motley_given.register_buffer(f"tensor{i}", leaf.value, persistent=False)
                self.shared[f"{GIVEN}tensor{i}"] = leaf.name
        self.input_names = [leaf.name for leaf in leaves if leaf.dim is not None]
        # Not a plain list: torch.export puts those back as they were.
        self.result = types.SimpleNamespace(names=[])

    def forward(self, *inputs):
        for tensor in inputs[1:]:  # one size from the first operator on, as far as torch.export knows
            torch._check(tensor.shape[0] == inputs[0].shape[0])
        args, kwargs = self.arguments(inputs)
        loss, extras = name_outputs(self.module(*args, **kwargs))
        self.result.names = [name for name, _ in extras]
        return (loss, *(extra.detach() for _, extra in extras))

    def arguments(self, inputs):
        """What the module is called with."""
        tensors, values = iter(inputs), []
        for i, leaf in enumerate(self.leaves):
            if leaf.dim is not None:
                tensor = next(tensors)
                moved = tensor.movedim(0, leaf.dim) if leaf.dim else tensor
                values.append(moved.contiguous() if leaf.dim else moved)
            else:
                values.append(getattr(self.motley_given, f"tensor{i}", leaf.value))
        return pytree.tree_unflatten(values, self.spec)


def make_step(module: nn.Module, inputs, batch_dims=None, *, graph_only=False):
    """The step of a module on the CPU, and its example inputs, samples first.

    `inputs` is a tuple of positional arguments or a dict of keyword arguments. Samples are in
    dimension 0, or in the one that `batch_dims` has for an input's name; none there: all samples
    share it.
    """
    module = on_cpu(module, graph_only)
    leaves, spec = flatten_inputs(module, inputs)
    place_samples(leaves, dict(batch_dims or {}))
    examples = tuple(leaf.value.movedim(leaf.dim, 0) for leaf in leaves if leaf.dim is not None)
    return Step(module, leaves, spec), examples


def is_tensor(leaf: Given) -> bool:
    return isinstance(leaf.value, torch.Tensor)


def copy_step(step: Step) -> Step:
    """A step with gradients and buffers of its own; the parameters' memory is that of `step`."""
    own = {
        id(parameter): nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
        for parameter in step.parameters()
    }
    return copy.deepcopy(step, own)


# Inputs


def flatten_inputs(module: nn.Module, inputs) -> tuple[list[Given], object]:
    """The leaves of the inputs, on the CPU, under the names of forward's arguments."""
    if not isinstance(inputs, (tuple, list, Mapping)) or not inputs:
        wanted, advice = "a tuple or a dict of tensors", "returning (module, (x, y))"
        refuse("there are no example inputs", "inputs", repr(inputs)[:60], wanted, advice)
    is_keyword = isinstance(inputs, Mapping)
    arguments = ((), dict(inputs)) if is_keyword else (tuple(inputs), {})
    paths, spec = pytree.tree_flatten_with_path(arguments)
    names = argument_names(module, len(arguments[0]))
    leaves = []
    for path, value in paths:
        keys = [str(getattr(key, "key", getattr(key, "idx", key))) for key in path[1:]]
        keys[0] = keys[0] if is_keyword else names[int(keys[0])]
        name = ".".join(keys)
        if isinstance(value, torch.Tensor):
            value = value if value.device.type in ("cpu", "meta") else value.cpu()
        elif not isinstance(value, PLAIN):
            where, found = f'input "{name}"', type(value).__name__
            wanted = "a tensor, number, text, or dicts, lists and tuples of these"
            refuse("an input is of another kind", where, found, wanted, "torch.as_tensor")
        leaves.append(Given(name, value))
    return leaves, spec


def argument_names(module: nn.Module, count: int) -> list[str]:
    """Names of forward's first `count` arguments; `x0`, `x1`, ... for those without one."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in kinds]
    return [names[i] if i < len(names) else f"x{i}" for i in range(count)]


def place_samples(leaves: list[Given], batch_dims: dict) -> None:
    """Sets the dimension of the samples of every leaf, and checks that they agree."""
    for leaf in leaves:
        leaf.dim = sample_dimension(leaf, batch_dims)
    unknown = [name for name in batch_dims if name not in {leaf.name for leaf in leaves}]
    if unknown:
        found = "inputs " + ", ".join(leaf.name for leaf in leaves)
        what = "a dimension is given of no input"
        refuse(what, f'input "{unknown[0]}"', found, f'"{unknown[0]}"', "one of them")
    with_samples = [leaf for leaf in leaves if leaf.dim is not None]
    if not with_samples:
        found = "values that all samples share"
        refuse(
            "no input has samples", "inputs", found, "one with a batch", "returning (module, (x,))"
        )
    first = with_samples[0]
    for leaf in with_samples:
        check_samples(leaf, first)


def sample_dimension(leaf: Given, batch_dims: dict) -> int | None:
    if not is_tensor(leaf) or (leaf.value.dim() == 0 and leaf.name not in batch_dims):
        return None
    dim = batch_dims.get(leaf.name, 0)
    if dim is None:
        return None
    if not isinstance(dim, int) or not -leaf.value.dim() <= dim < leaf.value.dim():
        found, wanted = repr(dim), f"a dimension of {list(leaf.value.shape)}, or None"
        refuse("no such dimension", f'input "{leaf.name}"', found, wanted, "0")
    return dim % leaf.value.dim()


def check_samples(leaf: Given, first: Given) -> None:
    where, size = f'input "{leaf.name}"', leaf.value.shape[leaf.dim]
    if leaf.value.is_complex():
        refuse_complex(where, leaf.value.dtype)
    if size == 0:
        refuse("the inputs are empty", where, "0 samples", "2 or more", "8 example samples")
    samples = first.value.shape[first.dim]
    if size != samples:
        found = f"{size} samples in dimension {leaf.dim}"
        wanted = f'{samples} as in input "{first.name}"'
        advice = f'returning (module, inputs, {{"{leaf.name}": None}}) if all samples share it, '
        advice += "or the dimension of its samples"
        refuse("the inputs differ in batch size", where, found, wanted, advice)


# Results


def name_outputs(result) -> tuple[torch.Tensor, list[tuple[str, torch.Tensor]]]:
    """The loss, and the other tensors of what forward returned, with their names.

    The loss is the item or field `loss`, or else the first item of a tuple. Items of plain tuples
    have no name; what is not a tensor is left out.
    """
    named = named_items(result)
    if named is None:
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        names = getattr(result, "_fields", [""] * len(items))
        loss, rest = items[0] if items else None, list(zip(names, items, strict=True))[1:]
    else:
        loss, rest = named.pop("loss", None), list(named.items())
    if not isinstance(loss, torch.Tensor):
        refuse_no_loss(loss, named)
    extras = [pair for name, item in rest for pair in tensors_of(name, item)]
    seen: set[str] = set()
    return loss, [("" if name in seen else seen.add(name) or name, item) for name, item in extras]


def named_items(result) -> dict | None:
    """Items by name, where the result has names and one of them is the loss."""
    if isinstance(result, Mapping):
        return dict(result)
    if dataclasses.is_dataclass(result):
        return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    if hasattr(result, "_asdict") and "loss" in result._fields:
        return result._asdict()
    is_object = hasattr(result, "loss") and not isinstance(result, torch.Tensor)
    return dict(vars(result)) if is_object else None


def tensors_of(name: str, item):
    """The tensors of one item; `hidden.0`, `hidden.1` for those of a tuple with a name, whose
    numbers count as tensors."""
    if isinstance(item, torch.Tensor):
        yield name, item
        return
    if "." in name and isinstance(item, NUMBERS):  # of a pair such as (correct, count)
        yield name, torch.scalar_tensor(item)
        return
    inner = (
        item.items()
        if isinstance(item, Mapping)
        else enumerate(item)
        if isinstance(item, (tuple, list))
        else ()
    )
    for key, value in inner:
        yield from tensors_of(f"{name}.{key}" if name else "", value)


def refuse_no_loss(loss, named: dict | None) -> None:
    if named is None:
        found, where = type(loss).__name__, "output 0 of forward"
        wanted = "the scalar loss, a tuple with it in front, or an output named loss"
        refuse("forward returns no loss", where, found, wanted, "returning (loss, logits)")
    found = "outputs " + (", ".join(map(str, named)) or "none")
    wanted = "a tensor named loss"
    refuse("forward returns no loss", "output of forward", found, wanted, "giving it the labels")


# Devices


def on_cpu(module: nn.Module, graph_only: bool) -> nn.Module:
    """The module, or where a tensor of it is elsewhere a copy with all of them on the CPU."""
    named = [*module.named_parameters(), *module.named_buffers()]
    if all(tensor.device.type == "cpu" for _, tensor in named):
        return module
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    memo = {}
    for name, tensor in named:
        if tensor.device.type == "meta" and not graph_only:
            found, wanted = "device meta", "a tensor with numbers"
            refuse("the module has no weights", f'tensor "{name}"', found, wanted, "--graph-only")
        memo[id(tensor)] = tensor_on_cpu(tensor, fake_mode if graph_only else None)
    return copy.deepcopy(module, memo)


def tensor_on_cpu(tensor: torch.Tensor, fake_mode: FakeTensorMode | None) -> torch.Tensor:
    """With `fake_mode`, one without memory."""
    if fake_mode is None:
        moved = tensor.detach().cpu()
    else:
        with fake_mode:
            moved = torch.empty(tensor.shape, dtype=tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(moved, requires_grad=tensor.requires_grad)
    return moved

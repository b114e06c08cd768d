"""Turns a captured joint FX graph into a `Graph`, normalised as docs/formats/graph.md says.

Symbolic scalars are folded into expressions, aliases into their source, tuple accesses into
results; attention becomes our own operator pair, the views become one operator, devices become
the local one, and operators that nothing uses are dropped.
"""

from __future__ import annotations

import operator
from typing import NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from motley.capture import MAX_BATCH, Captured, refuse_no_gradient, user_line
from motley.errors import refuse, refuse_complex
from motley.graph import (
    DTYPES,
    MEMORY_FORMATS,
    Argument,
    Graph,
    Keyword,
    Number,
    Op,
    Output,
    Ref,
    Size,
    Source,
    Value,
)
from motley.sizes import DataError, SizeError, print_size
from motley.step import MODULE

aten = torch.ops.aten

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
IDENTITY = {
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
}
VIEWS = {aten.view.default, aten._unsafe_view.default, aten.reshape.default}
# Without what has one element, of which the batch may be.
SQUEEZES = {aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims}
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default
ATTENTION_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
# Our operator for PyTorch's, and for each of its arguments the position among PyTorch's.
OWN = {
    ATTENTION: ("motley::attention", (0, 1, 2, 5, 3, 4, 6)),
    ATTENTION_BACKWARD: ("motley::attention_backward", (0, 1, 2, 3, 4, 5, 8, 6, 7, 9)),
}
# Views that only mark their tensor as conjugated or negated, and what makes such numbers.
MARKING = {
    aten._conj.default: "aten::_conj_physical",
    aten._neg_view.default: "aten::neg",
}
# Operators that name strides, which the text does not have.
STRIDED = {
    aten.as_strided.default,
    aten.as_strided_scatter.default,
    aten.new_empty_strided.default,
}
# Operators whose numbers are indices although the schema calls them numbers.
INDEX_NUMBERS = {"aten::arange", "aten::arange.start", "aten::arange.start_step"}
# Only with masks among their indices do the sizes of their results depend on data.
INDEXING = {aten.index.Tensor, aten._unsafe_index.Tensor}
# How to write with fixed sizes what has others.
MASKED = "torch.where(mask, x, 0), and mask.sum() to divide by"
FIXED_SIZES = {
    "index": MASKED,
    "masked_select": MASKED,
    "nonzero": "multiplying by the mask, or torch.topk of a fixed count",
    "_unique2": "F.one_hot(x, count).amax(0)",
    "unique_dim": "F.one_hot(x, count).amax(0)",
    "bincount": "F.one_hot(x, count).sum(0)",
    "repeat_interleave": "output_size=",
}


def depends_on_data(node: torch.fx.Node) -> bool:
    """Do the sizes of its results?"""
    dependent = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    if not dependent & set(node.target.tags):
        return False
    if node.target is aten.repeat_interleave.Tensor:
        return node.kwargs.get("output_size") is None
    if node.target not in INDEXING:
        return True
    indices = [index.meta["val"] for index in node.args[1] if index is not None]
    return any(index.dtype in (torch.bool, torch.uint8) for index in indices)


def is_plain_copy(node: torch.fx.Node) -> bool:
    """The source itself, in the shape and type of what it is copied over: an operator in place."""
    if node.target is not aten.copy.default:
        return False
    over, source = (given.meta["val"] for given in node.args[:2])
    return over.dtype == source.dtype and tuple(over.shape) == tuple(source.shape)


def conjugate_number(node: torch.fx.Node) -> complex | None:
    """Of a number, which PyTorch wraps in a tensor where it is differentiated."""
    is_conjugate = node.target is aten._conj.default and isinstance(node.args[0], complex)
    return node.args[0].conjugate() if is_conjugate else None


def may_drop_batch(node: torch.fx.Node) -> bool:
    """Does a squeeze name a size that depends on the batch, or none?"""
    if node.target not in SQUEEZES:
        return False
    shape = node.args[0].meta["val"].shape
    named = node.args[1] if len(node.args) > 1 else range(len(shape))
    dims = [named] if isinstance(named, int) else named
    return any(isinstance(shape[dim], torch.SymInt) for dim in dims)


def is_copy_of_new(node: torch.fx.Node) -> bool:
    """A copy of what we make anew where PyTorch marks it."""
    return node.target is aten.clone.default and node.args[0].target in MARKING


def are_packed(node: torch.fx.Node) -> bool:
    """Do the operator's tensors and its result all lie one element after the other, with as many?"""
    tensors = [argument.meta["val"] for argument in node.args if isinstance(argument, torch.fx.Node)]
    tensors = [value for value in tensors if isinstance(value, torch.Tensor)]
    if node.target is aten.new_empty_strided.default:
        return is_packed(node.meta["val"])
    if node.target is aten.as_strided.default:
        tensors.append(node.meta["val"])
    offset = node.args[-1] if not isinstance(node.args[-1], (list, tuple)) else None
    elements = tensors[0].numel()
    return offset in (None, 0) and all(
        is_packed(value) and statically_known_true(value.numel() == elements) for value in tensors
    )


def is_packed(value: torch.Tensor) -> bool:
    """Row by row without gaps; where there is one index the stride does not matter."""
    expected = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if not (isinstance(size, int) and size == 1 or statically_known_true(stride == expected)):
            return False
        expected = expected * size
    return True


def emit(
    captured: Captured, name: str, *, evaluates: bool = False, known: dict | None = None
) -> tuple[Graph, dict[str, torch.Tensor]]:
    """The graph, and the values of the constants that it names (`motley.constant.N`) beside those
    that are known. One that evaluates has metrics and no gradients."""
    emitter = Emitter(captured, name, evaluates, known or {})
    emitter.add_sources()
    emitter.join_constants()
    for node in emitter.nodes:
        if node.op == "call_function" and node in emitter.live:
            emitter.add_node(node)
    emitter.add_outputs()
    return emitter.graph, emitter.constants


class Emitter:
    def __init__(self, captured: Captured, name: str, evaluates: bool, known: dict):
        self.captured, self.evaluates, self.known = captured, evaluates, known
        self.graph = Graph(name, {"batch": (captured.min_batch, MAX_BATCH)})
        self.constants: dict[str, torch.Tensor] = {}
        self.nodes = list(captured.graph_module.graph.nodes)
        self.live = live_nodes(self.nodes)
        self.paths = module_paths(self.nodes)
        self.values: dict[torch.fx.Node, Value] = {}
        self.joined: list[torch.fx.Node] = []  # complex constants
        self.sequences: dict[int, int] = {}  # PyTorch's number -> ours, which count from 0
        self.next_id = 0

    # Sources

    def add_sources(self) -> None:
        """Inputs, parameters, buffers, constants and the tangent, in this order."""
        adders = {
            "PlainAOTInput": self.add_input,
            "ParamAOTInput": self.add_parameter,
            "BufferAOTInput": self.add_buffer,
            "Constant": self.add_constant,
            "TangentAOTInput": self.add_tangent,
        }
        sources = [node for node in self.nodes if node.op in ("placeholder", "get_attr")]
        for kind, add in adders.items():
            for node in sources:
                if self.source_kind(node) == kind:
                    add(node)

    def source_kind(self, node: torch.fx.Node) -> str:
        if node.op == "get_attr":
            return "Constant"
        desc = node.meta["desc"]
        kind = type(desc).__name__
        if kind == "BufferAOTInput" and not self.is_kept_buffer(plain_name(desc)):
            return "Constant"
        return kind

    def is_kept_buffer(self, name: str) -> bool:
        """A buffer of the state_dict, or one that the step changes."""
        changed = {plain_name(desc.mutated_input) for desc in self.descriptors("InputMutation")}
        return name in self.captured.buffers or name in changed

    def add_source(self, kind: str, node: torch.fx.Node, name: str = "") -> Source:
        value, where = node.meta["val"], f'{kind} "{name}"'
        if value.is_complex() and kind != "constant":
            refuse_complex(where, value.dtype)
        stored = torch.view_as_real(value) if value.is_complex() else value
        source = Source(kind, self.new_value(stored, where), name)
        self.graph.sources.append(source)
        self.values[node] = source.value
        return source

    def add_input(self, node: torch.fx.Node) -> None:
        self.add_source("input", node, self.captured.inputs[node.meta["desc"].idx])

    def add_parameter(self, node: torch.fx.Node) -> None:
        name = plain_name(node.meta["desc"])
        kept = self.captured.tied.get(name)
        if kept is not None:
            source = next(item for item in self.graph.of_kind("param") if item.name == kept)
            self.values[node] = source.value
            return
        source = self.add_source("param", node, name)
        source.frozen = name in self.captured.frozen
        source.tied = [other for other, first in self.captured.tied.items() if first == name]

    def add_buffer(self, node: torch.fx.Node) -> None:
        self.add_source("buffer", node, plain_name(node.meta["desc"]))

    def add_constant(self, node: torch.fx.Node) -> None:
        if node not in self.live:
            return
        if node.op == "get_attr":
            value = getattr(self.captured.graph_module, str(node.target))
        else:
            value = self.captured.constants[plain_name(node.meta["desc"])]
        if isinstance(value, torch.fx.GraphModule):
            return  # the operator that takes it is refused by name
        node.meta.setdefault("val", value)
        if value.is_complex():
            value = torch.view_as_real(value.resolve_conj())
            self.joined.append(node)
        every = self.known | self.constants
        name = next((name for name, kept in every.items() if is_same(kept, value)), None)
        if name is None:
            name = f"motley.constant.{len(every)}"
            self.constants[name] = value
        for source in self.graph.of_kind("constant"):
            if source.name == name:  # several layers have their own of it
                self.values[node] = source.value
                return
        self.add_source("constant", node, name)

    def join_constants(self) -> None:
        """Complex ones are stored as real and imaginary parts."""
        made: dict[int, Value] = {}
        for node in self.joined:
            parts = self.values[node].id
            if parts not in made:
                made[parts] = self.new_value(node.meta["val"], "constant")
                name, results = "aten::view_as_complex", [made[parts]]
                self.graph.ops.append(Op(name, [Ref(parts)], results, backward=False, module=""))
            self.values[node] = made[parts]

    def add_tangent(self, node: torch.fx.Node) -> None:
        self.add_source("tangent", node)

    # Operators

    def add_node(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            return  # its value was made with the operator
        if isinstance(node.meta.get("val"), (*SYMBOLIC, int, float)):
            return  # folded where it is used
        if conjugate_number(node) is not None:
            return  # so is this
        if node.target in IDENTITY or is_copy_of_new(node):
            self.values[node] = self.values[node.args[0]]
            return
        if is_plain_copy(node):
            self.values[node] = self.values[node.args[1]]
            return
        self.check_operator(node)
        name, arguments = self.named_arguments(node)
        self.graph.ops.append(
            Op(
                name=name,
                arguments=arguments,
                results=self.add_results(node),
                backward=is_backward(node),
                module=self.paths[node],
                sequence=self.sequence(node),
                returns_list=returns_list(node.target),
            )
        )

    def sequence(self, node: torch.fx.Node) -> int | None:
        """Links a backward operator to its forward one; sums of gradients have no forward one."""
        number = node.meta.get("seq_nr")
        if number is None or (is_backward(node) and module_path(node) is None):
            return None
        return self.sequences.setdefault(number, len(self.sequences))

    def named_arguments(self, node: torch.fx.Node) -> tuple[str, list[Argument]]:
        arguments = self.schema_arguments(node)
        if node.target in OWN:
            name, order = OWN[node.target]
            return name, [arguments[i] for i in order]
        if node.target in STRIDED and are_packed(node):
            return self.without_strides(node, arguments)
        if node.target in MARKING:
            return MARKING[node.target], arguments
        if may_drop_batch(node):
            shape = list(node.meta["val"].shape)
            return "aten::view", [arguments[0], self.argument(shape, "List[int]", node)]
        return "aten::view" if node.target in VIEWS else full_name(node.target), arguments

    def without_strides(self, node: torch.fx.Node, arguments: list) -> tuple[str, list[Argument]]:
        """The same of elements that lie one after the other."""
        if node.target is aten.as_strided.default:
            return "aten::view", arguments[:2]
        if node.target is aten.as_strided_scatter.default:
            shape = list(node.args[0].meta["val"].shape)
            return "aten::view", [arguments[1], self.argument(shape, "List[int]", node)]
        return "aten::new_empty", [*arguments[:2], *arguments[3:]]

    def check_operator(self, node: torch.fx.Node) -> None:
        target, where = node.target, self.where(node)
        if isinstance(target, torch._ops.HigherOrderOperator):
            found, wanted = "an operator that runs functions", "operators on tensors"
            advice = "torch.where over both branches"
            refuse("a higher-order operator is not supported", where, found, wanted, advice)
        if not isinstance(target, torch._ops.OpOverload):
            found, wanted = "a Python function", "an operator of PyTorch"
            refuse("a function is not an operator", where, found, wanted, "a torch function")
        if target.namespace not in ("aten", "motley"):
            found, wanted = f"an operator of {target.namespace}", "operators of PyTorch's own"
            advice = f"a way without it, as {target.namespace} may have"
            refuse("an operator is not PyTorch's", where, found, wanted, advice)
        if depends_on_data(node):
            found, wanted = "sizes that depend on data", "sizes that depend on the batch alone"
            advice = FIXED_SIZES.get(target._schema.name.removeprefix("aten::"), "torch.where")
            refuse("a shape or branch depends on the data", where, found, wanted, advice)
        if torch.Tag.nondeterministic_seeded in target.tags and target not in OWN:
            found, wanted = "a draw from PyTorch's generator", "numbers that any device draws alike"
            refuse("random numbers of this kind cannot be split", where, found, wanted, "torch.rand")

    def where(self, node: torch.fx.Node) -> str:
        target = node.target
        name = full_name(target) if isinstance(target, torch._ops.OpOverload) else str(target)
        path, line = self.paths.get(node), user_line(node.meta.get("stack_trace") or "", "")
        return f"operator {name}" + (f' in module "{path}"' if path else "") + (f" at {line}" if line else "")

    def add_results(self, node: torch.fx.Node) -> list[Value]:
        made, where = node.meta["val"], self.where(node)
        if isinstance(made, torch.Tensor):
            self.values[node] = self.new_value(made, where)
            return [self.values[node]]
        mask = output_mask(node) or [True] * len(made)
        values = [
            self.new_value(item if is_made else None, where)
            for item, is_made in zip(made, mask, strict=True)
        ]
        for user in node.users:
            if user.target is operator.getitem:
                self.values[user] = values[user.args[1]]
        return values

    def new_value(self, fake, where: str) -> Value:
        self.next_id += 1
        if fake is None:
            return Value(self.next_id - 1, "none")
        if not isinstance(fake, torch.Tensor):
            found = type(fake).__name__
            refuse("a result is not a tensor", where, found, "a tensor", "another operator")
        check_layout(fake.layout, where)
        shape = tuple(self.size_text(size, where) for size in fake.shape)
        return Value(self.next_id - 1, dtype_name(fake.dtype, where), shape)

    def size_text(self, size, where: str) -> str:
        expr = size.node.expr if isinstance(size, SYMBOLIC) else size
        try:
            return print_size(expr, {self.captured.symbol: "batch"})
        except DataError as error:
            wanted = "numbers that depend on the batch alone"
            refuse("a number depends on the data", where, str(error), wanted, "keeping it a tensor")
        except SizeError as error:
            wanted = "+ - * // / % max min of the batch size"
            refuse("a size cannot be written down", where, str(error), wanted, "simpler sizes")

    # Arguments

    def schema_arguments(self, node: torch.fx.Node) -> list[Argument]:
        """Every argument of the schema, in its order, defaults filled in."""
        arguments = []
        for spec, given in given_arguments(node):
            kind = str(spec.real_type)
            if "Device" in kind and given is None and not takes_tensor(node):
                given = torch.device("cpu")  # a factory makes its tensor on the local device
            if "List[" in kind and isinstance(given, (int, float, *SYMBOLIC)):
                given = [given] * (spec.N or 1)
            arguments.append(self.argument(given, kind, node))
        return arguments

    def argument(self, given, kind: str, node: torch.fx.Node) -> Argument:
        """One argument. `kind` is its schema type, such as `Optional[List[int]]`."""
        if isinstance(given, (list, tuple)):
            return [self.argument(item, kind, node) for item in given]
        if isinstance(given, torch.fx.Node):
            if given in self.values:
                return Ref(self.values[given].id)
            number = conjugate_number(given)
            given = given.meta["val"] if number is None else number
        if isinstance(given, SYMBOLIC):
            return self.symbolic(given, kind, node)
        if "float" in kind and isinstance(given, int):
            return float(given)
        if isinstance(given, torch.dtype):
            return Keyword("dtype", dtype_name(given, self.where(node)))
        if isinstance(given, torch.layout):
            check_layout(given, self.where(node))
            return Keyword("layout", "strided")
        if isinstance(given, torch.device):
            return Keyword("device", "local")
        if isinstance(given, torch.memory_format):
            return Keyword("memory_format", MEMORY_FORMATS[given])
        if given is None or isinstance(given, (bool, int, float, complex, str)):
            return given
        wanted = "a tensor, number, text or list"
        found = type(given).__name__
        refuse(
            "an argument cannot be written down", self.where(node), found, wanted, "numbers"
        )

    def symbolic(self, given, kind: str, node: torch.fx.Node) -> Argument:
        text = self.size_text(given, self.where(node))
        if text.lstrip("-").isdigit():
            return int(text)
        is_index = "int" in kind or full_name(node.target) in INDEX_NUMBERS
        return Size(text) if is_index else Number(text)

    # Outputs

    def descriptors(self, kind: str) -> list:
        every = self.nodes[-1].meta["desc"]
        return [desc for desc in every if type(desc).__name__.startswith(kind)]

    def add_outputs(self) -> None:
        """The loss, extra outputs, gradients and updates, in this order."""
        output = self.nodes[-1]
        found: dict[str, list[Output]] = {"extra": [], "gradient": [], "update": []}
        for node, desc in zip(output.args[0], output.meta["desc"], strict=True):
            if node is None or desc is None:
                continue
            kind, of = self.output_of(desc)
            found[kind].append(Output(kind, self.values[node].id, of))
        if not (found["gradient"] or self.evaluates):
            refuse_no_gradient()
        loss, *extras = found["extra"]
        loss.kind = "loss"
        for extra, name in zip(extras, self.captured.outputs, strict=True):
            extra.name = name
            extra.kind = "metric" if self.evaluates else "extra"
        order = [source.name for source in self.graph.of_kind("param")]
        found["gradient"].sort(key=lambda item: order.index(item.of))
        self.graph.outputs = [item for items in found.values() for item in items]

    def output_of(self, desc) -> tuple[str, str]:
        kind = type(desc).__name__
        if kind == "GradAOTOutput":
            name = plain_name(desc.grad_of)
            return "gradient", self.captured.tied.get(name, name)
        if kind == "InputMutationAOTOutput":
            changed = desc.mutated_input
            if type(changed).__name__ == "BufferAOTInput":
                name = plain_name(changed)
                if name in self.captured.shared:
                    refuse_in_place(f'input "{self.captured.shared[name]}"')
                return "update", name
            is_input = type(changed).__name__ == "PlainAOTInput"
            name = self.captured.inputs[changed.idx] if is_input else plain_name(changed)
            refuse_in_place(f'{"input" if is_input else "parameter"} "{name}"')
        return "extra", ""


def is_same(kept: torch.Tensor, value: torch.Tensor) -> bool:
    if kept is value:
        return True
    if isinstance(kept, FakeTensor) or isinstance(value, FakeTensor):
        return False
    return kept.dtype == value.dtype and kept.shape == value.shape and torch.equal(kept, value)


def refuse_in_place(where: str) -> NoReturn:
    refuse("forward changes a tensor in place", where, "a new value", "none", "clone()")


def live_nodes(nodes: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """Nodes that an output depends on."""
    live = {nodes[-1]}
    for node in reversed(nodes):
        if node in live:
            live.update([node.args[1]] if is_plain_copy(node) else node.all_input_nodes)
    return live


def is_backward(node: torch.fx.Node) -> bool:
    return node.meta.get("partitioner_tag") == "is_backward"


def module_path(node: torch.fx.Node) -> str | None:
    """Path of the module that made a node; none where PyTorch lost it."""
    stack = node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if not path.startswith("_empty_nn_module_stack")]
    if not paths:
        return None
    return f"{paths[-1]}.".removeprefix(MODULE).removesuffix(".")


def module_paths(nodes: list[torch.fx.Node]) -> dict[torch.fx.Node, str]:
    """Path of every operator; one without takes that of the one before, or else after it."""
    calls = [node for node in nodes if node.op == "call_function"]
    paths = [module_path(node) for node in calls]
    known = next((path for path in paths if path is not None), "")
    result = {}
    for node, path in zip(calls, paths, strict=True):
        known = known if path is None else path
        result[node] = known
    return result


def plain_name(desc) -> str:
    """Name in the user's module of a parameter or buffer."""
    return desc.target.removeprefix(MODULE)


def full_name(target: torch._ops.OpOverload) -> str:
    overload = target._schema.overload_name
    return f"{target._schema.name}.{overload}" if overload else target._schema.name


def returns_list(target: torch._ops.OpOverload) -> bool:
    returns = target._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "List[Tensor]"


def given_arguments(node: torch.fx.Node):
    """Each argument of the schema, in its order, and its value, which may be the default."""
    for i, spec in enumerate(node.target._schema.arguments):
        given = node.kwargs.get(spec.name, spec.default_value)
        yield spec, node.args[i] if i < len(node.args) else given


def output_mask(node: torch.fx.Node) -> list[bool] | None:
    """Which results the operator makes, where it is told so; a fake run of some makes all."""
    return next(
        (given for spec, given in given_arguments(node) if spec.name == "output_mask"), None
    )


def takes_tensor(node: torch.fx.Node) -> bool:
    return any(isinstance(item.meta.get("val"), torch.Tensor) for item in node.all_input_nodes)


def dtype_name(dtype: torch.dtype, where: str) -> str:
    if dtype not in DTYPES:
        wanted = "one of " + " ".join(DTYPES.values())
        refuse("a dtype is not supported", where, str(dtype), wanted, "casting it")
    return DTYPES[dtype]


def check_layout(layout: torch.layout, where: str) -> None:
    if layout is not torch.strided:
        refuse(
            "sparse tensors are not supported", where, str(layout), "a dense tensor", "sparse=False"
        )

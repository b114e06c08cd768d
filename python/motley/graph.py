"""The graph of one training step as plain data, and its text form (docs/formats/graph.md).

`print_graph` writes the text; `motley.parse` reads it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

VERSION = "motley.graph/1"

DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip
MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve",
}


@dataclass(frozen=True)
class Ref:
    """A value, by its id."""

    id: int


@dataclass(frozen=True)
class Size:
    """A size expression that describes a shape or an index."""

    text: str


@dataclass(frozen=True)
class Number:
    """A size expression that enters the arithmetic."""

    text: str


@dataclass(frozen=True)
class Keyword:
    """`dtype(f32)`, `layout(strided)`, `device(local)`, `memory_format(contiguous)`."""

    kind: str
    word: str


Argument = None | bool | int | float | complex | str | Ref | Size | Number | Keyword | list


@dataclass
class Value:
    """A tensor. `dtype` is `none` for a result that the operator leaves undefined."""

    id: int
    dtype: str
    shape: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        return "none" if self.dtype == "none" else f"{self.dtype}[{', '.join(self.shape)}]"


@dataclass
class Source:
    """An input, parameter, buffer, constant or the tangent."""

    kind: str
    value: Value
    name: str = ""
    frozen: bool = False
    tied: list[str] = field(default_factory=list)


@dataclass
class Op:
    name: str  # with overload: "aten::add.Tensor"
    arguments: list[Argument]
    results: list[Value]
    backward: bool
    module: str
    sequence: int | None = None
    returns_list: bool = False


@dataclass
class Output:
    kind: str  # loss, extra, metric (of a graph that evaluates), gradient, update
    value: int
    of: str = ""  # the parameter of a gradient, the buffer of an update
    name: str = ""  # of an extra output or a metric


@dataclass
class Graph:
    name: str
    sizes: dict[str, tuple[int, int]]
    sources: list[Source] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Source]:
        return [source for source in self.sources if source.kind == kind]


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def print_argument(argument: Argument) -> str:
    if argument is None:
        return "none"
    if isinstance(argument, bool):
        return "true" if argument else "false"
    if isinstance(argument, (int, float)):
        return repr(argument)
    if isinstance(argument, complex):
        return f"complex({argument.real!r}, {argument.imag!r})"
    if isinstance(argument, str):
        return quote(argument)
    if isinstance(argument, Ref):
        return f"%{argument.id}"
    if isinstance(argument, Size):
        return f"size({argument.text})"
    if isinstance(argument, Number):
        return f"number({argument.text})"
    if isinstance(argument, Keyword):
        return f"{argument.kind}({argument.word})"
    return "[" + ", ".join(print_argument(item) for item in argument) + "]"


def print_source(source: Source) -> str:
    line = f"{source.kind} %{source.value.id}: {source.value.type}"
    if source.name:
        line += " " + quote(source.name)
    if source.frozen:
        line += " frozen"
    return line + "".join(f" tied {quote(name)}" for name in source.tied)


def print_op(op: Op) -> str:
    results = ", ".join(f"%{value.id}: {value.type}" for value in op.results)
    arguments = ", ".join(print_argument(argument) for argument in op.arguments)
    mark = "bwd" if op.backward else "fwd"
    line = f"op {results} = {op.name}({arguments}) {mark} {quote(op.module)}"
    if op.sequence is not None:
        line += f" seq {op.sequence}"
    return line + (" list" if op.returns_list else "")


def print_output(output: Output) -> str:
    line = f"output {output.kind} %{output.value}"
    line += f" of {quote(output.of)}" if output.of else ""
    return line + (f" {quote(output.name)}" if output.name else "")


def print_graph(graph: Graph) -> str:
    lines = [VERSION, f"name {quote(graph.name)}"]
    lines += [f"size {name} {low} {high}" for name, (low, high) in graph.sizes.items()]
    lines += [print_source(source) for source in graph.sources]
    lines += [print_op(op) for op in graph.ops]
    lines += [print_output(output) for output in graph.outputs]
    return "\n".join(lines) + "\n"

"""Reads the text form of a graph back (docs/formats/graph.md).

The self-check runs what this reads, so it checks the text that goes into the file and not the
objects it was printed from.
"""

from __future__ import annotations

import re

from motley.graph import (
    VERSION,
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

_STRING = r'"(?:[^"\\]|\\.)*"'
_VALUE = re.compile(r"%(\d+): (?:none|(\w+)\[(.*)\])")
_SIZE = re.compile(r"size (\w+) (\d+) (\d+)")
_SOURCE = re.compile(
    rf"(input|param|buffer|constant|tangent) (%\d+: \w+\[[^\]]*\])(?: ({_STRING}))?( frozen)?"
    rf"((?: tied {_STRING})*)"
)
_OP = re.compile(rf"op (.*?) = ([\w:.]+)\((.*)\) (fwd|bwd) ({_STRING})(?: seq (\d+))?( list)?")
_OUTPUT = re.compile(
    rf"output (loss|extra|metric|gradient|update) %(\d+)(?: of ({_STRING}))?(?: ({_STRING}))?"
)


class ParseError(Exception):
    """A line that is not the text form."""


def unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text[1:-1])


def split_top(text: str) -> list[str]:
    """Splits at the commas that lie outside of brackets and quotes."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(rf"{_STRING}|[()\[\],]", text):
        token = match[0]
        depth += (token in ("(", "[")) - (token in (")", "]"))
        if token == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    last = text[start:].strip()
    return [*parts, last] if last else parts


def parse_argument(text: str) -> Argument:
    words = {"none": None, "true": True, "false": False}
    if text in words:
        return words[text]
    if text[0] == "[":
        return [parse_argument(item) for item in split_top(text[1:-1])]
    if text[0] == '"':
        return unquote(text)
    if text[0] == "%":
        return Ref(int(text[1:]))
    if text[-1] == ")":
        kind, _, inner = text[:-1].partition("(")
        if kind == "size":
            return Size(inner)
        if kind == "complex":
            return complex(*map(float, split_top(inner)))
        return Number(inner) if kind == "number" else Keyword(kind, inner)
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def parse_value(text: str) -> Value:
    match = _match(_VALUE, text)
    if match[2] is None:
        return Value(int(match[1]), "none")
    return Value(int(match[1]), match[2], tuple(split_top(match[3])))


def parse_source(line: str) -> Source:
    match = _match(_SOURCE, line)
    source = Source(match[1], parse_value(match[2]), unquote(match[3]) if match[3] else "")
    source.frozen = bool(match[4])
    source.tied = [unquote(name) for name in re.findall(_STRING, match[5])]
    return source


def parse_op(line: str) -> Op:
    match = _match(_OP, line)
    return Op(
        name=match[2],
        arguments=[parse_argument(item) for item in split_top(match[3])],
        results=[parse_value(item) for item in split_top(match[1])],
        backward=match[4] == "bwd",
        module=unquote(match[5]),
        sequence=int(match[6]) if match[6] else None,
        returns_list=bool(match[7]),
    )


def parse_graph(text: str) -> Graph:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if lines[:1] != [VERSION]:
        raise ParseError(f"the first line is not {VERSION}")
    graph = Graph(name="", sizes={})
    for line in lines[1:]:
        word = line.split(" ", 1)[0]
        if word == "name":
            graph.name = unquote(line[5:])
        elif word == "size":
            match = _match(_SIZE, line)
            graph.sizes[match[1]] = (int(match[2]), int(match[3]))
        elif word == "op":
            graph.ops.append(parse_op(line))
        elif word == "output":
            match = _match(_OUTPUT, line)
            of, called = (unquote(match[i]) if match[i] else "" for i in (3, 4))
            graph.outputs.append(Output(match[1], int(match[2]), of, called))
        else:
            graph.sources.append(parse_source(line))
    return graph


def _match(pattern: re.Pattern, text: str) -> re.Match:
    match = pattern.fullmatch(text)
    if match is None:
        raise ParseError(f"cannot read: {text}")
    return match

"""The text form: a golden, and print and parse as inverses."""

from pathlib import Path

import pytest
from motley.graph import (
    Graph,
    Keyword,
    Number,
    Op,
    Output,
    Ref,
    Size,
    Source,
    Value,
    print_argument,
    print_graph,
)
from motley.parse import ParseError, parse_argument, parse_graph

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["mlp", "regression"])
def test_golden(exported, name):
    """Equal on every supported PyTorch. Re-capture: print_graph(graph) into the golden file."""
    _, graph, _ = exported(name)
    assert print_graph(graph) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    "argument, text",
    [
        (None, "none"),
        (True, "true"),
        (-1, "-1"),
        (2.0, "2.0"),
        (1e-05, "1e-05"),
        (float("-inf"), "-inf"),
        (complex(-0.5, float("inf")), "complex(-0.5, inf)"),
        ('a "b"\\\n', '"a \\"b\\"\\\\\\n"'),
        (Ref(12), "%12"),
        (Size("batch*4"), "size(batch*4)"),
        (Number("(batch+1)//2"), "number((batch+1)//2)"),
        (Keyword("dtype", "bf16"), "dtype(bf16)"),
        ([Size("max(batch, 2)"), None, [True, Ref(3)]], "[size(max(batch, 2)), none, [true, %3]]"),
        ([], "[]"),
    ],
)
def test_arguments(argument, text):
    assert print_argument(argument) == text
    parsed = parse_argument(text)
    assert parsed == argument and type(parsed) is type(argument)


def test_every_part_of_a_graph():
    graph = Graph('a "name"', {"batch": (2, 4096)})
    graph.sources = [
        Source("input", Value(0, "f32", ("batch", "3")), "x"),
        Source("param", Value(1, "bf16", ("3",)), "w", frozen=True, tied=["frozen", "tied"]),
        Source("tangent", Value(2, "f32")),
    ]
    results = [Value(3, "none"), Value(4, "f32", ("max(batch, 2)", "3"))]
    graph.ops = [Op("a::b.c", [Ref(0), "), (fwd"], results, True, "m.0", 7, True)]
    graph.outputs = [
        Output("loss", 4),
        Output("extra", 0),
        Output("extra", 4, name='the "logits"'),
        Output("gradient", 4, "w"),
    ]
    text = (
        "motley.graph/1\n"
        'name "a \\"name\\""\n'
        "size batch 2 4096\n"
        'input %0: f32[batch, 3] "x"\n'
        'param %1: bf16[3] "w" frozen tied "frozen" tied "tied"\n'
        "tangent %2: f32[]\n"
        'op %3: none, %4: f32[max(batch, 2), 3] = a::b.c(%0, "), (fwd") bwd "m.0" seq 7 list\n'
        "output loss %4\n"
        "output extra %0\n"
        'output extra %4 "the \\"logits\\""\n'
        'output gradient %4 of "w"\n'
    )
    assert print_graph(graph) == text
    assert parse_graph(text) == graph


@pytest.mark.parametrize("line", ["op %0 f32[]", "param %1", "output value %1", "size batch"])
def test_a_wrong_line_is_named(line):
    with pytest.raises(ParseError, match="^cannot read: "):
        parse_graph(f"motley.graph/1\n{line}\n")


def test_another_version_is_refused():
    with pytest.raises(ParseError, match="^the first line is not motley.graph/1$"):
        parse_graph("motley.graph/2\n")

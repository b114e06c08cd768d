"""Size expressions: canonical text, and the value that the text has."""

import pytest
import sympy
from motley.interpret import evaluate_size
from motley.sizes import DataError, SizeError, print_size
from torch.utils._sympy import functions

S = sympy.Symbol("s13", positive=True, integer=True)
NAMES = {"s13": "batch"}


@pytest.mark.parametrize(
    "expr, text",
    [
        (S, "batch"),
        (sympy.Integer(7), "7"),
        (64 * S, "batch*64"),
        (4 * S + 1, "batch*4+1"),
        (S - 1, "batch-1"),
        (5 - S, "5-batch"),
        (3 * (S + 2), "batch*3+6"),
        (S * S, "batch*batch"),
        (functions.FloorDiv(S + 1, 2), "(batch+1)//2"),
        (5 * functions.FloorDiv(S + 1, 2), "(batch+1)//2*5"),
        (functions.FloorDiv(S, functions.FloorDiv(S, 2) + 1), "batch//(batch//2+1)"),
        (functions.Mod(S, 3), "batch%3"),
        (functions.PythonMod(S, 3), "batch%3"),
        (functions.IntTrueDiv(1, S), "1/batch"),
        (functions.ToFloat(S), "batch/1"),
        (functions.Max(S, 2), "max(2, batch)"),
        (functions.Min(S, 2) * 2, "min(2, batch)*2"),
        (sympy.Float(0.5) * S, "batch*(1/2)"),
        (functions.CeilToInt(functions.IntTrueDiv(S, 3)), "(batch+2)//3"),
        (functions.TruncToInt(functions.IntTrueDiv(S, 3)), "batch//3"),
    ],
)
def test_canonical_text_has_the_value(expr, text):
    assert print_size(expr, NAMES) == text
    for batch in (1, 2, 5, 4096):
        assert evaluate_size(text, {"batch": batch}) == pytest.approx(float(expr.subs(S, batch)))


def test_a_float_stays_a_float():
    text = print_size(functions.ToFloat(S), NAMES)
    assert isinstance(evaluate_size(text, {"batch": 4}), float)


def test_what_has_no_words():
    with pytest.raises(DataError, match="^a number taken out of a tensor$"):
        print_size(sympy.Symbol("u0"), NAMES)
    with pytest.raises(SizeError, match="^FloatPow$"):
        print_size(functions.FloatPow(S, sympy.Float(0.5)), NAMES)

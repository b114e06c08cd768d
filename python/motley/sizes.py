"""Size expressions: from PyTorch's symbolic sizes to the text of docs/formats/graph.md.

`print_size(64 * s13 + 1, {"s13": "batch"})` is `batch*64+1`.
"""

from __future__ import annotations

import sympy

_SUM, _PRODUCT, _ATOM = 1, 2, 3


class SizeError(Exception):
    """An expression that the text form has no words for."""


class DataError(SizeError):
    """An expression that depends on the data, and not on the batch alone."""


def print_size(expr, names: dict[str, str]) -> str:
    """Canonical text of a sympy expression over the symbols in `names`."""
    return _Printer(names).text(sympy.sympify(expr))


class _Printer:
    def __init__(self, names: dict[str, str]):
        self.names = names

    def text(self, expr) -> str:
        return self.print(expr)[0]

    def print(self, expr) -> tuple[str, int]:
        """Text and precedence."""
        if isinstance(expr, sympy.Symbol):
            if expr.name not in self.names:
                raise DataError("a number taken out of a tensor")
            return self.names[expr.name], _ATOM
        if isinstance(expr, sympy.Integer):
            return str(int(expr)), _ATOM
        if isinstance(expr, sympy.Rational):
            return self.binary("/", sympy.Integer(expr.p), sympy.Integer(expr.q))
        if isinstance(expr, sympy.Float):
            return self.print_float(float(expr))
        if isinstance(expr, sympy.Add):
            return self.print_sum(expr)
        if isinstance(expr, sympy.Mul):
            return self.print_product(expr)
        if isinstance(expr, sympy.Pow):
            return self.print_power(*expr.args)
        return self.print_function(type(expr).__name__, expr.args)

    def join(self, operator: str, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
        level = _SUM if operator in "+-" else _PRODUCT
        a = left[0] if left[1] >= level else f"({left[0]})"
        b = right[0] if right[1] > level else f"({right[0]})"
        return f"{a}{operator}{b}", level

    def binary(self, operator: str, left, right) -> tuple[str, int]:
        return self.join(operator, self.print(left), self.print(right))

    def print_float(self, value: float) -> tuple[str, int]:
        numerator, denominator = value.as_integer_ratio()
        return self.binary("/", sympy.Integer(numerator), sympy.Integer(denominator))

    def print_sum(self, expr) -> tuple[str, int]:
        """Terms with sizes in order of their text, then the constant; a positive one leads."""
        terms = []
        for term in expr.args:
            negative = term.could_extract_minus_sign()
            terms.append((negative, term.is_number, self.print(-term if negative else term)))
        terms.sort(key=lambda item: (item[1], item[2][0]))
        lead = next((i for i, item in enumerate(terms) if not item[0]), None)
        if lead is None:
            result: tuple[str, int] = ("0", _ATOM)
        else:
            result = terms.pop(lead)[2]
        for negative, _, printed in terms:
            result = self.join("-" if negative else "+", result, printed)
        return result

    def print_product(self, expr) -> tuple[str, int]:
        """Sizes first in order of their text, then the number, then what is divided by."""
        coefficient, factors = expr.as_coeff_mul()
        above, below, numbers = [], [], []
        for factor in factors:
            if isinstance(factor, sympy.Pow) and factor.args[1].is_negative:
                below.append(self.print(sympy.Pow(factor.args[0], -factor.args[1])))
            else:
                (numbers if factor.is_number else above).append(self.print(factor))
        above.sort()
        above += numbers
        below.sort()
        if isinstance(coefficient, sympy.Rational):
            if coefficient.p != 1 or not above:
                above.append(self.print(sympy.Integer(coefficient.p)))
            if coefficient.q != 1:
                below.append(self.print(sympy.Integer(coefficient.q)))
        else:
            above.append(self.print(coefficient))
        result = above[0]
        for factor in above[1:]:
            result = self.join("*", result, factor)
        for factor in below:
            result = self.join("/", result, factor)
        return result

    def print_power(self, base, exponent) -> tuple[str, int]:
        if not isinstance(exponent, sympy.Integer) or not 0 < abs(int(exponent)) <= 8:
            raise SizeError(f"a power of {exponent}")
        result = self.print(base)
        for _ in range(abs(int(exponent)) - 1):
            result = self.join("*", result, self.print(base))
        return result if exponent > 0 else self.join("/", ("1", _ATOM), result)

    def print_function(self, name: str, args) -> tuple[str, int]:
        operators = {
            "FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%",
            "IntTrueDiv": "/", "FloatTrueDiv": "/",
        }  # fmt: skip
        if name in operators:
            return self.binary(operators[name], *args)
        if name in ("Max", "Min"):
            ordered = sorted(self.text(arg) for arg in args)
            result = ordered[0]
            for other in ordered[1:]:
                result = f"{name.lower()}({result}, {other})"
            return result, _ATOM
        if name == "ToFloat":
            return self.binary("/", args[0], sympy.Integer(1))
        if name == "PowByNatural":
            return self.print_power(*args)
        if name == "TruncToInt" and type(args[0]).__name__ == "IntTrueDiv":
            return self.binary("//", *args[0].args)
        if name == "CeilToInt" and type(args[0]).__name__ == "IntTrueDiv":
            above, below = args[0].args
            return self.binary("//", above + below - 1, below)
        raise SizeError(name)

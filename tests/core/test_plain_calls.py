"""The law of transforms and traces: what a function returns for plain numbers is what they compute, or they refuse.

Whatever a float can do is done here to the stand-ins for floats that functions are called with. The answer must be the
float's own, or an error.
"""

import math
import operator
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule

REFUSALS = (TypeError, AttributeError)  # a TracingError is a TypeError

ARGUMENTS = {"__format__": (".3f",), "__round__": (1,), "__divmod__": (0.75,), "__rdivmod__": (7.5,)}
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne")
BINARY = {f"__{side}{name}__" for side in ("", "r") for name in OPERATORS}
OF_THE_CLASS = set(dir(object)) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__format__"}
NOT_ANSWERS = {"__getnewargs__", "__getformat__", "fromhex", "from_number"}

BY_METHOD = {
    name: operator.methodcaller(name, *ARGUMENTS.get(name, (2.5,) if name in BINARY else ()))
    for name in sorted(set(dir(float)) - OF_THE_CLASS - NOT_ANSWERS)
    if callable(getattr(float, name))
}
BY_FUNCTION = {
    "bool": bool,
    "int": int,
    "float": float,
    "abs": abs,
    "round": round,
    "divmod": lambda x: divmod(x, 2),
    "range": lambda x: len(range(x)),
    "index": lambda x: [1.0, 2.0, 3.0][x],
    "Fraction": Fraction,
    "max": lambda x: max(x, 2.0),
    "min": lambda x: min(x, 2.0),
    "sorted": lambda x: sorted([x, 2.0, 3.0])[1],
    "sum": lambda x: sum([x, x]),
    "fsum": lambda x: math.fsum([x, x]),
    "in": lambda x: x in [1.0, 2.5],
    "list.index": [1.0, 2.5].index,
    "list.count": [2.5, 2.5].count,
    "not": lambda x: not x,
    "if": lambda x: 1.0 if x else 2.0,
    "and": lambda x: x and 3.0,
    "==": lambda x: x == 2.5,
    "!=": lambda x: x != 2,
    "== itself": lambda x: x == x * 1.0,
    "is nan": lambda x: x != x,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "isnan": math.isnan,
    "isfinite": math.isfinite,
    "isclose": lambda x: math.isclose(x, 2.5),
    "math.exp": math.exp,
    "math.copysign": lambda x: math.copysign(1.0, x),
    "math.fmod": lambda x: math.fmod(x, 2.0),
    "%": lambda x: x % 2.0,
    "//": lambda x: x // 2.0,
    "np.exp": np.exp,
    "np.sign": np.sign,
    "np.maximum": lambda x: np.maximum(x, 2.0),
    "np.isnan": np.isnan,
    "np.floor": np.floor,
    "np.where": lambda x: float(np.where(x > 2.0, 1.0, 0.0)),
    "np.isclose": lambda x: np.isclose(x, 2.5),
    "np.round": lambda x: np.round(x, 1),
    "np.clip": lambda x: np.clip(x, 0.0, 2.0),
    "np.array_equal": lambda x: np.array_equal([x], [2.5]),
    "np.argmax": lambda x: int(np.argmax([x, 2.0])),
    "np.digitize": lambda x: int(np.digitize(x, [1.0, 2.0])),
    "np.searchsorted": lambda x: int(np.searchsorted([1.0, 2.0], x)),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "hex": lambda x: x.hex(),
    "&": lambda x: (x > 0) & (x < 2),
    "|": lambda x: (x < 0) | (x > 2),
    "^": lambda x: (x > 0) ^ (x > 2),
}
WAYS = {**BY_METHOD, **BY_FUNCTION}


def plain(answer):
    """An answer as one that can be compared: what a Value holds, what a tuple's entries hold.

    A complex number, which Python's power of a negative one is, is NaN here, as it is in IEEE arithmetic.
    """
    if isinstance(answer, complex):
        return math.nan
    if isinstance(answer, (tuple, list)):
        return [plain(entry) for entry in answer]
    return answer.data if isinstance(answer, chainrule.Value) else answer


def along(function):
    return lambda x: chainrule.jvp(function, (x,), (1.0,))


def refused(call):
    try:
        return plain(call())
    except REFUSALS:
        return "refused"


def same(a, b):
    return a is b or a == b or (a != a and b != b)


NUMBERS = (2.5, -2.0, 0.0, math.nan, math.inf)


def expectations(way):
    """(number, answer) wherever a plain call gives one; where NumPy compares objects, it knows nothing of NaN."""
    for number in NUMBERS[:3] if way.startswith("np.") else NUMBERS:
        with np.errstate(all="ignore"), suppress(ValueError, ArithmeticError, *REFUSALS):
            yield number, plain(WAYS[way](number))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("transform", [chainrule.grad, chainrule.jacobian, along], ids=lambda f: f.__name__)
def test_a_stand_in_answers_as_the_number_does_or_refuses(transform, way):
    for number, expected in expectations(way):
        seen = []

        def function(x, seen=seen):
            seen.append(refused(lambda: WAYS[way](x)))
            return x * 1.0

        transform(function)(number)
        assert seen[0] == "refused" or same(seen[0], expected), (number, seen[0], expected)


@pytest.mark.parametrize("way", WAYS)
def test_so_does_a_traced_number(way):
    program = chainrule.compile(lambda x: WAYS[way](x))
    for number, expected in expectations(way):
        found = refused(lambda number=number: program(number))
        assert found == "refused" or same(found, expected), (number, found, expected)


# Random functions that branch on `==` and `<`, between arguments, constants, computed numbers and captured Values.

captured = [chainrule.Value(1.0), chainrule.Value(2.0)]
operands = st.sampled_from(
    ["x", "y", "x * 1.0", "x + y", "1.0", "2.0", "captured[0]", "captured[1]", "x * captured[0]", "y * captured[0]"]
)
comparisons = st.tuples(operands, st.sampled_from(["==", "!=", "<", ">=", "in"]), operands).map(
    lambda parts: f"{parts[0]} in [2.0, {parts[2]}]" if parts[1] == "in" else " ".join(parts)
)
results = st.sampled_from(["x * y", "x", "3.0 * y * y", "x * captured[0]", "y - x"])


@given(
    st.lists(st.tuples(comparisons, results), min_size=1, max_size=4),
    results,
    st.sampled_from([1.0, 2.0, 3.0]),
    st.sampled_from([1.0, 2.0, 4.0]),
)
@settings(max_examples=200, deadline=None)
def test_branching_functions_take_the_plain_call_s_path(branches, otherwise, x, y):
    text = (
        "lambda x, y: "
        + "".join(f"({result}) if {condition} else " for condition, result in branches)
        + f"({otherwise})"
    )
    function = eval(text, {"captured": captured})
    expected = plain(function(x, y))
    value, gradient = chainrule.value_and_grad(function, (0, 1))(x, y)
    assert plain(value) == expected, text
    assert all(map(math.isfinite, plain(gradient)))

"""The op table: every operation, defined once.

A row says what an op computes and how its result responds to each operand. The engines, the C code
generator, the documentation and the tests all read these rows; none of them has an op of its own.

Rules are written over ops and the operators `+ - *`, never over a particular number type, so one rule
serves floats, Values, C source text and whatever else can carry `_apply(op, operands)`:

    tanh = op("tanh", _float(math.tanh), (lambda out, x: 1.0 - out * out,), ...)

A row marked with `c` is *primitive*: its forward is a function of Python floats, and `c` says how C spells
it. Every other forward is composed of primitives. Results follow IEEE 754 as PyTorch does
(`log(0) = -inf`, `1/0 = inf`, overflow to inf, NaN outside the domain); `math`'s exceptions end here.

This file imports nothing of the package, so that the build can load it by path.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from functools import cached_property
from typing import Any

Rule = Callable[..., Any]
Interval = tuple[float, float]

TABLE: dict[str, Op] = {}


class _SignatureOfRow:
    """A row's `__signature__`, made when somebody asks, since `inspect` takes longer to import than all of this."""

    def __get__(self, row: Op | None, kind: type) -> Any:
        if row is None:
            raise AttributeError("the class has the signature of its __init__")
        from inspect import Signature, signature

        operands = list(signature(row.forward).parameters.values())[: row.arity]
        return Signature([operand.replace(annotation=operand.empty) for operand in operands])  # not only of floats


class Op:
    """One row of the table. Calling it applies the op to numbers, Values, or anything with `_apply`.

    >>> TABLE["mul"](2.0, 3.0)
    6.0
    """

    __signature__ = _SignatureOfRow()

    def __init__(
        self,
        name: str,
        forward: Rule,
        partials: tuple[Rule | None, ...],
        *,
        doc: str = "",
        symbol: str = "",
        c: str = "",
        domain: tuple[Interval, ...] = (),
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.name = self.__name__ = self.__qualname__ = name
        self.forward = forward
        self.arity: int = forward.__code__.co_argcount
        self.parameters: tuple[str, ...] = forward.__code__.co_varnames[: self.arity]
        self.defaults: tuple[float, ...] = forward.__defaults__ or ()  # of the last operands
        self.partials = partials  # one per operand, called as partial(out, *operands); None passes no gradient
        self.symbol = symbol or name
        self.c = c
        self.domain = domain or ((-3.0, 3.0),) * self.arity  # where tests sample each operand
        self.aliases = aliases
        self.code = -1  # its place in the table, once registered
        self.__doc__ = doc

    def __call__(self, *operands: Any, **named: Any) -> Any:
        if named or len(operands) != self.arity:
            operands = self.bind(operands, named)
        for operand in operands:
            if type(operand) is not float:
                break
        else:
            return self.forward(*operands)
        carrier = None
        for operand in operands:
            if hasattr(operand, "_apply"):
                carrier = operand
                if getattr(operand, "_takes_over", False):  # a Value can be an operand of a Symbol, but not the reverse
                    break
        if carrier is not None:
            return carrier._apply(self, operands)
        return self.forward(*map(as_float, operands, self.parameters))

    def __repr__(self) -> str:
        return f"<op {self.signature}>"

    @property
    def signature(self) -> str:
        """The call with its operands' names, as in `leaky_relu(x, slope=0.01)`."""
        required = self.arity - len(self.defaults)
        optional = zip(self.parameters[required:], self.defaults, strict=True)
        operands = [*self.parameters[:required], *(f"{name}={value}" for name, value in optional)]
        return f"{self.name}({', '.join(operands)})"

    @cached_property
    def is_general(self) -> bool:
        """Whether the rules run on anything that has `_apply`: they need no floats, and do not branch on operands.

        >>> TABLE["tanh"].is_general
        True
        """
        rules = [(self.forward, self.arity), *[(partial, 1 + self.arity) for partial in self.partials if partial]]
        try:
            for rule, count in rules:
                rule(*[_Probe() for _ in range(count)])
        except Exception:  # whatever a user's rule raises
            return bool(self.c)
        return True

    def bind(self, operands: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All operands in order, from a call that named some or left out those with defaults."""
        positional = dict(zip(self.parameters, operands, strict=False))
        given = dict(zip(self.parameters[self.arity - len(self.defaults) :], self.defaults, strict=True))
        given |= positional | named
        if len(operands) > self.arity or positional.keys() & named.keys() or given.keys() != set(self.parameters):
            got = [repr(operand) for operand in operands] + [f"{k}={v!r}" for k, v in named.items()]
            raise TypeError(f"the call should look like {self.signature}; got {self.name}({', '.join(got)})")
        return tuple(given[name] for name in self.parameters)


def as_float(number: Any, argument: str = "data") -> float:
    """`number` as a float, if it is a real number: int, float, bool, Fraction or a NumPy scalar.

    >>> as_float(True)
    1.0
    """
    if type(number) is float:
        return number
    if isinstance(number, numbers.Real) or _is_numpy_boolean(number):
        try:
            return float(number)
        except OverflowError:
            raise OverflowError(f"`{argument}` is too large for a float") from None
    remedy = "give a real number (int, float, bool, Fraction or a NumPy scalar)"
    if isinstance(number, str):
        remedy = "convert the text with float(...) first"
    elif isinstance(number, complex):
        remedy = "only real numbers have a place here; take .real or .imag"
    elif hasattr(number, "_apply"):
        remedy = "it is a node of a graph already; use it as it is, or take its .data"
    elif hasattr(number, "__len__") or hasattr(number, "shape"):
        remedy = "give one number at a time, as in [Value(x) for x in xs]; take .item() of a one-element array"
    raise TypeError(f"`{argument}` must be a real number, got {_describe(number)}: {remedy}")


def _is_numpy_boolean(number: Any) -> bool:
    """NumPy registers its scalars as `numbers.Real`, except its booleans."""
    kind = type(number)
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


def _describe(thing: Any) -> str:
    kind = type(thing).__name__
    return f"{kind} {thing!r}" if isinstance(thing, (str, complex)) and len(repr(thing)) <= 40 else kind


def register(row: Op) -> Op:
    """Add a row to the table."""
    for name in (row.name, *row.aliases):
        if name in TABLE:
            raise ValueError(f"an op called {name!r} exists already; choose another name")
    row.code = max((other.code for other in TABLE.values()), default=-1) + 1
    TABLE[row.name] = row
    return row


def op(name: str, forward: Rule, partials: tuple[Rule | None, ...], doc: str, **options: Any) -> Op:
    """A row of the table below; `doc` is written as "what it is | call = result"."""
    row = register(Op(name, forward, partials, **options))
    summary, _, example = doc.partition(" | ")
    row.__doc__ = f"`{row.signature}`: {summary}.\n\n>>> {example.replace(' = ', chr(10))}\n"
    return row


def attach(value_class: Any, row: Op) -> None:
    """Make `row` a method of a class that has `_apply`, under its name and NumPy's."""

    for name in (row.name, *row.aliases):
        setattr(value_class, name, _method(value_class, row, name))


def _method(value_class: Any, row: Op, name: str) -> Rule:
    def method(*operands: Any, **named: Any) -> Any:
        if named or len(operands) != row.arity:
            operands = row.bind(operands, named)
        return value_class._apply(row, operands)

    method.__name__, method.__qualname__, method.__doc__ = name, f"Value.{name}", row.__doc__
    method.__wrapped__ = row  # type: ignore[attr-defined]  # whose signature it has
    return method


# Float forwards: `math`, with IEEE results where it would raise.

INF, NAN = math.inf, math.nan


def _float(
    function: Callable[[float], float],
    poles: dict[float, float] | None = None,
    overflow: Callable[[float], float] = lambda x: INF,
) -> Rule:
    def forward(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return poles.get(x, NAN) if poles else NAN
        except OverflowError:
            return overflow(x)

    return forward


def _div(a: float, b: float) -> float:
    try:
        return a / b
    except ZeroDivisionError:
        return NAN if a == 0.0 or a != a else math.copysign(INF, a) * math.copysign(1.0, b)


def _pow(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError):
        odd = abs(math.fmod(exponent, 2.0)) == 1.0
        infinite = base == 0.0 or exponent == math.floor(exponent) or base > 0.0
        return (math.copysign(INF, base) if odd else INF) if infinite else NAN


def _fmod(a: float, b: float) -> float:
    try:
        return math.fmod(a, b)
    except ValueError:
        return NAN


def _crosses(rest: Any, b: Any) -> Any:
    """Whether the rest of a division by b lies on the other side of 0 than b."""
    return ne(rest, 0.0) * ne(lt(b, 0.0), lt(rest, 0.0))


def _mod(rest: Any, b: Any) -> Any:
    return where(_crosses(rest, b), rest + b, rest)


def _floor_of_quotient(a: Any, b: Any, rest: Any) -> Any:
    """a / b rounded down, also where the division itself would round up to a whole number; infinite where b is 0."""
    return rint(div(a - where(eq(b, 0.0), 0.0, rest), b)) - _crosses(rest, b)


def _hypot(x: float, y: float) -> float:
    if x != x or y != y:  # where Python's `abs` may report an overflow that some earlier call left behind
        return INF if INF in (abs(x), abs(y)) else NAN
    try:
        return abs(complex(x, y))  # C's own hypot, which `math.hypot` is not: the engines agree to the last bit
    except OverflowError:
        return INF


def _whole(function: Callable[[float], int]) -> Rule:
    """A way of rounding to a whole number, as a float: infinities, NaN and the sign of zero stay as in C."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


# fmt: off
# Ops that rules above their own rows refer to.
div: Op; pow_: Op; eq: Op; ne: Op; ge: Op; gt: Op; le: Op; lt: Op; where: Op  # noqa: E702
log: Op; cos: Op; sin: Op; cosh: Op; sinh: Op; hypot: Op; rint: Op; trunc: Op  # noqa: E702

# Arithmetic.
add = op("add", lambda a, b: a + b, (lambda out, a, b: 1.0, lambda out, a, b: 1.0),
         "the sum a + b; passes the gradient through | add(2.0, 3.0) = 5.0", symbol="+", c="{} + {}")
sub = op("sub", lambda a, b: a - b, (lambda out, a, b: 1.0, lambda out, a, b: -1.0),
         "the difference a - b | sub(2.0, 3.0) = -1.0", symbol="-", c="{} - {}")
mul = op("mul", lambda a, b: a * b, (lambda out, a, b: b, lambda out, a, b: a),
         "the product a * b; each factor's derivative is the other | mul(2.0, 3.0) = 6.0", symbol="*", c="{} * {}")
div = op("div", _div, (lambda out, a, b: div(1.0, b), lambda out, a, b: -div(out, b)),
         "the quotient a / b | div(1.0, 4.0) = 0.25", symbol="/", c="{} / {}", domain=((-3.0, 3.0), (0.5, 3.0)))
neg = op("neg", lambda x: -x, (lambda out, x: -1.0,),
         "-x | neg(2.0) = -2.0", c="-{}")
pow_ = op("pow", _pow, (
              lambda out, base, exponent: exponent * pow_(base, where(eq(exponent, 0.0), 0.0, exponent - 1.0)),
              lambda out, base, exponent: out * log(where(eq(base, 0.0) * ge(exponent, 0.0), 1.0, base))),
          "base ** exponent, with the gradient of both | pow(2.0, 3.0) = 8.0",
          symbol="**", c="pow({}, {})", domain=((0.2, 3.0), (-2.0, 3.0)))
abs_ = op("abs", lambda x: math.fabs(x), (lambda out, x: gt(x, 0.0) - lt(x, 0.0),),
          "the absolute value; derivative 0 at 0 | abs(-2.0) = 2.0", c="fabs({})", aliases=("fabs",))

fmod = op("fmod", _fmod, (lambda out, a, b: 1.0, lambda out, a, b: -trunc(div(a, b))),
          "what is left of a / b rounded towards 0; has the sign of a | fmod(-5.0, 3.0) = -2.0",
          c="fmod({}, {})", domain=((-2.8, -2.2), (1.5, 2.0)))
mod = op("mod", lambda a, b: _mod(fmod(a, b), b),
         (lambda out, a, b: 1.0, lambda out, a, b: -_floor_of_quotient(a, b, fmod(a, b))),
         "what is left of a / b rounded down; has the sign of b | mod(-5.0, 3.0) = 1.0",
         symbol="%", domain=((2.2, 2.8), (-2.0, -1.5)), aliases=("remainder",))

# Rounding: no gradient.
floor = op("floor", _whole(math.floor), (None,), "the next whole number below | floor(-1.5) = -2.0",
           c="floor({})", domain=((0.6, 0.9),))
ceil = op("ceil", _whole(math.ceil), (None,), "the next whole number above | ceil(1.2) = 2.0",
          c="ceil({})", domain=((0.6, 0.9),))
trunc = op("trunc", _whole(math.trunc), (None,), "the next whole number towards 0 | trunc(-1.5) = -1.0",
           c="trunc({})", domain=((0.6, 0.9),))
rint = op("rint", _whole(round), (None,), "the nearest whole number; of two, the even one | rint(2.5) = 2.0",
          c="rint({})", domain=((0.6, 0.9),), aliases=("round",))

# Comparisons: 1.0 or 0.0, and no gradient.
lt = op("lt", lambda a, b: float(a < b), (None, None),
        "1.0 where a < b, else 0.0 | lt(1.0, 2.0) = 1.0", symbol="<", c="(double)({} < {})")
le = op("le", lambda a, b: float(a <= b), (None, None),
        "1.0 where a <= b, else 0.0 | le(2.0, 2.0) = 1.0", symbol="<=", c="(double)({} <= {})")
gt = op("gt", lambda a, b: float(a > b), (None, None),
        "1.0 where a > b, else 0.0 | gt(1.0, 2.0) = 0.0", symbol=">", c="(double)({} > {})")
ge = op("ge", lambda a, b: float(a >= b), (None, None),
        "1.0 where a >= b, else 0.0 | ge(1.0, 2.0) = 0.0", symbol=">=", c="(double)({} >= {})")
eq = op("eq", lambda a, b: float(a == b), (None, None),
        "1.0 where a == b, else 0.0 | eq(2.0, 2.0) = 1.0", symbol="==", c="(double)({} == {})")
ne = op("ne", lambda a, b: float(a != b), (None, None),
        "1.0 where a != b, else 0.0 | ne(2.0, 2.0) = 0.0", symbol="!=", c="(double)({} != {})")

# Choices.
where = op("where", lambda condition, a, b: a if condition != 0.0 else b,
           (None,
            lambda out, condition, a, b: ne(condition, 0.0),
            lambda out, condition, a, b: eq(condition, 0.0)),
           "a where the condition is not 0, else b; only the chosen side has a gradient"
           " | where(1 > 2, 10.0, 20.0) = 20.0", c="{} != 0.0 ? {} : {}")
maximum = op("maximum", lambda a, b: where(gt(b, a) + ne(b, b), b, a),
             (lambda out, a, b: 1.0 - lt(a, b) - 0.5 * eq(a, b), lambda out, a, b: 1.0 - lt(b, a) - 0.5 * eq(a, b)),
             "the larger of two; equal operands share the gradient; NaN wins | maximum(1.0, 2.0) = 2.0")
minimum = op("minimum", lambda a, b: where(lt(b, a) + ne(b, b), b, a),
             (lambda out, a, b: 1.0 - gt(a, b) - 0.5 * eq(a, b), lambda out, a, b: 1.0 - gt(b, a) - 0.5 * eq(a, b)),
             "the smaller of two; equal operands share the gradient; NaN wins | minimum(1.0, 2.0) = 1.0")
larger = op("larger", lambda a, b: where(gt(b, a) + ne(b, b), b, a), (None, None),
            "the larger of two, through which no gradient passes; NaN wins | larger(1.0, 2.0) = 2.0")
finite = op("finite", lambda x: where(eq(abs_(x), INF), 0.0, x), (None,),
            "x, or 0 if it is infinite; no gradient passes | finite(2.0) = 2.0")
clip = op("clip", lambda x, low, high: minimum(maximum(x, low), high),
          (lambda out, x, low, high: ge(x, low) * le(x, high),
           lambda out, x, low, high: lt(x, low) * lt(low, high),
           lambda out, x, low, high: gt(x, high) + lt(high, low) - gt(x, high) * lt(high, low)),
          "x kept within [low, high]; derivative 1 inside, bounds included | clip(7.0, -1.0, 1.0) = 1.0",
          domain=((-3.0, 3.0), (-2.0, -0.5), (0.5, 2.0)))
sign = op("sign", lambda x: gt(x, 0.0) - lt(x, 0.0), (None,),
          "1 where x is positive, -1 where it is negative, else 0; no gradient | sign(-2.0) = -1.0")

# Exponentials and logarithms.
LOG_2, LOG_10 = 0.6931471805599453, 2.302585092994046
exp = op("exp", _float(math.exp), (lambda out, x: out,),
         "e to the x, its own derivative | exp(0.0) = 1.0", c="exp({})")
expm1 = op("expm1", _float(math.expm1), (lambda out, x: out + 1.0,),
           "exp(x) - 1, exact near 0 | expm1(1e-20) = 1e-20", c="expm1({})")
exp2 = op("exp2", _float(math.exp2), (lambda out, x: out * LOG_2,),
          "2 to the x | exp2(3.0) = 8.0", c="exp2({})")
log = op("log", _float(math.log, {0.0: -INF}), (lambda out, x: div(1.0, x),),
         "the natural logarithm | log(1.0) = 0.0", c="log({})", domain=((0.1, 5.0),))
log1p = op("log1p", _float(math.log1p, {-1.0: -INF}), (lambda out, x: div(1.0, 1.0 + x),),
           "log(1 + x), exact near 0 | log1p(1e-20) = 1e-20", c="log1p({})", domain=((-0.9, 5.0),))
log2 = op("log2", _float(math.log2, {0.0: -INF}), (lambda out, x: div(1.0, x * LOG_2),),
          "the logarithm to base 2 | log2(8.0) = 3.0", c="log2({})", domain=((0.1, 5.0),))
log10 = op("log10", _float(math.log10, {0.0: -INF}), (lambda out, x: div(1.0, x * LOG_10),),
           "the logarithm to base 10 | log10(1000.0) = 3.0", c="log10({})", domain=((0.1, 5.0),))
sqrt = op("sqrt", _float(math.sqrt), (lambda out, x: div(0.5, out),),
          "the square root | sqrt(9.0) = 3.0", c="sqrt({})", domain=((0.1, 5.0),))

# Trigonometry.
sin = op("sin", _float(math.sin), (lambda out, x: cos(x),), "the sine | sin(0.0) = 0.0", c="sin({})")
cos = op("cos", _float(math.cos), (lambda out, x: -sin(x),), "the cosine | cos(0.0) = 1.0", c="cos({})")
tan = op("tan", _float(math.tan), (lambda out, x: 1.0 + out * out,),
         "the tangent | tan(0.0) = 0.0", c="tan({})", domain=((-1.4, 1.4),))
asin = op("asin", _float(math.asin), (lambda out, x: div(1.0, sqrt((1.0 - x) * (1.0 + x))),),
          "the inverse sine | asin(0.0) = 0.0", c="asin({})", domain=((-0.9, 0.9),), aliases=("arcsin",))
acos = op("acos", _float(math.acos), (lambda out, x: -div(1.0, sqrt((1.0 - x) * (1.0 + x))),),
          "the inverse cosine | acos(1.0) = 0.0", c="acos({})", domain=((-0.9, 0.9),), aliases=("arccos",))
atan = op("atan", _float(math.atan), (lambda out, x: div(1.0, 1.0 + x * x),),
          "the inverse tangent | atan(0.0) = 0.0", c="atan({})", aliases=("arctan",))
atan2 = op("atan2", lambda y, x: math.atan2(y, x),
           (lambda out, y, x: where(eq(x * x + y * y, 0.0), 0.0, div(x, x * x + y * y)),
            lambda out, y, x: where(eq(x * x + y * y, 0.0), 0.0, -div(y, x * x + y * y))),
           "the angle of the point (x, y); derivatives 0 at the origin | atan2(0.0, 1.0) = 0.0",
           c="atan2({}, {})", aliases=("arctan2",))
hypot = op("hypot", _hypot, (lambda out, x, y: div(x, out), lambda out, x, y: div(y, out)),
           "the distance sqrt(x² + y²), without overflow on the way | hypot(3.0, 4.0) = 5.0", c="hypot({}, {})")
DEGREES, RADIANS = 57.29577951308232, 0.017453292519943295
degrees = op("degrees", lambda x: x * DEGREES, (lambda out, x: DEGREES,),
             "an angle in degrees, from radians | degrees(0.0) = 0.0", aliases=("rad2deg",))
radians = op("radians", lambda x: x * RADIANS, (lambda out, x: RADIANS,),
             "an angle in radians, from degrees | radians(180.0) = 3.141592653589793", aliases=("deg2rad",))

# Hyperbolic functions.
sinh = op("sinh", _float(math.sinh, overflow=lambda x: math.copysign(INF, x)), (lambda out, x: cosh(x),),
          "the hyperbolic sine | sinh(0.0) = 0.0", c="sinh({})")
cosh = op("cosh", _float(math.cosh), (lambda out, x: sinh(x),),
          "the hyperbolic cosine | cosh(0.0) = 1.0", c="cosh({})")
tanh = op("tanh", _float(math.tanh), (lambda out, x: 1.0 - out * out,),
          "the hyperbolic tangent, right for every float | tanh(1000.0) = 1.0", c="tanh({})")

asinh = op("asinh", _float(math.asinh), (lambda out, x: div(1.0, hypot(1.0, x)),),
           "the inverse hyperbolic sine | asinh(0.0) = 0.0", c="asinh({})", aliases=("arcsinh",))
acosh = op("acosh", _float(math.acosh), (lambda out, x: div(1.0, sqrt((abs_(x) - 1.0) * (abs_(x) + 1.0))),),
           "the inverse hyperbolic cosine | acosh(1.0) = 0.0", c="acosh({})",
           domain=((1.2, 5.0),), aliases=("arccosh",))
atanh = op("atanh", _float(math.atanh, {1.0: INF, -1.0: -INF}), (lambda out, x: div(1.0, (1.0 - x) * (1.0 + x)),),
           "the inverse hyperbolic tangent | atanh(0.0) = 0.0", c="atanh({})",
           domain=((-0.9, 0.9),), aliases=("arctanh",))

# The error function.
TWO_OVER_SQRT_PI, SQRT_HALF, ONE_OVER_SQRT_TWO_PI = 1.1283791670955126, 0.7071067811865476, 0.3989422804014327
erf = op("erf", _float(math.erf), (lambda out, x: TWO_OVER_SQRT_PI * exp(-(x * x)),),
         "the error function | erf(0.0) = 0.0", c="erf({})")
erfc = op("erfc", _float(math.erfc), (lambda out, x: -TWO_OVER_SQRT_PI * exp(-(x * x)),),
          "1 - erf(x), exact in the tail | erfc(0.0) = 1.0", c="erfc({})")

# Activations.
sigmoid = op("sigmoid", lambda x: div(1.0, 1.0 + exp(-x)), (lambda out, x: out * (1.0 - out),),
             "1 / (1 + exp(-x)) | sigmoid(0.0) = 0.5")
# Its slope is asked of the result, which what follows reads anyway: x need not be kept for the way back.
relu = op("relu", lambda x: where(lt(x, 0.0), 0.0, x), (lambda out, x: 1.0 - le(out, 0.0),),
          "x where positive, else 0; derivative 0 at 0 | relu(-2.0) = 0.0")
leaky_relu = op("leaky_relu", lambda x, slope=0.01: where(gt(x, 0.0), x, x * slope),
                (lambda out, x, slope: where(gt(x, 0.0), 1.0, slope),
                 lambda out, x, slope: where(gt(x, 0.0), 0.0, x)),
                "x where positive, else slope * x | leaky_relu(-2.0) = -0.02")
elu = op("elu", lambda x, alpha=1.0: where(le(x, 0.0), alpha * expm1(x), x),
         (lambda out, x, alpha: where(le(x, 0.0), alpha * exp(where(le(x, 0.0), x, 0.0)), 1.0),
          lambda out, x, alpha: where(le(x, 0.0), expm1(where(le(x, 0.0), x, 0.0)), 0.0)),
         "x where positive, else alpha * (exp(x) - 1) | elu(-1.0) = -0.6321205588285577")
softplus = op("softplus", lambda x: maximum(x, 0.0) + log1p(exp(-abs_(x))), (lambda out, x: sigmoid(x),),
              "log(1 + exp(x)) without overflow | softplus(1000.0) = 1000.0")
silu = op("silu", lambda x: x * sigmoid(x), (lambda out, x: sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),),
          "x * sigmoid(x), also called swish | silu(0.0) = 0.0")
gelu = op("gelu", lambda x: x * (0.5 * erfc(-x * SQRT_HALF)),
          (lambda out, x: 0.5 * erfc(-x * SQRT_HALF) + x * (ONE_OVER_SQRT_TWO_PI * exp(-0.5 * (x * x))),),
          "x times the normal distribution function at x | gelu(0.0) = 0.0")
# fmt: on
BUILT_IN = tuple(TABLE.values())  # the rows above; users add others


def _operators(op: Op) -> tuple[Rule, Rule]:
    """A Carrier's methods for `self ∘ other`, and for `other ∘ self` where `other` does not know the Carrier."""
    return lambda self, other: self._operate(op, (self, other)), lambda self, other: self._operate(op, (other, self))


class Carrier:
    """A kind of number that rules can run on: `_apply(op, operands)` says what an op returns, and operators apply ops.

    There are no comparisons here: without a `__bool__` that refuses, a rule that branches on one would take the first
    branch whatever the number is.
    """

    __slots__ = ()

    def _apply(self, op: Op, operands: tuple[Any, ...]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define `_apply(self, op, operands)`")

    def _operate(self, op: Op, operands: tuple[Any, ...]) -> Any:
        """What an operator returns: where a subclass does not know the other operand, that can be NotImplemented."""
        return self._apply(op, operands)

    __add__, __radd__ = _operators(add)
    __sub__, __rsub__ = _operators(sub)
    __mul__, __rmul__ = _operators(mul)
    __truediv__, __rtruediv__ = _operators(div)
    __mod__, __rmod__ = _operators(mod)
    __pow__, __rpow__ = _operators(pow_)

    def __neg__(self) -> Any:
        return self._apply(neg, (self,))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._apply(abs_, (self,))


class _Probe(Carrier):
    """A number of which nothing can be found out."""

    def _apply(self, op: Op, operands: tuple[Any, ...]) -> Any:
        return _Probe()

    def _ask(self, *_: object) -> Any:
        raise TypeError("a rule must not branch on its operands")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _ask

"""Symbols: the numbers that a function is traced on.

A Symbol has no number yet. Arithmetic on it, alone or together with Values and plain numbers, records nodes as
arithmetic on Values does, and `graph.graph_of` lays both kinds out flat. Whatever would need the number itself
(`if x > 0`, `float(x)`, `x.data`) would freeze one example's answer into the program, so it is an error that names the
user's line. So it is for a Value that the function captures: it has a number, but may have another at the next call.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, NoReturn

from chainrule import ops
from chainrule.core.recording import detach
from chainrule.core.tracing import is_tracing, traced
from chainrule.core.value import Value

PACKAGE = os.path.dirname(os.path.abspath(ops.__file__)) + os.sep
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep

BRANCH = (
    "write a choice as chainrule.where(condition, a, b), max(a, b) as chainrule.maximum(a, b), min(a, b) as "
    "chainrule.minimum(a, b), and `p and q` as the product (p) * (q)"
)
NUMBER = "use chainrule's functions (chainrule.exp(x) for math.exp(x)), and read numbers from the result of the call"
ROUND = "write chainrule.rint(x) for round(x), or chainrule.floor, ceil or trunc, and read numbers from the result"
WHOLE = (
    "a number that decides the shape of the computation (a count, an index) must be fixed: "
    "let the function capture it, as with functools.partial, or choose with chainrule.where"
)
CAPTURED = (
    "compute with the Value itself, by chainrule's functions (chainrule.maximum, where, softmax, exp ...), "
    "or give the number as an argument"
)
NUMBERS = (
    "call the compiled function itself, which then becomes part of this one, or call it outside and pass the result"
)
KEYS = "compare it, as in chainrule.where(x == 2.0, a, b), or let the function capture what does not change"
CONDITIONS = "compare each with something, as in (x > 0) & (y > 0)"
OPPOSITE = "write the opposite comparison (x <= 0 for the opposite of x > 0), or 1.0 - (condition)"
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
CHANGES = "whose number may be another at the next call"
AS_IT_IS = (
    "a traced number is a node of the graph already, so write x for Value(x); "
    "and functions take it where a Value's methods do not, so write chainrule.maximum(w, x) for w.maximum(x)"
)


class TracingError(TypeError):
    """A function that is being traced asked for a number that only a call has; says where, and what to write instead.

    >>> from chainrule.compiler import compile
    >>> compile(lambda x: 1.0 if x > 0 else 2.0)(3.0)
    Traceback (most recent call last):
    ...
    chainrule.compiler.trace.symbols.TracingError: ...chainrule.where...
    """


class Symbol:
    """A number that is not known yet: an argument of a traced function (its `place` among them), or a result.

    >>> x = Symbol.argument(0)
    >>> x * Value(2.0) + 1.0
    Symbol(+)
    """

    __slots__ = ("_operands", "_rule", "_serial", "place")

    _constant = False
    requires_grad = True
    _takes_over = True  # in an op on Symbols and Values
    __array_priority__ = -1.0  # as for Value: NumPy scalars leave arithmetic to it, arrays go element by element

    def __init__(self, rule: ops.Op | None, operands: tuple[Any, ...], place: int = -1) -> None:
        self._rule = rule
        self._operands = operands
        self._serial = next_serial()
        self.place = place

    @classmethod
    def argument(cls, place: int) -> Symbol:
        """The number at `place` among the arguments."""
        return cls(None, (), place)

    @staticmethod
    def _apply(rule: ops.Op, operands: tuple[Any, ...]) -> Symbol:
        return Symbol(rule, tuple([o if isinstance(o, (Symbol, Value)) else Constant(o) for o in operands]))

    def __repr__(self) -> str:
        return f"Symbol({self._rule.symbol})" if self._rule else f"Symbol(argument {self.place})"

    def __getattr__(self, name: str) -> Any:
        row = ops.TABLE.get(name)  # an op that a user added
        if row is None:
            raise AttributeError(f"a traced number has no attribute {name!r}")
        return lambda *operands, **named: row(self, *operands, **named)

    # Arithmetic.

    def __add__(self, other: Any) -> Symbol:
        return _binary(ops.add, self, other)

    def __radd__(self, other: Any) -> Symbol:  # other + self
        return _binary(ops.add, other, self)

    def __sub__(self, other: Any) -> Symbol:
        return _binary(ops.sub, self, other)

    def __rsub__(self, other: Any) -> Symbol:  # other - self
        return _binary(ops.sub, other, self)

    def __mul__(self, other: Any) -> Symbol:
        return _binary(ops.mul, self, other)

    def __rmul__(self, other: Any) -> Symbol:  # other * self
        return _binary(ops.mul, other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return _binary(ops.div, self, other)

    def __rtruediv__(self, other: Any) -> Symbol:  # other / self
        return _binary(ops.div, other, self)

    def __mod__(self, other: Any) -> Symbol:
        return _binary(ops.mod, self, other)

    def __rmod__(self, other: Any) -> Symbol:  # other % self
        return _binary(ops.mod, other, self)

    def __pow__(self, other: Any) -> Symbol:
        return _binary(ops.pow_, self, other)

    def __rpow__(self, other: Any) -> Symbol:  # other ** self
        return _binary(ops.pow_, other, self)

    def __neg__(self) -> Symbol:
        return self._apply(ops.neg, (self,))

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return self._apply(ops.abs_, (self,))

    def conjugate(self) -> Symbol:
        """The number itself, as of every real one."""
        return self

    # Comparisons are conditions: 1.0 or 0.0 once the number is known.

    def __lt__(self, other: Any) -> Symbol:
        return _binary(ops.lt, self, other)

    def __le__(self, other: Any) -> Symbol:
        return _binary(ops.le, self, other)

    def __gt__(self, other: Any) -> Symbol:
        return _binary(ops.gt, self, other)

    def __ge__(self, other: Any) -> Symbol:
        return _binary(ops.ge, self, other)

    def __eq__(self, other: Any) -> Symbol:  # type: ignore[override]
        return _binary(ops.eq, self, other)

    def __ne__(self, other: Any) -> Symbol:  # type: ignore[override]
        return _binary(ops.ne, self, other)

    def __hash__(self) -> int:
        if is_tracing() and _is_users(sys._getframe(1)):
            _refuse("looks a traced number up in a set, a dict or a cache", KEYS)
        return object.__hash__(self)

    # Conditions are joined as Python joins the True and False that comparisons of numbers give.

    def __and__(self, other: Any) -> Symbol:
        return _joined(ops.mul, self, other)

    def __or__(self, other: Any) -> Symbol:
        return _joined(ops.larger, self, other)

    def __xor__(self, other: Any) -> Symbol:
        return _joined(ops.ne, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> NoReturn:
        _refuse("inverts a condition by `~`", OPPOSITE, "and ~True is -2 in Python, which is true as well")

    # What needs the number.

    def __bool__(self) -> NoReturn:
        if self._rule is None or self._rule.name not in COMPARISONS:
            _refuse("branches on a traced number", BRANCH)
        if any(isinstance(operand, Symbol) for operand in self._operands):
            _refuse("branches on a comparison of traced numbers", BRANCH, "which have no numbers yet")
        _refuse("branches on a comparison of a Value", BRANCH, CHANGES)

    def __float__(self) -> NoReturn:
        _refuse("turns a traced number into a float", NUMBER)

    def __complex__(self) -> NoReturn:
        _refuse("turns a traced number into a complex one", NUMBER)

    def __int__(self) -> NoReturn:
        _refuse("turns a traced number into an int", WHOLE)

    def __index__(self) -> NoReturn:
        _refuse("uses a traced number as an index or a count", WHOLE)

    def __round__(self, digits: int = 0) -> NoReturn:
        _refuse("rounds a traced number", ROUND)

    def __floor__(self) -> NoReturn:
        _refuse("rounds a traced number", ROUND)

    def __ceil__(self) -> NoReturn:
        _refuse("rounds a traced number", ROUND)

    def __trunc__(self) -> NoReturn:
        _refuse("rounds a traced number", ROUND)

    def __iter__(self) -> NoReturn:
        _refuse("iterates over a traced number", "give the function a list where it expects one")

    def __format__(self, spec: str) -> str:
        if spec:
            _refuse("formats a traced number", "print the result of the call instead, or the number without a format")
        return repr(self)

    @property
    def data(self) -> NoReturn:
        """Not known while tracing."""
        _refuse("reads `.data` of a traced number", NUMBER)

    @property
    def grad(self) -> NoReturn:
        """Not known while tracing."""
        _refuse("reads `.grad` of a traced number", "call the compiled function first; it fills in the gradients")

    def must_be_class(self, classes: int) -> None:
        """Every call is to check that this number, if it is an argument, is the index of one of so many classes."""
        if self.place >= 0:
            _this_thread.classes[self.place] = min(classes, _this_thread.classes.get(self.place, classes))

    def detach(self) -> Symbol:
        """The same number, through which no gradient passes."""
        return detach(self)  # type: ignore[no-any-return]

    def backward(self, seed: float = 1.0) -> NoReturn:
        """Not while tracing: a compiled function differentiates by itself."""
        _refuse("calls backward() on a traced number", "return it; a call of the compiled function runs backward")

    def _backward(self) -> None:
        """Every Symbol was made by a row of the op table."""


for _row in ops.TABLE.values():
    ops.attach(Symbol, _row)


class Constant:
    """A plain number that met a Symbol."""

    __slots__ = ("_serial", "data")

    _constant = True
    _operands = ()
    _rule = None
    _op = ""

    def __init__(self, number: Any) -> None:
        self.data = ops.as_float(number, "operand")
        self._serial = next_serial()

    def _backward(self) -> None:
        """Passes nothing on."""


class _Thread(threading.local):
    refusal: TracingError | None = None  # the first of a trace; code that catches it would go on with other numbers
    classes: dict[int, int] = {}  # noqa: RUF012  # replaced at the start of a trace


_this_thread = _Thread()


@contextmanager
def tracing() -> Iterator[dict[int, int]]:
    """While a function is traced, errors about Symbols and captured Values name the user's line.

    Gives a dict that will hold the arguments that must be indices of classes, by place, and how many classes there are.
    """
    before = _this_thread.classes, _this_thread.refusal
    _this_thread.classes, _this_thread.refusal = {}, None
    try:
        with traced(_look):
            yield _this_thread.classes
        if _this_thread.refusal is not None:
            raise _this_thread.refusal
    except TracingError:
        raise
    except TypeError as error:
        if "Symbol" not in str(error) or (place := _users_place(error.__traceback__)) is None:
            raise
        raise TracingError(f"{_line(*place)} does not accept a traced number ({error}): {AS_IT_IS}") from error
    finally:
        _this_thread.classes, _this_thread.refusal = before


def refuse_numbers(deed: str, remedy: str = NUMBERS) -> None:
    """While a function is traced, refuse what compiled code would answer with plain numbers."""
    if is_tracing():
        _refuse(deed, remedy, "which gives plain numbers")


def _look(deed: str | ops.Op, left: Any = None, right: Any = None) -> Any:
    """A look at the number of a Value: an error while this thread is tracing; but comparisons are conditions then."""
    if not is_tracing():
        return None
    if isinstance(deed, str):
        _refuse(deed, BRANCH if deed.startswith("branches") else CAPTURED, CHANGES)
    condition = _binary(deed, left, right)
    return None if condition is NotImplemented else condition


def next_serial() -> int:
    """Symbols and Values are ordered by one count of creations, which is that of Values."""
    return Value(0.0)._serial


def _binary(rule: ops.Op, left: Any, right: Any) -> Symbol:
    try:
        return Symbol._apply(rule, (left, right))
    except TypeError:  # not a number: let the other operand try
        return NotImplemented  # type: ignore[no-any-return]


def _joined(rule: ops.Op, left: Symbol, right: Any) -> Symbol:
    """The condition that two conditions make."""
    if _is_condition(left) and _is_condition(right):
        return Symbol._apply(rule, (left, right))
    if isinstance(right, Symbol) or not hasattr(right, "__len__"):
        _refuse("joins numbers by `&`, `|` or `^`, which only conditions can be joined by", CONDITIONS)
    return NotImplemented  # type: ignore[no-any-return]  # an array, which goes element by element


def _is_condition(given: Any) -> bool:
    if isinstance(given, Constant):
        return given.data in (0.0, 1.0)
    if not isinstance(given, Symbol):
        return isinstance(given, bool) or type(given).__name__ in ("bool_", "bool")  # Python's or NumPy's
    if given._rule is None:
        return False
    joins = given._rule in (ops.mul, ops.larger) and all(map(_is_condition, given._operands))
    return given._rule.name in COMPARISONS or joins


def _refuse(deed: str, remedy: str, why: str = "which has no number yet") -> NoReturn:
    frame: FrameType | None = sys._getframe(1)
    while frame and not _is_users(frame):
        frame = frame.f_back
    place = _line(frame.f_code.co_filename, frame.f_lineno) if frame else "the traced function"
    error = TracingError(f"{place} {deed}, {why}: {remedy}")
    if is_tracing() and deed.startswith(("branches", "reads", "turns")):  # others may be asked by who has another way
        _this_thread.refusal = _this_thread.refusal or error
    raise error


def _users_place(traceback: TracebackType | None) -> tuple[str, int] | None:
    """The file and line of the innermost frame that is the user's."""
    found = None
    while traceback:
        if _is_users(traceback.tb_frame):
            found = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def _is_users(frame: FrameType) -> bool:
    """Whether the code is neither ours nor a library's."""
    name = frame.f_code.co_filename
    return not name.startswith((PACKAGE, STANDARD_LIBRARY)) and "site-packages" not in name


def _line(filename: str, number: int) -> str:
    code = linecache.getline(filename, number).strip()
    return f"{filename}:{number}: `{code}`" if code else f"{filename}:{number}:"

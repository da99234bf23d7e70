"""Symbols: the numbers that a function is traced on.

A Symbol has no number yet. Arithmetic on Symbols, Values and plain numbers records nodes, as arithmetic on Values does,
and `graph_of` lays out both kinds flat. Code that asks whether a condition is true (`if x > 0`) goes one way, which is
noted (see `branches`). Code that needs the number itself (`float(x)`, `x.data`) would freeze one example's number into
the program, so it raises an error that names the user's line. The same goes for a Value that the function captures: it
has a number, but that number may change before the next call.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from chainrule import ops
from chainrule.compiler.trace.branches import Branches, Place, UnknownNumberError, line_at
from chainrule.core.code_lines import is_ours
from chainrule.core.recording import current_tracer, detach, is_tracing, traced
from chainrule.core.value import ENGINE, Value

if ENGINE == "native":
    from chainrule import _native

STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep

BRANCH = (
    "write a choice as chainrule.where(condition, a, b), max(a, b) as chainrule.maximum(a, b), min(a, b) as "
    "chainrule.minimum(a, b), and `p and q` as the product (p) * (q)"
)
NUMBER = "use chainrule's functions (chainrule.exp(x) for math.exp(x)), and read numbers from the result of the call"
ROUND = "write chainrule.rint(x) for round(x), or chainrule.floor, ceil or trunc, and read numbers from the result"
QUOTIENT = "write chainrule.floor(x / y) for x // y, and that with x % y for divmod(x, y)"
WHOLE = (
    "a number that decides the shape of the computation (a count, an index) must be fixed: let the function capture "
    "it, as with functools.partial, or choose with chainrule.where"
)
CHOICE = "write `b if condition else a` for `[a, b][condition]`, or chainrule.where(condition, b, a)"
CAPTURED = (
    "compute with the Value itself, by chainrule's functions (chainrule.maximum, where, softmax, exp ...), or give the "
    "number as an argument"
)
NUMBERS = (
    "call the compiled function itself, which then becomes part of this one, or call it outside and pass the result"
)
KEYS = "compare it, as in chainrule.where(x == 2.0, a, b), or let the function capture what does not change"
MASK = "compare, and each number is asked, as in x[mask > 0]; or choose with chainrule.where(condition, a, b)"
CONDITIONS = "compare each with something, as in (x > 0) & (y > 0)"
OPPOSITE = "write the opposite comparison (x <= 0 for the opposite of x > 0), or 1.0 - (condition)"
EARLIER = "uses a traced number of an earlier trace"
CAUGHT = (
    "and the traced function caught it, so that the path would be the same for all numbers: test the numbers before "
    "the op, or run the function eagerly"
)
KEPT = "which some variable outside of it kept"
STORE = "return such a number, or give it as an argument, rather than storing it"
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
CHANGES = "whose number may be different at the next call"
OUTSIDE = "do it before the call, or after it"
ONCE = "which would happen while the function is traced, and not at later calls"
MOST_CONDITIONS = 500_000  # of one call: they take a gigabyte
ENDLESS = "if this loop does not end, give it a tolerance that rounding can reach, or a largest number of turns"
COPIES = "copy the lists and not the numbers, as in [row[:] for row in rows] or array.copy()"
AS_IT_IS = (
    "a traced number is a node of the graph already, so write x for Value(x); and functions take it where a Value's "
    "methods do not, so write chainrule.maximum(w, x) for w.maximum(x)"
)


class TracingError(TypeError):
    """A function that is being traced asked for a number that only a call has. Says where, and what to write instead.

    >>> from chainrule.compiler import compile
    >>> compile(lambda x: 2.0 * x.data)(3.0)
    Traceback (most recent call last):
    ...
    chainrule.compiler.trace.symbols.TracingError: ...reads `.data`...
    """


def _condition(rule: ops.Op) -> Callable[[Any, Any], Any]:
    """The method for a comparison: a condition that is 1.0 or 0.0 once the numbers are known."""
    return lambda self, other: _compared(rule, self, other)


def _compared(rule: ops.Op, left: Any, right: Any) -> Any:
    """The condition; or the answer where eager code compares nodes, which are equal if they are the same one."""
    if rule in (ops.eq, ops.ne) and _is_value(left) and _is_value(right):
        return (left is right) == (rule is ops.eq)
    try:
        condition = Symbol._apply(rule, (left, right))
    except TypeError:  # not a number: let the other operand try
        return NotImplemented
    condition._is_value = False
    return condition


def _is_value(given: Any) -> bool:
    """Whether it would be a Value if the function were called on plain numbers: it depends on a captured Value."""
    if not isinstance(given, (Symbol, Value)):
        return False
    seen, pending, found = {id(given)}, [given], False
    while pending and not found:
        node = pending.pop()
        known = getattr(node, "_is_value", None)
        found = bool(known) or (isinstance(node, Value) and not (node._constant or node._operands))
        fresh = [operand for operand in node._operands if known is None and id(operand) not in seen]
        seen.update(map(id, fresh))
        pending += fresh
    if isinstance(given, Symbol):
        given._is_value = found
    return found


def _joining(rule: ops.Op) -> Callable[[Any, Any], Any]:
    """The method for `&`, `|` or `^`, which join conditions as Python joins True and False."""

    def joined(left: Symbol, right: Any) -> Symbol:
        if _is_condition(left) and _is_condition(right):
            return Symbol._apply(rule, (left, right))
        if isinstance(right, Symbol) or not hasattr(right, "__len__"):
            _refuse("joins numbers by `&`, `|` or `^`, which only conditions can be joined by", CONDITIONS)
        return NotImplemented  # type: ignore[no-any-return]  # an array: goes element by element

    return joined


def _refused(deed: str, remedy: str, *why: str) -> Callable[..., NoReturn]:
    """The method for something that needs the number."""
    return lambda self, *arguments: _refuse(deed, remedy, *why)


class _Made(ops.Carrier):
    """What a Symbol holds, and how operators make it; the native engine has the same."""

    __slots__ = ("_is_value", "_operands", "_rule", "_serial", "place")

    def __init__(self, rule: ops.Op | None, operands: tuple[Any, ...], place: int = -1) -> None:
        self._rule, self._operands = rule, operands
        self._serial, self.place = next_serial(), place
        self._is_value: bool | None = None  # unknown

    @staticmethod
    def _apply(op: ops.Op, operands: tuple[Any, ...]) -> Symbol:
        return Symbol(op, tuple([o if isinstance(o, (Symbol, Value)) else Constant(o) for o in operands]))

    @staticmethod
    def _operate(op: ops.Op, operands: tuple[Any, ...]) -> Symbol:
        try:
            return Symbol._apply(op, operands)
        except TypeError:  # not a number: let the other operand try
            return NotImplemented  # type: ignore[no-any-return]


if ENGINE == "native" and not TYPE_CHECKING:

    class _Made(_native.Symbol, ops.Carrier):
        """The same in C, where a node costs a tenth."""

        __slots__ = ()


class Symbol(_Made):
    """A number that is not known yet: an argument of a traced function (its `place` among them), or a result.

    >>> x = Symbol.argument(0)
    >>> x * Value(2.0) + 1.0
    Symbol(+)
    """

    __slots__ = ()

    _constant = False
    requires_grad = True
    _takes_over = True  # in an op on Symbols and Values
    __array_priority__ = -1.0  # as in Value: NumPy scalars defer to it, arrays go element by element

    @classmethod
    def argument(cls, place: int) -> Symbol:
        """The number at `place` among the arguments."""
        return cls(None, (), place)

    def __repr__(self) -> str:
        return f"Symbol({self._rule.symbol})" if self._rule else f"Symbol(argument {self.place})"

    def __getattr__(self, name: str) -> Any:
        row = ops.TABLE.get(name)  # an op that a user added
        if row is None:
            raise AttributeError(f"a traced number has no attribute {name!r}")
        return lambda *operands, **named: row(self, *operands, **named)

    def conjugate(self) -> Symbol:
        """The number itself, as for every real number."""
        return self

    __lt__, __le__ = _condition(ops.lt), _condition(ops.le)
    __gt__, __ge__ = _condition(ops.gt), _condition(ops.ge)
    __eq__, __ne__ = _condition(ops.eq), _condition(ops.ne)
    __and__ = __rand__ = _joining(ops.mul)
    __or__ = __ror__ = _joining(ops.larger)
    __xor__ = __rxor__ = _joining(ops.ne)
    __invert__ = _refused("inverts a condition by `~`", OPPOSITE, "and ~True is -2 in Python, which is true as well")

    def __hash__(self) -> int:
        if is_tracing() and _is_users(sys._getframe(1)):
            _refuse("looks a traced number up in a set, a dict or a cache", KEYS)
        return object.__hash__(self)

    def __bool__(self) -> bool:
        branches = _this_thread.branches
        if branches is None:
            _refuse("branches on a traced number", BRANCH)
        if len(branches.met) >= MOST_CONDITIONS:
            _refuse(f"asks for more than {MOST_CONDITIONS:,} conditions", ENDLESS, "which a trace has to remember")
        place = _users_frame(sys._getframe(1))
        try:
            return branches.is_true(self, place)
        except UnknownNumberError:
            _refuse(EARLIER, STORE, KEPT)
        except Exception as error:  # of a user's op. Code that catches it takes a path that no guard would guard
            caught = TracingError(f"{line_at(place)} raised {error!r} while a condition was computed, {CAUGHT}")
            _this_thread.refusal = _this_thread.refusal or caught
            raise

    __float__ = _refused("turns a traced number into a float", NUMBER)
    __complex__ = _refused("turns a traced number into a complex one", NUMBER)
    __int__ = _refused("turns a traced number into an int", WHOLE)
    __round__ = __floor__ = __ceil__ = __trunc__ = _refused("rounds a traced number", ROUND)
    __iter__ = _refused("iterates over a traced number", "give the function a list where it expects one")

    def __index__(self) -> NoReturn:
        if _is_condition(self):
            _refuse("uses a condition as an index or a count", CHOICE)
        _refuse("uses a traced number as an index or a count", WHOLE)

    def __copy__(self, memo: Any = None) -> Symbol:
        """The number itself, as for every float; a Value that was computed from captured ones would be copied."""
        if _is_value(self):
            _refuse(
                "copies what was computed from a captured Value", COPIES, "and a copy does not pass on its gradient"
            )
        return self

    __deepcopy__ = __copy__
    data = property(_refused("reads `.data` of a traced number", NUMBER))
    grad = property(
        _refused("reads `.grad` of a traced number", "call the compiled function first; it fills in the gradients")
    )

    def __format__(self, spec: str) -> str:
        if spec:
            _refuse("formats a traced number", "print the result of the call instead, or the number without a format")
        return repr(self)

    def must_be_class(self, classes: int) -> None:
        """Make every call check that this number, if it is an argument, is a class index below `classes`."""
        if self.place >= 0:
            _this_thread.classes[self.place] = min(classes, _this_thread.classes.get(self.place, classes))

    def detach(self) -> Symbol:
        """The same number, through which no gradient passes."""
        return detach(self)  # type: ignore[no-any-return]

    def backward(self, seed: float = 1.0) -> NoReturn:
        """Refused while tracing: a compiled function differentiates by itself."""
        _refuse("calls backward() on a traced number", "return it; a call of the compiled function runs backward")

    def _backward(self) -> None:
        """Every Symbol was made by a row of the op table."""


for _row in ops.BUILT_IN:  # others may be defined anew, and are looked up when they are called
    ops.attach(Symbol, _row)


class Constant:
    """A plain number in an op with a Symbol."""

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


if ENGINE == "native":
    _native.make_symbols(Symbol, Constant)


class _Thread(threading.local):
    branches: Branches | None = None  # of the trace under way
    refusal: TracingError | None = None  # the first of a trace: code that caught it would continue with other numbers
    classes: dict[int, int] = {}  # noqa: RUF012  # replaced at the start of a trace


_this_thread = _Thread()


@contextmanager
def tracing(branches: Branches | None = None, defers: bool = False) -> Iterator[dict[int, int]]:
    """While a function is traced, errors about Symbols and captured Values name the user's line.

    Conditions are answered by `branches`. If the trace `defers`, derivatives become nodes of op `Derivatives`;
    otherwise they are nodes like all others. Yields a dict that will map the places of arguments that must be class
    indices to their number of classes.
    """
    before = _this_thread.classes, _this_thread.refusal, _this_thread.branches
    _this_thread.classes, _this_thread.refusal, _this_thread.branches = {}, None, branches
    try:
        with traced(_Tracer(defers)):
            yield _this_thread.classes
        if _this_thread.refusal is not None:
            raise _this_thread.refusal
    except TracingError:
        raise
    except TypeError as error:
        if "Symbol" not in str(error) or (place := _users_place(error.__traceback__)) is None:
            raise
        remedy = QUOTIENT if re.search("//|divmod", str(error)) else AS_IT_IS
        raise TracingError(f"{line_at(place)} does not accept a traced number ({error}): {remedy}") from error
    except IndexError as error:
        if "indices" not in str(error) or (place := _users_place(error.__traceback__)) is None:
            raise
        why = f"traced numbers, which have no number yet, are no index and no mask ({error})"
        raise TracingError(f"{line_at(place)} uses an index that NumPy refuses; {why}: {MASK}") from error
    finally:
        _this_thread.classes, _this_thread.refusal, _this_thread.branches = before


def refuse_numbers(deed: str, remedy: str = NUMBERS) -> None:
    """While a function is traced, refuse a call that would return plain numbers."""
    if tracer := current_tracer():
        tracer.refuse(deed, remedy)


class _Tracer:
    """What `core.recording` asks of a trace on Symbols."""

    def __init__(self, defers: bool) -> None:
        self.defers = defers

    def look(self, deed: str | ops.Op, left: Any = None, right: Any = None) -> Any:
        """Called when a Value's number is read or set. While this thread traces, only comparisons may read: they are
        conditions.
        """
        if not is_tracing():
            return None
        if isinstance(deed, str):
            _refuse(deed, *((OUTSIDE, ONCE) if deed.startswith("sets") else (CAPTURED, CHANGES)))
        condition = _compared(deed, left, right)
        return None if condition is NotImplemented else condition

    def refuse(self, deed: str, remedy: str) -> NoReturn:
        _refuse(deed, remedy, "which returns plain numbers")

    def apply(self, rule: ops.Op, operands: tuple[Any, ...]) -> Symbol:
        return Symbol._apply(rule, operands)


def next_serial() -> int:
    """The next number in the order of creation, which Symbols share with Values."""
    return Value(0.0)._serial


def _is_condition(given: Any) -> bool:
    """Whether it is True, False or a condition, or made of those alone; products may be too long to recurse into."""
    seen, pending = {id(given)}, [given]
    while pending:
        one = pending.pop()
        rule = one._rule if isinstance(one, Symbol) else None
        if rule in (ops.mul, ops.larger):
            fresh = [operand for operand in one._operands if id(operand) not in seen]
            seen.update(map(id, fresh))
            pending += fresh
        elif (rule is None or rule.name not in COMPARISONS) and not _is_truth(one):
            return False
    return True


def _is_truth(given: Any) -> bool:
    """Whether it is a constant condition, or Python's or NumPy's True or False."""
    if isinstance(given, Constant):
        return given.data in (0.0, 1.0)
    return isinstance(given, bool) or type(given).__name__ in ("bool_", "bool")


def _refuse(deed: str, remedy: str, why: str = "which has no number yet") -> NoReturn:
    error = TracingError(f"{line_at(_users_frame(sys._getframe(1)))} {deed}, {why}: {remedy}")
    if is_tracing() and deed.startswith(
        ("reads", "sets", "turns", EARLIER)
    ):  # code may recover from the other refusals
        _this_thread.refusal = _this_thread.refusal or error
    raise error


def _users_frame(frame: FrameType | None) -> Place | None:
    """The file and line of the innermost frame of user code, from this one outwards."""
    while frame and not _is_users(frame):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None


def _users_place(traceback: TracebackType | None) -> Place | None:
    """The file and line of the innermost frame of user code."""
    found = None
    while traceback:
        if _is_users(traceback.tb_frame):
            found = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def _is_users(frame: FrameType) -> bool:
    """Whether this is user code: neither ours nor a library's."""
    name = frame.f_code.co_filename
    return not is_ours(frame.f_code) and not name.startswith(STANDARD_LIBRARY) and "site-packages" not in name

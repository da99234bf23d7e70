"""Functions composed of the op table's ops, and the decorator that adds an op to the table."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any, ParamSpec, SupportsFloat, TypeVar, overload

from chainrule import ops
from chainrule.core.arguments import counted
from chainrule.core.value import ENGINE, Value
from chainrule.ops import Op, Rule

__all__ = ["dot", "logsumexp", "mean", "op", "softmax"]

if ENGINE == "native":
    from chainrule import _native as native

if TYPE_CHECKING:
    from chainrule._signatures import BinaryOp, TernaryOp, UnaryOp

P = ParamSpec("P")  # the operands of a function that becomes an op
R = TypeVar("R")  # its result

Partial = Rule | None
Scalar = Value | SupportsFloat

_added: set[str] = set()  # ops that users added, and may replace


@overload
def op(a: Partial, /, *, name: str = "", symbol: str = "") -> Callable[[Callable[P, R]], UnaryOp[P, R]]: ...
@overload
def op(
    a: Partial, b: Partial, /, *, name: str = "", symbol: str = ""
) -> Callable[[Callable[P, R]], BinaryOp[P, R]]: ...
@overload
def op(
    a: Partial, b: Partial, c: Partial, /, *, name: str = "", symbol: str = ""
) -> Callable[[Callable[P, R]], TernaryOp[P, R]]: ...
@overload
def op(*partials: Partial, name: str = "", symbol: str = "") -> Callable[[Rule], Op]: ...
def op(*partials: Partial, name: str = "", symbol: str = "") -> Callable[[Rule], Any]:
    """Turn a function of numbers into an op, given its derivative with respect to each operand.

    Each partial is called as `partial(out, *operands)`; `None` passes no gradient. The op works on Values and
    numbers, and becomes a method of Value. A rule written with chainrule's functions and `+ - *` can also be compiled
    and differentiated again; one written with `math` only runs eagerly.

    >>> @op(lambda out, x: 3.0 * x * x)
    ... def cube(x):
    ...     return x * x * x
    >>> v = Value(2.0)
    >>> cube(v).backward()
    >>> v.grad
    12.0
    """

    def register(forward: Rule) -> Op:
        if not hasattr(forward, "__code__"):
            usage = "write @op(partial, ...) above a Python function, with a partial for each operand"
            raise TypeError(f"{usage}; got {forward!r}")
        arity, row_name = forward.__code__.co_argcount, name or forward.__name__
        if len(partials) != arity:
            needed = f"takes {counted(arity, 'operand')} and so needs {counted(arity, 'partial')}"
            raise TypeError(f"`{row_name}` {needed}, got {len(partials)}")
        for k, partial in enumerate(partials):
            if partial is not None and not _takes(partial, arity + 1):
                names = ", ".join(("out", *forward.__code__.co_varnames[:arity]))
                raise TypeError(f"partial {k} of `{row_name}` must be a function of ({names}), got {partial!r}")
        if not row_name.isidentifier() or (hasattr(Value, row_name) and row_name not in _added):
            raise ValueError(f"`name` must be an identifier that Value does not use yet, got {row_name!r}")
        if row_name in _added:  # a notebook cell that is run again
            ops.TABLE.pop(row_name, None)
        _added.add(row_name)
        row = ops.register(Op(row_name, forward, partials, doc=forward.__doc__ or "", symbol=symbol))
        ops.attach(Value, row)
        return row

    return register


def _takes(function: Any, count: int) -> bool:
    """Whether `function` can be called with `count` arguments."""
    import inspect

    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        pass
    return True


def dot(a: Iterable[Scalar], b: Iterable[Scalar]) -> Any:
    """The sum of products of two vectors of equal length.

    >>> dot([1.0, 2.0], [3.0, 4.0])
    11.0
    """
    if ENGINE == "native":
        return native.dot(a, b)
    left, right = list(a), list(b)
    if len(left) != len(right):
        raise ValueError(f"`a` has the length {len(left)} and `b` {len(right)}: give two vectors of equal length")
    return _total(map(operator.mul, left, right))


def mean(values: Iterable[Scalar]) -> Any:
    """The average.

    >>> mean([1.0, 2.0, 6.0])
    3.0
    """
    items = list(values)
    if not items:
        raise ValueError("`values` is empty, and the mean of nothing is not defined")
    return _total(items) / len(items)


def logsumexp(values: Iterable[Scalar]) -> Any:
    """log(Σ exp(v)), shifted by the largest value so that it never overflows.

    >>> logsumexp([1000.0, 1000.0])
    1000.6931471805599
    """
    shift, shifted = _shift(values)
    return ops.log(_total(map(ops.exp, shifted))) + shift


def softmax(values: Iterable[Scalar]) -> list[Any]:
    """exp(v) / Σ exp(v) for each value: positive numbers that sum to 1, at any scale.

    >>> softmax([1000.0, 1000.0])
    [0.5, 0.5]
    """
    exponentials = [ops.exp(v) for v in _shift(values)[1]]
    total = _total(exponentials)
    return [ops.div(e, total) for e in exponentials]


def _total(items: Iterable[Any]) -> Any:
    """The sum from left to right, of numbers or Values. Since 3.12, Python's `sum` compensates floats' rounding."""
    return native.total(items) if ENGINE == "native" else reduce(operator.add, items, 0.0)


def _shift(values: Iterable[Any]) -> tuple[Any, list[Any]]:
    """The largest value, if it is finite, and all values minus it.

    The shift cancels out of the result, so no gradient passes through it. It is an op like any other, so a compiled
    program shifts by the largest of the values that it runs on.
    """
    items = list(values)
    if not items:
        raise ValueError("`values` is empty; give at least one")
    shift = ops.finite(reduce(ops.larger, items))
    return shift, [v - shift for v in items]

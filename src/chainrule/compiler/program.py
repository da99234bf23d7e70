"""The array program: what the compiler finds. Arrays of numbers, and statements that fill them in loops.

    h[100,16] = b[16] + Σk w[16,k]·x[100,k]

A statement has a nest of loops. Its value is a sum of terms; each term may have reduction loops of its own, inside
those of the statement. An `Access` says which element of an array a turn of the loops touches: base + Σ stride·index,
or, where that does not fit, an entry of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from chainrule import ops

Shape = tuple[int, ...]


class Array:
    """A run of numbers. `kind` is parameter, input, constant, value or adjoint; a constant has its numbers."""

    def __init__(self, name: str, size: int, kind: str, numbers: Any = None) -> None:
        self.name = name
        self.size = size
        self.kind = kind
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"{self.name}[{self.size}]"


class Expression:
    """Arithmetic on array elements; rules of the op table run on it as they do on numbers."""

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Expression:
        return Apply(op, tuple(o if isinstance(o, Expression) else Number(float(o)) for o in operands))

    def __add__(self, other: Any) -> Expression:
        return self._apply(ops.add, (self, other))

    def __radd__(self, other: Any) -> Expression:  # other + self
        return self._apply(ops.add, (other, self))

    def __sub__(self, other: Any) -> Expression:
        return self._apply(ops.sub, (self, other))

    def __rsub__(self, other: Any) -> Expression:  # other - self
        return self._apply(ops.sub, (other, self))

    def __mul__(self, other: Any) -> Expression:
        return self._apply(ops.mul, (self, other))

    def __rmul__(self, other: Any) -> Expression:  # other * self
        return self._apply(ops.mul, (other, self))

    def __neg__(self) -> Expression:
        return self._apply(ops.neg, (self,))

    def accesses(self) -> Iterator[Access]:
        """The array elements read, from left to right."""
        return iter(())

    def map(self, change: Callable[[Access], Access]) -> Expression:
        """The same expression with every access changed."""
        return self


class Number(Expression):
    """A number known to the compiler."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{self.value:g}"


class Access(Expression):
    """An element of an array: `base + Σ stride·index`, or `table[that]` if there is a table."""

    def __init__(self, array: Array, base: int, strides: Sequence[int], table: Any = None) -> None:
        self.array = array
        self.base = int(base)
        self.strides = tuple(map(int, strides))
        self.table = table

    def accesses(self) -> Iterator[Access]:
        yield self

    def map(self, change: Callable[[Access], Access]) -> Expression:
        return change(self)

    def widened(self, loops: int) -> Access:
        """The same element inside `loops` more loops, which do not move it."""
        return Access(self.array, self.base, self.strides + (0,) * loops, self.table)

    def __repr__(self) -> str:
        indices = [f"{s}{'ijklmnuvw'[d]}" if s != 1 else "ijklmnuvw"[d] for d, s in enumerate(self.strides) if s]
        inner = "+".join(([str(self.base)] if self.base or not indices else []) + indices)
        return f"{self.array.name}[{f'table[{inner}]' if self.table is not None else inner}]"


class Apply(Expression):
    """An op applied to expressions."""

    def __init__(self, op: ops.Op, operands: tuple[Expression, ...]) -> None:
        self.op = op
        self.operands = operands

    def accesses(self) -> Iterator[Access]:
        for operand in self.operands:
            yield from operand.accesses()

    def map(self, change: Callable[[Access], Access]) -> Expression:
        return Apply(self.op, tuple(operand.map(change) for operand in self.operands))

    def __repr__(self) -> str:
        if self.op.symbol.isidentifier():
            return f"{self.op.symbol}({', '.join(map(repr, self.operands))})"
        left, right = [f"({o})" if isinstance(o, Apply) else repr(o) for o in self.operands]
        return f"{left}{'·' if self.op is ops.mul else f' {self.op.symbol} '}{right}"


class Term:
    """`sign · Σ expression` over reduction loops of the given extents; no loops, no Σ."""

    def __init__(self, expression: Expression, loops: Shape = (), sign: int = 1) -> None:
        self.expression = expression
        self.loops = loops
        self.sign = sign


class Statement:
    """`target = Σ terms`, or `target += Σ terms`, for every turn of the loops."""

    def __init__(self, target: Access, loops: Shape, terms: Sequence[Term], accumulate: bool = False) -> None:
        self.target = target
        self.loops = loops
        self.terms = tuple(terms)
        self.accumulate = accumulate

    def accesses(self) -> Iterator[Access]:
        """The array elements read."""
        for term in self.terms:
            yield from term.expression.accesses()

    def map(self, change: Callable[[Access], Access]) -> Statement:
        """The same statement with every access changed, the target's too."""
        terms = [Term(term.expression.map(change), term.loops, term.sign) for term in self.terms]
        return Statement(change(self.target), self.loops, terms, self.accumulate)

    @property
    def affine(self) -> bool:
        """Whether no table is needed."""
        return self.target.table is None and all(access.table is None for access in self.accesses())

    def __repr__(self) -> str:
        letters = "ijklmnuvw"
        nest = ",".join(f"{letters[d]}<{n}" for d, n in enumerate(self.loops))
        parts: list[str] = []
        for term in self.terms:
            inner = range(len(self.loops), len(self.loops) + len(term.loops))
            sigma = "".join(f"Σ{letters[d]}<{n} " for d, n in zip(inner, term.loops, strict=True))
            parts.append(("- " if term.sign < 0 else "+ " if parts else "") + sigma + repr(term.expression))
        return f"{nest + ': ' if nest else ''}{self.target} {'+=' if self.accumulate else '='} {' '.join(parts)}"


class ArrayProgram:
    """Statements in order. `output` is the array of the result; `gradient`, if any, goes with `parameters`."""

    def __init__(self, statements: Sequence[Statement], leaves: dict[str, Array], output: Array) -> None:
        self.statements = list(statements)
        self.leaves = leaves  # kind -> array
        self.output = output
        self.gradient: Array | None = None

    def arrays(self) -> list[Array]:
        """Every array that is read or written, in order of appearance."""
        seen: dict[Array, None] = dict.fromkeys(self.leaves.values())
        for statement in self.statements:
            seen.update(dict.fromkeys(access.array for access in statement.accesses()))
            seen[statement.target.array] = None
        return list(seen)

    def verify(self) -> ArrayProgram:
        """This program, if it is well formed: accesses inside their arrays, nothing read before it is written."""
        written = {array for array in self.arrays() if array.kind in ("parameter", "input", "constant")}
        for statement in self.statements:
            for term in statement.terms:
                for access in term.expression.accesses():
                    _check_access(access, statement.loops + term.loops, statement)
                    if access.array not in written:
                        raise AssertionError(f"{access.array} is read before it is written: {statement}")
            _check_access(statement.target, statement.loops, statement)
            if statement.accumulate and statement.target.array not in written:
                raise AssertionError(f"{statement.target.array} is added to before it is written: {statement}")
            written.add(statement.target.array)
        return self

    def __str__(self) -> str:
        return "\n".join(map(repr, self.statements))


def _check_access(access: Access, loops: Shape, statement: Statement) -> None:
    if len(access.strides) != len(loops):
        raise AssertionError(f"{access} has {len(access.strides)} strides in {len(loops)} loops: {statement}")
    ends = [stride * (extent - 1) for stride, extent in zip(access.strides, loops, strict=True)]
    low = access.base + sum(end for end in ends if end < 0)
    high = access.base + sum(end for end in ends if end > 0)
    if access.table is not None:
        if low < 0 or high >= len(access.table):
            raise AssertionError(f"{access} leaves its table: {statement}")
        low, high = int(min(access.table)), int(max(access.table))
    if low < 0 or high >= access.array.size:
        raise AssertionError(f"{access} reaches {low} to {high} of {access.array}: {statement}")


def turns(loops: Shape) -> int:
    """How often the body of a nest runs."""
    return prod(loops)

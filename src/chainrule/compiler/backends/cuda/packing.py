"""Packing: operands that are the same for all examples, copied so that a thread loads several at once.

A sum such as Σk w[17j+k]·x[k] reads w number by number. A block copies it once, row by row, each of which begins at a
multiple of what is loaded at once, and in another bank of shared memory than its neighbours. The last loop of the sum
is innermost in the copy, whatever it was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from chainrule.compiler.backends.cuda.parts import Step, is_sum
from chainrule.compiler.backends.cuda.storage import LINE
from chainrule.compiler.passes.program import Access, Array, Shape, Statement, Term, changed, row_major

MOST = 2**13  # numbers of a copy


def packed(steps: Sequence[Step], wide: int) -> tuple[list[Step], list[Statement]]:
    """The steps with copies of operands in place of these, and the statements that make the copies."""
    copies: dict[tuple[object, ...], tuple[Array, Statement]] = {}

    def change(statement: Statement) -> Statement:
        if is_sum(statement) or not statement.target.array.examples:
            return statement
        return statement.with_terms([_packed(term, statement.loops, wide, copies) for term in statement.terms])

    found = changed(steps, change)
    return found, [statement for _, statement in copies.values()]


def _packed(term: Term, outer: Shape, wide: int, copies: dict[tuple[object, ...], tuple[Array, Statement]]) -> Term:
    loops = outer + term.loops
    if not term.loops or term.loops[-1] % wide:
        return term

    def change(access: Access) -> Access:
        moving = [d for d, stride in enumerate(access.strides) if stride and loops[d] > 1]
        if not _can_be_packed(access) or moving[-1:] != [len(loops) - 1] or prod(loops[d] for d in moving) > MOST:
            return access
        extents, strides = [loops[d] for d in moving], [access.strides[d] for d in moving]
        key = access.array, access.base, tuple(extents), tuple(strides)
        if key not in copies:
            copies[key] = _copy(access, extents, strides, len(copies))
        copy = copies[key][1].target
        moved = dict(zip(moving, copy.strides, strict=True))
        return Access(copy.array, 0, [moved.get(d, 0) for d in range(len(loops))])

    return Term(term.expression.map(change), term.loops, term.sign)


def _can_be_packed(access: Access) -> bool:
    return not access.array.examples and access.table is None and not access.repeat


def _copy(access: Access, extents: Sequence[int], strides: Sequence[int], number: int) -> tuple[Array, Statement]:
    """A new array for what an access reads, and the statement that fills it."""
    *others, last = extents
    lines = -(-last // LINE)
    row = LINE * (lines if lines % 2 else lines + 1)  # an odd number of lines, so that rows begin in different banks
    array = Array(f"{access.array.name}.packed{number}", prod(others) * row, "value")
    target = Access(array, 0, (*(row * step for step in row_major(tuple(others))), 1))
    return array, Statement(target, tuple(extents), [Term(Access(access.array, access.base, strides))])

"""Whether a recorded graph might have been another one: numbers that were read before its nodes were made.

Code that reads a number may branch on it, or compute with it in plain Python. Of that the graph shows one outcome, and
whoever runs it again with other numbers would get results of no function.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NoReturn

from chainrule.core.value import Value


def check_numbers_were_not_read(nodes: Sequence[Value], targets: Iterable[Value], wrt: Iterable[Value]) -> None:
    """Refuse a graph, nodes oldest first, that might be different if its leaves or those in `wrt` had other numbers.

    >>> x = Value(2.0)
    >>> y = x * x if x > 1 else x
    >>> check_numbers_were_not_read([x, y], [y], [x])
    Traceback (most recent call last):
    ...
    ValueError: the number of Value(data=2.0, grad=0.0) was read ...
    """
    made = [node for node in nodes if node._operands]
    for node in made:
        if node._follows_read:
            _refuse(next((x for x in node._operands if x._read), "a Value"), _made(node) + " of it")
    _check_leaves({node: None for node in (*nodes, *wrt) if not node._operands}, made)
    for target in targets:
        if target._compared:
            _refuse(target, "it was given here, and perhaps chosen among others")


def _check_leaves(leaves: Iterable[Value], made: Sequence[Value]) -> None:
    """Refuse leaves that were read while nodes were made, or before."""
    serials = [node._serial for node in made]
    for leaf in leaves:
        for first, end in leaf._read_during:
            place = bisect_left(serials, end) - 1
            if place >= 0 and serials[place] >= first:
                _refuse(leaf, _made(made[place]))


def _made(node: Value) -> str:
    return f"{node!r} (`_op` {node._op!r}) was made"


def _refuse(read: object, before: str) -> NoReturn:
    raise ValueError(
        f"the number of {read} was read (by `.data`, a comparison, max, sorted, detach or no_grad()) before "
        f"{before}, and a branch or a constant that followed from that number would be frozen: use "
        "chainrule.where (with chainrule.gt(x, y) for x > y), maximum, minimum or softmax, compile the function "
        "itself, or say allow_frozen_branches=True if nothing in the graph depends on the number"
    )

"""Graphs on which a wrong `backward` or `trace` goes wrong, for the checks of exercises.

`random_sums` makes graphs in which everything is used again, at several depths: an order of the nodes that is not a
topological one gives wrong gradients in some of them. They consist of sums alone, so a gradient is a number of paths,
which has no rounding. `diamonds` makes a graph with so many paths that nobody can follow them all, and `walked` stops
whoever tries.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, TypeVar

LEAVES = (2.0, -3.0)  # of both signs: then neither `data` nor its size grows from operands to sums
MOST_READ = 10  # sums
DIAMONDS = 26
MOST_LOOKS = 100_000  # at `_prev`, in a row of diamonds
AGAIN = (
    f"In a row of {DIAMONDS} diamonds your code has looked at `_prev` {MOST_LOOKS:,} times, and would go on: it comes "
    "to the same nodes again and again. Let it remember where it has been, and visit each node once."
)


@dataclass(frozen=True)
class Sums:
    """A graph of sums as plain data: the numbers of its leaves, and the places of the two operands of each sum.

    >>> print(Sums((3.0,), ((0, 0), (0, 1))))
    b = a + a; c = a + b
    """

    leaves: tuple[float, ...]
    operands: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        names = list(self.names())
        sums = enumerate(self.operands, len(self.leaves))
        return "; ".join(f"{names[k]} = {names[i]} + {names[j]}" for k, (i, j) in sums)

    @property
    def title(self) -> str:
        """All of it, if that is short enough to be read."""
        count = len(self.operands)
        return str(self) if count <= MOST_READ else f"{count} sums of earlier nodes, at random"

    def names(self) -> Iterator[str]:
        """Of the leaves, then of the sums: a to z, a1 to z1 and so on."""
        for k in range(len(self.leaves) + len(self.operands)):
            yield ascii_lowercase[k % 26] + str(k // 26 or "")

    def build(self, engine: type) -> list[Any]:
        """The nodes, of a learner's class; the last one is the result."""
        nodes = [engine(number) for number in self.leaves]
        for i, j in self.operands:
            nodes.append(nodes[i] + nodes[j])
            _keep_order(nodes[-1], (nodes[i], nodes[j]))
        for node, name in zip(nodes, self.names(), strict=True):
            with suppress(AttributeError):  # a class with slots need not have one for it
                node.label = name
        return nodes

    def gradients(self) -> list[int]:
        """What each node's gradient must be: the number of paths from the result to it.

        >>> Sums((3.0,), ((0, 0), (0, 1))).gradients()
        [3, 1, 1]
        """
        paths = [0] * len(self.leaves) + [0] * len(self.operands)
        paths[-1] = 1
        for k, operands in reversed(list(enumerate(self.operands, len(self.leaves)))):
            for operand in operands:
                paths[operand] += paths[k]
        return paths


def random_sums(seed: int, count: int) -> Sums:
    """A graph of so many sums, each of one of the two newest nodes and of any node; the same for the same seed."""
    rng, operands = random.Random(seed), list[tuple[int, int]]()
    for made in range(len(LEAVES), len(LEAVES) + count):
        new, some = made - 1 - int(2 * rng.random()), int(made * rng.random())
        operands.append((new, some) if rng.random() < 0.5 else (some, new))
    return Sums(LEAVES, tuple(operands))


def diamonds(leaf: Any) -> Any:
    """The top of 26 diamonds in a row above a learner's node: `2 ** 26` paths lead down to it."""
    node, looks = leaf, itertools.count(1)
    for _ in range(DIAMONDS):
        left, right = node + 1, node + 2
        for side in (left, right):
            _keep_order(side, sorted(side._prev, key=lambda child: child is not node), looks)
        node = left + right
        _keep_order(node, (left, right), looks)
    return node


Found = TypeVar("Found")


def walked(walk: Callable[[], Found]) -> tuple[Found | None, str | None]:
    """What `walk` returns, which goes through `diamonds`; or what to tell the learner if it follows every path."""
    try:
        return walk(), None
    except _AgainError as again:
        return None, str(again)


class _AgainError(Exception):
    """Somebody looks at the operands of nodes without an end."""


class _Operands(set[Any]):
    """The operands of a node in a fixed order; with `looks`, all such sets count together who goes through them."""

    children: Sequence[Any] | None = None  # a copy has none
    looks: Iterator[int] | None = None

    def __iter__(self) -> Iterator[Any]:
        if self.looks is not None and next(self.looks) > MOST_LOOKS:
            raise _AgainError(AGAIN)
        return super().__iter__() if self.children is None else iter(self.children)


def _keep_order(node: Any, children: Sequence[Any], looks: Iterator[int] | None = None) -> None:
    """Fix the order of a node's operands if its class keeps them in a set."""
    if isinstance(node._prev, (set, frozenset)):
        node._prev = _Operands(children)
        node._prev.children, node._prev.looks = list(dict.fromkeys(children)), looks

"""What is drawn: nodes, edges between them and groups around them. How it looks is decided elsewhere, in `dot`.

graph of Values · network · array program ──► Picture ──► DOT text ──► SVG, PNG, PDF
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, sqrt
from typing import NamedTuple

# What a node can be; each has a shape of its own.
KINDS = ("computed", "leaf", "parameter", "constant", "module", "neuron", "more")

Format = str | Callable[[float], str]


class Node(NamedTuple):
    """A card: an op, a title, and rows of a name and a text each."""

    key: str
    kind: str
    title: str = ""
    op: str = ""
    rows: Sequence[tuple[str, str]] = ()
    shared: bool = False  # used more than once
    tint: float = 0.0  # of the row called grad (a neuron: of its disc), from -1 to 1
    hint: str = ""  # shown when the pointer rests on it
    place: tuple[float, float] | None = None  # of its middle, in inches; None leaves it to Graphviz


class Edge(NamedTuple):
    """From an operand to what is made of it; `sign` and `strength`, from 0 to 1, are those of what it carries."""

    source: str
    target: str
    lines: Sequence[str] = ()
    strength: float = 0.0
    sign: int = 0
    passes: bool = True  # a gradient, on the way back
    hint: str = ""
    pull: int = 1  # how much it wants to be short and straight


class Group(NamedTuple):
    """Nodes that belong together, in a frame."""

    title: str
    keys: Sequence[str]


class Picture(NamedTuple):
    """All of it; operands come before what is made of them, but for loops.

    It grows in one `direction`, from left to right or from the top to the bottom; in a `network` nodes have places, and
    edges are straight, with the colours of their signs.
    """

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    groups: Sequence[Group] = ()
    direction: str = "LR"
    network: bool = False


class TooLargeError(ValueError):
    """What was to be drawn is too large; says what can be drawn instead.

    >>> from chainrule import Value, draw
    >>> draw(sum(Value(1.0) for _ in range(200)))
    Traceback (most recent call last):
    ...
    chainrule.drawing.picture.TooLargeError: the graph has more than 150 nodes, ...
    """


def formatter(number: Format) -> Callable[[float], str]:
    """The function that writes numbers: as given, or by a format such as `.4g`, with a true minus sign."""
    if callable(number):
        return number
    try:
        format(1.5, number)
    except (TypeError, ValueError):
        raise ValueError(f"`number` must be a format such as '.4g', or a function of a float; got {number!r}") from None
    return lambda x: format(x, number).replace("-", "−")


def strength(size: float, largest: float) -> float:
    """A size in proportion to the largest, from 0 to 1; the root, so that small ones are told apart."""
    if not isfinite(size):
        return 1.0
    return sqrt(min(1.0, abs(size) / largest)) if size and largest > 0.0 else 0.0


def largest(sizes: Sequence[float]) -> float:
    """The largest finite size."""
    return max((abs(size) for size in sizes if isfinite(size)), default=0.0)

"""What is drawn: nodes, edges between them and groups around them. `dot` decides how it looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, sqrt
from typing import NamedTuple

Number = Callable[[float], str]  # how a number is written
Format = str | Number


class Node(NamedTuple):
    """A card: an op, a title, and rows of a name and a text each. `dot.SHAPES` lists the kinds."""

    key: str
    kind: str
    title: str = ""
    op: str = ""
    rows: Sequence[tuple[str, str]] = ()
    shared: bool = False  # used more than once
    tint: float = 0.0  # of the row called grad (for a neuron, of its disc), from -1 to 1
    hint: str = ""  # shown under the pointer
    place: tuple[float, float] | None = None  # of its centre, in inches; None leaves it to Graphviz


class Edge(NamedTuple):
    """From an operand to its result. `sign` and `strength`, from 0 to 1, describe what the edge carries."""

    source: str
    target: str
    lines: Sequence[str] = ()
    strength: float = 0.0
    sign: int = 0
    passes: bool = True  # whether a gradient flows back along it
    hint: str = ""
    pull: int = 1  # how strongly it should be short and straight


class Group(NamedTuple):
    """Nodes that belong together, in a frame."""

    title: str
    keys: Sequence[str]


class Picture(NamedTuple):
    """The whole. Operands come before their results, except in loops.

    It grows in one `direction`: left to right or top to bottom. Nodes of which one stands before the other, though no
    edge says so, are pairs in `order`. In a `network`, nodes have places, and edges are straight and coloured by their
    signs.
    """

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    groups: Sequence[Group] = ()
    direction: str = "LR"
    network: bool = False
    order: Sequence[tuple[str, str]] = ()


class TooLargeError(ValueError):
    """The graph is too large to draw; the message says what can be drawn instead.

    >>> from chainrule import Value, draw
    >>> draw(sum(Value(1.0) for _ in range(200)))
    Traceback (most recent call last):
    ...
    chainrule.drawing.picture.TooLargeError: the graph has more than 150 nodes, ...
    """


def formatter(number: Format) -> Number:
    """The function that writes numbers: the given one, or one for a format such as `.4g`, with a true minus sign."""
    if callable(number):
        return number
    try:
        format(1.5, number)
    except (TypeError, ValueError):
        raise ValueError(f"`number` must be a format such as '.4g', or a function of a float; got {number!r}") from None
    return lambda x: format(x, number).replace("-", "−")


def strength(size: float, largest: float) -> float:
    """The size relative to the largest, from 0 to 1; its square root, so that small sizes can be told apart."""
    if not isfinite(size):
        return 1.0
    return sqrt(min(1.0, abs(size) / largest)) if size and largest > 0.0 else 0.0


def largest(sizes: Sequence[float]) -> float:
    """The largest finite size."""
    return max((abs(size) for size in sizes if isfinite(size)), default=0.0)

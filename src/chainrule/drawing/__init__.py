"""Drawing: graphs of Values, networks and array programs, laid out by Graphviz.

    values · parts · networks · programs ──► Picture ──► dot ──► Drawing: .svg .png .dot .save(path)

The first four say what is drawn, `dot` how it looks; `notebook` holds what notebooks display by themselves. Only images
need pygraphviz.
"""

from __future__ import annotations

import math
import os
import re
import sys
from functools import cached_property
from typing import Any

from chainrule.core.arguments import counted, whole_number
from chainrule.core.atomic import write_whole
from chainrule.core.graph import is_value
from chainrule.drawing.dot import check_effort, dot
from chainrule.drawing.graphviz import render
from chainrule.drawing.networks import picture_of_network
from chainrule.drawing.parts import LEVELS, picture_of_parts
from chainrule.drawing.picture import Format, Number, Picture, TooLargeError, formatter
from chainrule.drawing.values import LIMIT, MOST, picture_of_values
from chainrule.nn import Module

__all__ = ["Drawing", "TooLargeError", "draw"]


def __dir__() -> list[str]:
    return __all__


FORMATS = (".svg", ".png", ".pdf", ".dot", ".gv")
DOTS_PER_INCH = 192  # of a PNG, or fewer if it would exceed MOST_PIXELS, which take most of a second to write
MOST_PIXELS = 3_000_000
CELL = 600  # points: about the width of a notebook's cell in a small window
SIZE = re.compile(r'(?:width|height)="([\d.]+)pt"')


def draw(
    thing: Any,
    *,
    model: Module | None = None,
    collapse: str | None = None,
    depth: int | None = None,
    local: bool = False,
    flow: bool = False,
    gradient: str = "both",
    backward: bool = True,
    number: Format = ".4g",
    limit: int = LIMIT,
) -> Drawing:
    """A drawing of the graph below a Value, of a network, or of the array program that the compiler found.

    A notebook displays it; elsewhere use `.svg`, `.png`, `.dot` and `.save(path)`. `number` is the format of numbers,
    such as ".3f", or a function that writes one.

    **A Value**, chainrule's or of a similar class: a card for each node with its label, op, data and grad. Leaves have
    sharp corners, results round ones, parameters (of `model`, which also names them) a folded one; constants have no
    frame, and nodes that are used more than once a double one. `local` writes the local derivative on each edge, `flow`
    the gradient that came back along it. `gradient` shows the gradient's size by the "colour" of its row, by the
    "width" of edges, by "both" or by "none". `depth` limits the drawing to nodes at most that many steps from the
    result.

    >>> from chainrule import Value, nn
    >>> a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    >>> draw(a * b + a, local=True)
    <Drawing: 4 nodes, 4 edges; see .svg, .png and .dot, or .save("drawing.svg")>

    With `model` and `collapse`, which is "neuron", "layer" or "module", there is one card for each such part:

    >>> net = nn.MLP(2, [16, 16, 1], rng=1)
    >>> draw(net([Value(1.0), Value(2.0)]), model=net, collapse="layer")
    <Drawing: 5 nodes, 4 edges; see .svg, .png and .dot, or .save("drawing.svg")>

    **A network**: its neurons, with weights as lines whose width shows their size and negative ones dashed. With
    `collapse="layer"`, one card per layer.

    >>> draw(net)
    <Drawing: 41 nodes, 304 edges; see .svg, .png and .dot, or .save("drawing.svg")>

    **A program** from `chainrule.compile`: a card for each array statement, with its formula. `model` names the
    parameters, and `backward=False` leaves the backward pass out.

    Graphs with more than `limit` nodes are refused, with a message that says what can be drawn instead.
    """
    _check(model, collapse, depth, gradient, limit)
    given = {"model": model is not None, "collapse": collapse is not None, "depth": depth is not None}
    given |= {"local": local, "flow": flow, "gradient": gradient != "both", "backward": not backward}
    write = formatter(number)
    if isinstance(thing, Module):
        _refuse(given, ("collapse",), "a network")
        picture = picture_of_network(thing, write, limit, collapse)
    elif _is_program(thing):
        _refuse(given, ("model", "backward"), "a program")
        picture = _program(thing, model, backward, write, limit)
    elif not is_value(thing):
        kind = type(thing).__name__
        raise TypeError(f"`thing` must be a Value, an nn.Module or a program of chainrule.compile, got {kind}")
    elif collapse is None:
        _refuse(given, ("model", "depth", "local", "flow", "gradient"), "a Value")
        picture = picture_of_values(
            thing, write, limit, model=model, depth=depth, local=local, flow=flow, gradient=gradient
        )
    elif model is None:
        raise TypeError("`collapse` has to know the parts of the network: give `model` too")
    else:
        _refuse(given, ("model", "collapse"), "the parts of a model")
        picture = picture_of_parts(thing, model, collapse, write, limit)
    check_effort(picture)
    return Drawing(picture)


def _check(model: Module | None, collapse: str | None, depth: int | None, gradient: str, limit: int) -> None:
    if model is not None and not isinstance(model, Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}")
    if collapse is not None and collapse not in LEVELS:
        raise ValueError(f"`collapse` must be 'neuron', 'layer' or 'module', got {collapse!r}")
    if gradient not in ("both", "colour", "width", "none"):
        raise ValueError(f"`gradient` must be 'both', 'colour', 'width' or 'none', got {gradient!r}")
    if depth is not None:
        whole_number(depth, "depth")
    if whole_number(limit, "limit") > MOST:
        raise ValueError(f"`limit` must be {MOST:,} at most, because nobody can read more; got {limit:,}")


def _refuse(given: dict[str, bool], meant: tuple[str, ...], what: str) -> None:
    """Refuse options that have no meaning here."""
    for name, was_given in given.items():
        if was_given and name not in meant:
            raise TypeError(f"`{name}` has no meaning in a drawing of {what}: leave it out")


def _is_program(thing: Any) -> bool:
    compiler = sys.modules.get("chainrule.compiler")  # no program exists unless this has been loaded
    return compiler is not None and isinstance(thing, (compiler.Program, compiler.CompiledFunction))


def _program(program: Any, model: Module | None, backward: bool, write: Number, limit: int) -> Picture:
    from chainrule.drawing.programs import found_by, picture_of_program

    found = found_by(program, model)
    if found is None:  # nothing repeats, so there are no arrays: draw the nodes
        return picture_of_values(program.target, write, limit, model=model)
    return picture_of_program(found, limit, backward)


class Drawing:
    """What `chainrule.draw` returns: a notebook displays it, and it can be saved.

    >>> from chainrule import Value
    >>> draw(Value(2.0) * Value(3.0)).dot.splitlines()[0]
    'digraph {'
    """

    def __init__(self, picture: Picture) -> None:
        self.picture = picture

    @cached_property
    def dot(self) -> str:
        """The drawing as DOT text. Needs no other package."""
        return dot(self.picture)

    @cached_property
    def svg(self) -> str:
        """The drawing as SVG."""
        text = self._render("svg").decode()
        return text[text.index("<svg") :]

    @cached_property
    def png(self) -> bytes:
        """The drawing as PNG."""
        width, height = map(float, SIZE.findall(self.svg)[:2])  # in points
        fitting = 72.0 * math.sqrt(MOST_PIXELS / (width * height))
        return self._render("png", f"-Gdpi={min(DOTS_PER_INCH, fitting):.0f}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the drawing to a file, as SVG, PNG, PDF or DOT by the name's ending, completely or not at all.

        >>> from chainrule import Value
        >>> draw(Value(2.0) + 1.0).save("drawing.jpg")
        Traceback (most recent call last):
        ...
        ValueError: `path` must end in .svg, .png, .pdf, .dot or .gv; got 'drawing.jpg'
        """
        name = os.fspath(path)
        suffix = os.path.splitext(name)[1].lower()
        if suffix not in FORMATS:
            raise ValueError(f"`path` must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; got {name!r}")
        if suffix in (".png", ".pdf"):
            content = self.png if suffix == ".png" else self._render("pdf")
        else:
            content = (self.svg if suffix == ".svg" else self.dot).encode()
        write_whole(name, content)

    def _repr_svg_(self) -> str:
        """For notebooks, where a drawing that is wider than most cells gets the width of its cell.

        They show an SVG as an image of the size that it gives itself, and cut off what does not fit.
        """
        width, height = map(float, SIZE.findall(self.svg)[:2])
        size = f'width="{width:.0f}pt" height="{height:.0f}pt"'
        return self.svg.replace(size, 'width="100%"', 1) if width > CELL else self.svg

    def __repr__(self) -> str:
        nodes, edges = counted(len(self.picture.nodes), "node"), counted(len(self.picture.edges), "edge")
        return f'<Drawing: {nodes}, {edges}; see .svg, .png and .dot, or .save("drawing.svg")>'

    def _render(self, kind: str, settings: str = "") -> bytes:
        return render(self.dot, "neato" if self.picture.network else "dot", kind, settings)

"""A drawing: a picture rendered as SVG, PNG, PDF or DOT text. The only module that needs pygraphviz."""

from __future__ import annotations

import math
import os
import re
from functools import cached_property
from threading import Lock
from typing import Any

from chainrule.core.atomic import write_whole
from chainrule.drawing.dot import dot
from chainrule.drawing.picture import Picture

FORMATS = (".svg", ".png", ".pdf", ".dot", ".gv")
DOTS_PER_INCH = 192  # of a PNG, or fewer if it would exceed MOST_PIXELS, which take most of a second to write
MOST_PIXELS = 3_000_000
SIZE = re.compile(r'(?:width|height)="([\d.]+)pt"')

_graphviz = Lock()  # Graphviz is not thread-safe


class Drawing:
    """What `chainrule.draw` returns: a notebook displays it, and it can be saved.

    >>> from chainrule import Value, draw
    >>> drawing = draw(Value(2.0) * Value(3.0))
    >>> drawing
    <Drawing: 3 nodes, 2 edges; see .svg, .png and .dot, or .save("drawing.svg")>
    >>> print(drawing.dot.splitlines()[0])
    digraph {
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

        >>> from chainrule import Value, draw
        >>> draw(Value(2.0) + 1.0).save("drawing.jpg")
        Traceback (most recent call last):
        ...
        ValueError: `path` must end in .svg, .png, .pdf, .dot or .gv; got 'drawing.jpg'
        """
        name = os.fspath(path)
        suffix = os.path.splitext(name)[1].lower()
        if suffix not in FORMATS:
            raise ValueError(f"`path` must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; got {name!r}")
        if suffix in (".dot", ".gv"):
            content = self.dot.encode()
        elif suffix == ".svg":
            content = self.svg.encode()
        else:
            content = self.png if suffix == ".png" else self._render("pdf")
        write_whole(name, content)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        nodes, edges = len(self.picture.nodes), len(self.picture.edges)
        return f'<Drawing: {nodes} nodes, {edges} edges; see .svg, .png and .dot, or .save("drawing.svg")>'

    def _render(self, kind: str, settings: str = "") -> bytes:
        graph = _pygraphviz().AGraph(self.dot)
        with _graphviz:
            content: bytes = graph.draw(format=kind, prog="neato" if self.picture.network else "dot", args=settings)
        return content


def _pygraphviz() -> Any:
    try:
        import pygraphviz
    except ImportError as error:
        raise ImportError(
            "Graphviz makes the pictures, through pygraphviz, which is not installed: `pip install pygraphviz` "
            "brings both. Without it a drawing still has its .dot text, which any Graphviz can render"
        ) from error
    return pygraphviz

"""Graphviz, as pygraphviz brings it: DOT text in, an image out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_one_at_a_time = Lock()  # Graphviz is not thread-safe


def render(dot: str, layout: str, kind: str, settings: str = "") -> bytes:
    """The image, in a format such as "svg", that Graphviz makes of the text with a layout such as "dot"."""
    pygraphviz = _pygraphviz()
    graph = pygraphviz.AGraph(dot)
    with _one_at_a_time:
        _read_fonts(pygraphviz)
        content: bytes = graph.draw(format=kind, prog=layout, args=settings)
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


@cache
def _read_fonts(pygraphviz: Any) -> None:
    """Have Fontconfig read the system's settings, which it does once, when the first text is drawn.

    The Fontconfig in pygraphviz's wheels is older than the settings of most systems, and complains of what it does not
    know in them, though the drawing is not affected.
    """
    with _without_lines("Fontconfig warning"):
        pygraphviz.AGraph("graph { a }").draw(format="svg", prog="dot")


@contextmanager
def _without_lines(beginning: str) -> Iterator[None]:
    """Keep lines that begin so out of what C code writes to standard error, and pass all others on."""
    try:
        original = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(original, 2)
            os.close(original)
            caught.seek(0)
            others = [line for line in caught if not line.startswith(beginning.encode())]
            if others:
                os.write(2, b"".join(others))

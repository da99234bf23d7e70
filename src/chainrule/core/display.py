"""What a notebook shows of an object. Drawing lies above everything that it draws, so it is registered from above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Shown = Callable[[Any], str | None]

_drawer: Callable[[str], Shown] | None = None


def register(drawer: Callable[[str], Shown]) -> None:
    """Use `drawer(name)` to look up the function that `shown(name)` stands for, when it is first needed."""
    global _drawer
    _drawer = drawer


def shown(name: str) -> Shown:
    """A method for a class that returns what the drawer's function of this name makes of the object.

    >>> from chainrule import Value
    >>> shown("svg_of_value")(Value(2.0)) is None  # a leaf is no graph
    True
    """

    def method(self: Any) -> str | None:
        return None if _drawer is None else _drawer(name)(self)

    return method

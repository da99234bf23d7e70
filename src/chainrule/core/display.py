"""What a notebook shows of an object. Drawing lies above all that it draws, so whoever knows it registers here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Shown = Callable[[Any], str | None]

_drawer: Callable[[str], Shown] | None = None


def register(drawer: Callable[[str], Shown]) -> None:
    """Have `drawer(name)` give the functions that `shown(name)` stands for, when one is first asked for."""
    global _drawer
    _drawer = drawer


def shown(name: str) -> Shown:
    """A method for a class: what the drawer's function of this name gives for the object.

    >>> from chainrule import Value
    >>> shown("svg_of_value")(Value(2.0)) is None  # a leaf is no graph
    True
    """

    def method(self: Any) -> str | None:
        return None if _drawer is None else _drawer(name)(self)

    return method

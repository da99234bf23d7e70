"""Six of the programs in tests/compiler/programs. Each file has a function for each of them, of the same name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[3] / "tests" / "compiler"))
from programs import PROGRAMS


class Inputs(NamedTuple):
    """What a program of some size is given, with respect to which it is differentiated."""

    numbers: list[float]
    size: int


def inputs(name: str, size: int) -> Inputs:
    """Those of the program of that name."""
    return Inputs(PROGRAMS[name].numbers(size), size)

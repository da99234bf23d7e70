"""The suite: importing it registers every program."""

from . import (  # noqa: F401
    dynamics,
    finance,
    geometry,
    graphs,
    linear_algebra,
    networks,
    physics,
    sequences,
    statistics,
)
from .registry import PROGRAMS

__all__ = ["PROGRAMS"]

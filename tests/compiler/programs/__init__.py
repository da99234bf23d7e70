"""The suite: importing it registers every program."""

from . import dynamics, finance, linear_algebra, networks, sequences, statistics  # noqa: F401
from .registry import PROGRAMS, by_torch

__all__ = ["PROGRAMS", "by_torch"]

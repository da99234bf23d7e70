"""For tests and docstring examples alike: an op that one adds, a figure that one opens, is gone before the next."""

import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import chainrule
from chainrule import engine, ops

NEED_JAX = ["src/chainrule/compiler/backends/xla", "src/chainrule/compiler/run/sharding.py"]
collect_ignore = [] if find_spec("jax") else NEED_JAX

os.environ.setdefault("MPLBACKEND", "agg")  # pictures without a screen


@pytest.fixture(autouse=True, scope="module")
def what_is_loaded_stays() -> None:
    """The many garbage collections in tests need not traverse the packages and caches of all modules before."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_figure_stays_open() -> Iterator[None]:
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def op_table_as_shipped() -> Iterator[None]:
    shipped = set(ops.TABLE)
    yield
    for row in [row for name, row in ops.TABLE.items() if name not in shipped]:
        del ops.TABLE[row.name]
        for value_class in {engine.Value, chainrule.Value}:
            for name in {row.name, *row.aliases} & vars(value_class).keys():
                delattr(value_class, name)

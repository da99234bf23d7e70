"""For tests and docstring examples alike: an op that one of them adds is gone before the next."""

from collections.abc import Iterator

import pytest

import chainrule
from chainrule import engine, ops


@pytest.fixture(autouse=True)
def op_table_as_shipped() -> Iterator[None]:
    shipped = set(ops.TABLE)
    yield
    for row in [row for name, row in ops.TABLE.items() if name not in shipped]:
        del ops.TABLE[row.name]
        for value_class in {engine.Value, chainrule.Value}:
            for name in {row.name, *row.aliases} & vars(value_class).keys():
                delattr(value_class, name)

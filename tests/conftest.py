"""Fixtures: `Value` runs a test on every engine that is built."""

import pytest

from chainrule import closures
from engines import ENGINES


@pytest.fixture(params=ENGINES)
def Value(request):
    return ENGINES[request.param]


@pytest.fixture(params=[*ENGINES, "closures"])
def AnyValue(request):
    """The engines, and the class that learners build."""
    return ENGINES.get(request.param, closures.Value)

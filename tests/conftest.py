"""Fixtures: `Value` runs a test on every engine that is built; `browser_page` is a page in a real browser."""

import pytest

from browser import browser_page, chromium, open_page, serve  # noqa: F401
from chainrule import closures
from engines import ENGINES


@pytest.fixture(params=ENGINES)
def Value(request):
    return ENGINES[request.param]


@pytest.fixture(params=[*ENGINES, "closures"])
def AnyValue(request):
    """The engines, and the class that learners build."""
    return ENGINES.get(request.param, closures.Value)

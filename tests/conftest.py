"""Fixtures: `Value` runs a test on every engine that is built; `browser_page` is a page in a real browser."""

import signal

import pytest
from hypothesis import settings

from browser import browser_page, chromium, open_page, serve  # noqa: F401
from chainrule import closures
from engines import ENGINES

settings.load_profile("ci")  # the same examples every time, however long they take: `make torture` looks for others

# Tests interrupt themselves and what they start; a job in a shell's background would not hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules whose tests take both engines in turn, or none: there is no need to run them again on the Python one.
ONCE = [
    "benchmarks",
    "course",
    "csv",
    "demonstrations",
    "edges",
    "examples",
    "expression_parser",
    "grade_command",
    "grade_forgeries",
    "grading",
    "hardening",
    "kernels",
    "learn_server",
    "lessons_page",
    "microgpt",
    "notebooks",
    "package",
    "plot",
    "sharding",
    "site",
    "stepper_page",
    "torture",
    "uses",
    "witness",
    "xla",
]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem.removeprefix("test_") in ONCE:
            item.add_marker(pytest.mark.once)


@pytest.fixture(params=ENGINES)
def Value(request):
    return ENGINES[request.param]


@pytest.fixture(params=[*ENGINES, "closures"])
def AnyValue(request):
    """The engines, and the class that learners build."""
    return ENGINES.get(request.param, closures.Value)

"""Fixtures: `Value` runs a test on every engine that is built; `browser_page` is a page in a real browser."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from browser import browser_page, chromium, open_page, serve  # noqa: F401
from chainrule import closures
from commands import folder, iris, refused, run  # noqa: F401
from engines import ENGINES

settings.load_profile("ci")  # the same examples every time, however long they take: `make torture` looks for others

# Tests interrupt themselves and what they start; a job in a shell's background would not hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["users/typed_code.py"]  # which type checkers read, and nobody runs

# Modules that do not depend on the engine (texts, files, pages, what the compiler makes of a trace), or that take both
# engines in turn: there is no need to run them again on the Python one. A test marked `both` is run again nevertheless.
ONCE = [
    "arrays",
    "benchmarks",
    "bridge",
    "c_header",
    "cli",
    "completion",
    "course",
    "csv",
    "cuda_arrays",
    "cuda_driver",
    "cuda_processes",
    "data",
    "demonstrations",
    "drawing",
    "dtype_and_threads",
    "edges",
    "elementary",
    "examples",
    "explanations",
    "fast_steps",
    "formula_parser",
    "fusion",
    "grade_command",
    "grade_forgeries",
    "grading",
    "graphviz",
    "hardening",
    "jupyter",
    "kernels",
    "lanes",
    "layers",
    "learn_server",
    "lessons_page",
    "library",
    "links",
    "machine_speed_pages",
    "made_up_names",
    "microgpt",
    "mutants",
    "own_module",
    "own_program",
    "package",
    "playground_page",
    "plot",
    "predictor",
    "progress",
    "ragged_sums",
    "readme",
    "recurrence",
    "sharding",
    "single_kernels",
    "site",
    "site_pages",
    "stepper",
    "stepper_page",
    "thread_safety",
    "torture",
    "train_predict",
    "uses",
    "wasm",
    "witness",
    "xla",
]
unknown = {*ONCE} - {path.stem.removeprefix("test_") for path in Path(__file__).parent.rglob("test_*.py")}
assert not unknown, f"there are no such modules: {unknown}"


def pytest_collection_modifyitems(items):
    for item in items:
        on_each_engine = {"Value", "AnyValue"} & {*getattr(item, "fixturenames", ())}
        in_once = item.path.stem.removeprefix("test_") in ONCE and not item.get_closest_marker("both")
        if on_each_engine or in_once:
            item.add_marker(pytest.mark.once)


@pytest.fixture(params=ENGINES)
def Value(request):
    return ENGINES[request.param]


@pytest.fixture(params=[*ENGINES, "closures"])
def AnyValue(request):
    """The engines, and the class that learners build."""
    return ENGINES.get(request.param, closures.Value)

"""Fixtures: `Value` runs a test on every engine that is built; `browser_page` is a page in a real browser."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from browser import browser_page, chromium, open_page, serve  # noqa: F401
from chainrule import closures
from commands import folder, iris, refused, run  # noqa: F401
from engines import ENGINES
from fake_cuda import built, fake  # noqa: F401

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
    "cuda",
    "cuda_arrays",
    "cuda_choices",
    "cuda_driver",
    "cuda_processes",
    "data",
    "demonstrations",
    "distribute",
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
    "hard_graphs",
    "hardening",
    "jupyter",
    "kernels",
    "lanes",
    "layers",
    "learn_server",
    "lessons_page",
    "library",
    "links",
    "listings",
    "machine_speed_pages",
    "made_up_names",
    "microgpt",
    "mutants",
    "network_pages",
    "order_page",
    "own_module",
    "own_program",
    "package",
    "playground_page",
    "postpone",
    "plot",
    "predictor",
    "progress",
    "ragged_sums",
    "readme",
    "recurrence",
    "rematerialize",
    "running_page",
    "sharding",
    "single_kernels",
    "site",
    "site_pages",
    "stepper",
    "stepper_page",
    "targets",
    "thread_safety",
    "time_first",
    "torture",
    "train_predict",
    "uses",
    "wasm",
    "witness",
    "xla",
]
# Modules that take long, the longest first: the processes that share the tests then end at about the same time. Those
# that are not named come after them, in any order.
LONGEST_FIRST = [
    "lessons_page",
    "whole_course",
    "sharding",
    "programs",
    "benchmarks",
    "site",
    "stepper_page",
    "site_pages",
    "order_page",
    "thread_safety",
    "cuda",
    "grade_command",
    "publishing",
    "examples",
    "transforms",
    "train_predict",
    "readme",
    "xla",
    "mutants",
    "jupyter",
    "grade_forgeries",
    "network_pages",
    "checkpoints",
    "derivatives",
    "machine_speed_pages",
    "made_up_names",
    "typed_code",
    "microgpt",
    "elementary",
    "learn_server",
    "dtype_and_threads",
    "package",
    "recurrence",
    "running_page",
    "wasm",
    "compile_functions",
    "compiler",
    "c_header",
    "edges",
    "value",
]
MODULES = {path.stem.removeprefix("test_"): path for path in Path(__file__).parent.rglob("test_*.py")}
unknown = {*ONCE, *LONGEST_FIRST} - MODULES.keys()
assert not unknown, f"there are no such modules: {unknown}"


def name_of(path):
    return path.stem.removeprefix("test_")


def pytest_ignore_collect(collection_path, config):
    """Where what is the same on either engine is left out, a module of nothing else need not be imported."""
    if "not once" in config.option.markexpr and collection_path == MODULES.get(name := name_of(collection_path)):
        return (name in ONCE and "mark.both" not in collection_path.read_text(encoding="utf-8")) or None
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        on_each_engine = {"Value", "AnyValue"} & {*getattr(item, "fixturenames", ())}
        in_once = name_of(item.path) in ONCE and not item.get_closest_marker("both")
        if on_each_engine or in_once:
            item.add_marker(pytest.mark.once)
    places = {MODULES[name]: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))  # what is not named stays in its order


@pytest.fixture(params=ENGINES)
def Value(request):
    return ENGINES[request.param]


@pytest.fixture(params=[*ENGINES, "closures"])
def AnyValue(request):
    """The engines, and the class that learners build."""
    return ENGINES.get(request.param, closures.Value)

"""Exercises in which a bug is planted ask for a failing test first: this tries a learner's test on the buggy engine.

The test is a function `f` and the numbers `at` for `gradcheck`. It must complain about the engine with the bug, and
about nothing else: a right engine must pass it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from types import FunctionType
from typing import Any

from chainrule import Value, gradcheck
from chainrule.core.graph import number_of
from chainrule.learn.explaining import explain

COMPLAINS, PASSES = "complains", "passes"
MISSING = (
    "Your test is the function `f` with the numbers `at`. Here they are not both defined: define them, as in the code "
    "that you started with."
)
TOO_WEAK = (
    "Your test, `f` with the numbers `at`, passes on the engine as it was, with the bug in it. A test that would have "
    "passed before the repair proves nothing. Change `f` or `at` so that `gradcheck` complains about that engine. "
    "*Check* tries your test on it even if you have repaired yours."
)
UNFAIR = (
    "`gradcheck` complains about your test with chainrule's own engine, too, which does not have the bug. "
    "Does `f` take the `.data` of a node, or jump at these numbers?"
)
STOPS = "On the engine as it was, your test stops with an error."


def on_engine(engine: type, test: Callable[[], tuple[Any, Any]]) -> tuple[str, str | None]:
    """What `gradcheck` does with the test on this engine; unless it complains, also what to tell the learner.

    `test` returns the learner's `f` and `at`; they may not exist.
    """
    try:
        f, at = test()
    except NameError:
        return "there is none", MISSING
    found, problem = _gradcheck(f, at, engine)
    if problem or found == PASSES:
        return found, problem or TOO_WEAK
    right, _ = _gradcheck(f, at, Value)
    return (found, None) if right != COMPLAINS else ("complains about a right engine, too", UNFAIR)


def _gradcheck(f: Any, at: Any, engine: type) -> tuple[str, str | None]:
    try:
        with redirect_stdout(io.StringIO()):  # `f` runs many times
            report = gradcheck(_moved(f, engine), *[engine(getattr(number, "data", number)) for number in at])
    except Exception as error:  # `f` is the learner's
        return f"stops with {type(error).__name__}", f"{STOPS} {explain(error).text}"
    return PASSES if report else COMPLAINS, None


def _moved(f: Any, engine: type) -> Any:
    """`f` as it would be if `Value` meant this engine: so must its helpers, and the constants that they use."""
    if not isinstance(f, FunctionType):
        return f
    own: Any = f.__globals__.get("Value")
    names: dict[str, Any] = {}

    def moved(found: Any) -> Any:
        if isinstance(found, FunctionType) and found.__globals__ is f.__globals__:
            defaults = found.__defaults__ and tuple(map(moved, found.__defaults__))
            copy = FunctionType(found.__code__, names, found.__name__, defaults, found.__closure__)
            copy.__kwdefaults__ = {name: moved(value) for name, value in (found.__kwdefaults__ or {}).items()}
            return copy
        return engine(number_of(found)) if isinstance(own, type) and isinstance(found, own) else found

    names |= {name: moved(found) for name, found in f.__globals__.items()} | {"Value": engine}
    return moved(f)

"""Exercises in which a bug is planted ask for a failing test first: this tries a learner's test on the buggy engine.

The test is a function `f` and the numbers `at` for `gradcheck`. It must complain about the engine with the bug, and
about nothing else: a right engine must pass it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import Any

import chainrule
from chainrule import Value, gradcheck
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
NOT_REPAIRED = (
    "`Value` here is chainrule's own class, which never had the bug. Repair the class that this program began with."
)
USED_UP = (
    "`at` is an iterator, which gives its numbers only once, and your program has taken them. Write a list or a tuple, "
    "so that your test can be tried on another engine."
)
STOPS = "On the engine as it was, your test stops with an error."


Rerun = Callable[..., tuple[Mapping[str, Any], Exception | None]]  # see `running.Session`


def on_engine(engine: type, theirs: type, rerun: Rerun) -> tuple[str, str | None]:
    """What `gradcheck` does with the test on this engine; unless it complains, also what to tell the learner.

    The learner's whole program runs with `engine` in the place of `theirs`, so that whatever holds a Value, a list or
    a closure, holds one of that engine.
    """
    if theirs is Value:
        return "the engine is another one", NOT_REPAIRED
    found, problem = _gradcheck(engine, rerun)
    if problem or found == PASSES:
        return found, problem or TOO_WEAK
    right, _ = _gradcheck(Value, rerun)
    return (found, None) if right != COMPLAINS else ("complains about a right engine, too", UNFAIR)


def _gradcheck(engine: type, rerun: Rerun) -> tuple[str, str | None]:
    try:
        names, error = rerun(Value=engine)
        if not {"f", "at"} <= names.keys():
            if error is None:
                return "there is none", MISSING
            raise error
        # else it may have ended because a test of the learner's own failed, as in `assert gradcheck(...)`
        at = _numbers(names["at"], engine, rerun)
        if at is None:
            return "its numbers are used up", USED_UP
        with redirect_stdout(io.StringIO()):  # `f` runs many times
            report = gradcheck(names["f"], *[engine(number) for number in at])
    except Exception as error:  # the program is the learner's
        return f"stops with {type(error).__name__}", f"{STOPS} {explain(error).text}"
    return PASSES if report else COMPLAINS, None


def _numbers(at: Any, engine: type, rerun: Rerun) -> list[Any] | None:
    """The numbers of the test. If they are an iterator that the program has used up, those with which it called `f`."""
    if not isinstance(at, Iterator):
        return _data(at if hasattr(at, "__iter__") else [at])
    if left := _data(at):
        return left
    calls: list[tuple[Any, list[Any]]] = []

    def noted(f: Any, *inputs: Any, **options: Any) -> Any:
        calls.append((f, _data(inputs)))
        return gradcheck(f, *inputs, **options)

    chainrule.gradcheck = noted  # however the program imports it
    try:
        names, _ = rerun(Value=engine)
    finally:
        chainrule.gradcheck = gradcheck
    return next((numbers for f, numbers in calls if f is names["f"] and numbers), None)


def _data(numbers: Iterable[Any]) -> list[Any]:
    return [getattr(number, "data", number) for number in numbers]

"""What compiling leaves of the garbage collector's state as it found it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import chainrule
from chainrule import Value
from chainrule.compiler import pipeline
from chainrule.compiler.pipeline import VERY_MANY, Clock


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was_enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if frozen:
        gc.freeze()
    (gc.enable if was_enabled else gc.disable)()


def test_that_the_collector_is_paused_and_goes_on() -> None:
    gc.enable()
    assert Clock()("stage", gc.isenabled) is False
    assert gc.isenabled()


def test_that_it_goes_on_after_an_error() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError):
        Clock()("stage", lambda: 1 / 0)
    assert gc.isenabled()


def test_that_a_collector_which_is_off_stays_off() -> None:
    gc.disable()
    Clock()("stage", list)
    assert not gc.isenabled()


def test_that_what_a_stage_made_counts_as_old() -> None:
    gc.enable()
    made = Clock()("stage", lambda: [[k] for k in range(2 * VERY_MANY)])
    young = {id(thing) for generation in (0, 1) for thing in gc.get_objects(generation)}
    assert not young & {id(part) for part in made}


def test_that_what_a_user_has_frozen_stays_frozen() -> None:
    gc.enable()
    gc.freeze()
    frozen = gc.get_freeze_count()
    Clock()("stage", lambda: [[k] for k in range(2 * VERY_MANY)])
    assert gc.get_freeze_count() > 0.9 * frozen > 0  # some may have been freed


def test_that_too_many_statements_are_not_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_STATEMENTS", 2)
    monkeypatch.setattr(pipeline, "arranged", lambda program: pytest.fail("it was laid out"))
    xs = [Value(0.1 * k) for k in range(5)]
    program = chainrule.compile((xs[0] * xs[1]).tanh() + xs[2] / xs[3] - xs[4].exp())
    assert "node by node" in program.stats

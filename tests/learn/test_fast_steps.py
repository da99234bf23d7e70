"""A learner's training steps as WebAssembly, run by Python in WebAssembly as in the page: those of their own loop."""

import json
import textwrap

import pytest

from pyodide_host import run_in_pyodide

PROGRAM = """
import json, random
from chainrule.learn.demonstrations import Playground, Race, Run, advance, start
from chainrule.learn.fast_steps import FastSteps
from chainrule.learn.lesson_files import load_course
from chainrule.learn.own_program import assemble
from chainrule import data

course = load_course()
blocks = [block for lesson in course.lessons for block in lesson.blocks]
solutions = {block.name: block.solution for block in blocks if hasattr(block, "solution")}


def program(**other):
    own = solutions | other
    return {"template": course.templates["Training"], "own": own, "lent": solutions, "engine": "own"}


def after(given, steps, fast):
    run = Run(assemble(given), data.moons(n=20, seed=3), [4, 3], "tanh", 5)
    if fast:
        run.speed_up()
    run.many(steps, 0.05, float("inf"))
    return run.fast is not None, run.losses[-1], [p.data for p in run.model.parameters()]
"""
MEAN = """
def loss_of(model, xs, ys):
    total = 0.0
    for i in range(len(xs)):
        error = model(xs[i]) - ys[i]
        total = total + error * error
    return total * (1 / len(xs))
"""
OTHER = """
def loss_of(model, xs, ys):
    return sum((model(x) - y) ** 2 for x, y in zip(xs, ys)) ** 0.5
"""


def ran(code):
    return json.loads(run_in_pyodide(PROGRAM + textwrap.dedent(code)))


@pytest.fixture(scope="module")
def found():
    return ran(f"""
    sums, means, roots = program(), program(loss={MEAN!r}), program(loss={OTHER!r})
    bent = program(mul=solutions["mul"].replace("other.data * out.grad", "other.data * out.grad * 1.001"))
    pairs = {{name: [after(given, 7, fast) for fast in (True, False)]
             for name, given in dict(sums=sums, means=means, roots=roots, bent=bent).items()}}
    playground = Playground({{"program": sums, "n": 20}})
    playground.advance(500, 60.0)
    first = playground.state()
    playground.adjust({{"noise": 0.3, "lr": 0.02}})
    playground.advance(10, 60.0)
    def grown(fast):
        points = [[0.5, 0.5, 1], [-0.5, -0.5, -1], [0.5, -0.5, 1], [-0.5, 0.4, -1], [0.1, 0.9, 1]]
        own = Playground({{"program": sums, "data": "own", "points": points[:2], "hidden": [3], "lr": 0.05}})
        own.run.fast = own.run.fast if fast else None
        own.advance(1, 60.0)
        own.adjust({{"points": points}})
        own.advance(1, 60.0)
        state = own.state()
        return state["loss"], [p.data for p in own.run.model.parameters()], sum(sum(state["gradients"], []), [])
    race = Race({{"program": sums, "n": 20, "hidden": [3]}})
    Race.SECONDS = 0.3
    while race.state()["left"]:
        race.advance(10**9, 0.05)
    json.dumps([pairs, first, playground.state(), race.state(), grown(True), grown(False)])
    """)


@pytest.mark.parametrize("loss", ["sums", "means"])
def test_they_are_those_of_the_loop(loss, found):
    (fast, loss_by_module, numbers), (slow, loss_by_loop, expected) = found[0][loss]
    assert (fast, slow) == (True, False)
    assert numbers == pytest.approx(expected, rel=1e-9)
    assert loss_by_module == pytest.approx(loss_by_loop, rel=0.2)  # a mean of the last steps


@pytest.mark.parametrize("loss", ["roots", "bent"])
def test_what_cannot_be_compiled_runs_in_python(loss, found):
    """A loss that is no sum over examples; gradients that are not those of the graph."""
    (fast, *by_module), (_, *by_loop) = found[0][loss]
    assert not fast
    assert by_module[1] == pytest.approx(by_loop[1], rel=1e-9)  # the order of sets is not always the same


def test_the_playground(found):
    _, first, later, *_ = found
    assert (first["steps"], later["steps"]) == (500, 510)
    assert first["fast"]
    assert first["speed"] > 0
    assert first["points"] != later["points"]
    assert later["loss"] > 0


def test_the_race(found):
    loop, module = found[3]["sides"]
    assert module["steps"] > 5 * loop["steps"] > 0  # hundreds, if both have the processor to themselves
    assert module["loss"] < loop["loss"]
    assert found[3]["bytes"] > 1000


def test_points_that_are_added_count(found):
    assert found[4][0] == pytest.approx(found[5][0], rel=1e-9)
    assert found[4][1] == pytest.approx(found[5][1], rel=1e-9)


def test_the_gradient_of_the_last_step_is_that_of_the_loop(found):
    assert len(found[4][2]) == 13
    assert found[4][2] == pytest.approx(found[5][2], rel=1e-6, abs=1e-9)

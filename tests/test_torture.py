"""The torture test can fail, and its failures are small."""

import random

import torture
from chainrule import engine, ops


def without_tanh(program):
    """An engine whose tanh passes on no gradient."""
    eager = torture.Eager(engine.Value, program)
    broken = any(node._rule is ops.tanh for node in eager.nodes)
    return [eager.numbers[0], *[0.0 if broken else grad for grad in eager.numbers[1:]]]


def test_all_engines_agree_for_a_moment():
    assert torture.torture(3.0, "a moment") > 0


def test_a_planted_fault_is_found_and_shrunk():
    said = []
    assert torture.torture(60.0, "planted", {"broken engine": without_tanh}, {}, said.append) is None
    assert "broken engine gives" in said[0]
    program = said[0].split("\n\n")[1].splitlines()
    assert any("tanh" in line for line in program)
    assert len(program) <= 12


def test_a_rounded_result_that_is_off_is_found():
    def off(program):
        eager = torture.Eager(engine.Value, program)
        return [number * (1 + 1e-7) for number in eager.numbers]

    said = []
    assert torture.torture(60.0, "off", {}, {"sloppy": off}, said.append) is None
    assert "sloppy gives" in said[0]
    assert "to be equal within" in said[0]


def test_corners_where_rounding_decides_are_told_from_faults():
    """expm1(log1p(0.701)) is 0.701 but for rounding: which of them is the larger, rounding decides."""
    program = (False, [0.701], [("time", "add", [0, 0, 0, 0, 0, 0], [("log1p", [0] * 4), ("expm1", [0] * 4)])])
    nodes = torture.Eager(engine.Value, program).nodes
    assert not any(map(torture.is_at_a_corner, nodes))
    leaf = engine.Value(0.701)
    assert torture.is_at_a_corner(ops.clip(leaf, leaf.log1p().expm1(), 2.0))
    assert torture.is_at_a_corner((leaf - leaf.log1p().expm1()).relu())
    assert not torture.is_at_a_corner((leaf - 0.7).relu())


def test_an_engine_that_raises_is_a_failure():
    def raises(program):
        raise ZeroDivisionError("planted")

    said = []
    assert torture.torture(60.0, "raises", {"engine": raises}, {}, said.append) is None
    assert "ZeroDivisionError: planted" in said[0]


def test_a_seed_gives_the_same_program():
    assert torture.random_program(random.Random("1/2")) == torture.random_program(random.Random("1/2"))

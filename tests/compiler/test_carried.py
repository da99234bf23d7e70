"""Small loops in time: what stays in registers from statement to statement and from turn to turn is what memory has."""

import re
from random import Random

import numpy as np
import pytest
from programs import PROGRAMS

import chainrule
from chainrule import Value, compile, ops
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native, blocks, carried
from chainrule.compiler.backends.llvm.carried import Flow, Small, key_of
from chainrule.compiler.backends.llvm.module import Module
from chainrule.compiler.backends.llvm.native import host
from chainrule.compiler.backends.llvm.text import DOUBLE
from chainrule.compiler.passes.differentiate import zero
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term

SIZE = 64


def random_statement(rng, arrays, moves, targets):
    """A statement on few elements near the row of the present time; some are sums, some elementary functions."""
    loops = (rng.choice([1, 1, 2, 3, 5]),) * rng.choice([0, 1])
    inner = (rng.choice([2, 3]),) * rng.choice([0, 0, 1])

    def access(array, loops):
        strides = [rng.choice([0, 1, 2]) for _ in loops]
        if rng.random() < 0.2:
            table = np.array([rng.randrange(8) for _ in range(32)])
            return Access(array, rng.randrange(4), strides, table, moves[array])
        return Access(array, rng.randrange(6), strides, None, moves[array])

    def expression(loops):
        read = [access(rng.choice(arrays), loops) for _ in range(2)]
        return Apply(ops.TABLE["tanh"], (read[0],)) if rng.random() < 0.2 else Apply(ops.sub, (*read,))

    target, terms = rng.choice(targets), [Term(Apply(ops.mul, (expression(loops + inner), Number(0.3))), inner)]
    if rng.random() < 0.3:
        terms = [Term(Apply(ops.TABLE["tanh"], (access(rng.choice(arrays), loops),)))]
    place = Access(target, rng.randrange(6), [1] * len(loops), None, moves[target])
    found = Statement(place, loops, terms, rng.random() < 0.5)
    own = [a for a in found.accesses() if a.array is target]
    return found if not loops or not own else None  # the order of its elements would matter


def random_program(seed):
    """A loop in time between statements that write to its arrays and, here and there, zeros before it."""
    rng = Random(seed)
    arrays = [Array(name, SIZE, "captured" if name in "ab" else "value") for name in "abcdef"]
    moves = {array: rng.choice([0, 1, 1, 2, 3, 5]) for array in arrays}
    targets = rng.sample(arrays, 4)
    body = [s for _ in range(rng.choice([3, 8, 14])) if (s := random_statement(rng, arrays, moves, targets))]
    still = dict.fromkeys(arrays, 0)
    between = [s for _ in range(2) if (s := random_statement(rng, arrays, still, arrays))]
    start = [zero(a) if rng.random() < 0.6 else fill(a, arrays[0]) for a in arrays if a.kind == "value"]
    steps = [*start, *between, Repeat(rng.choice([1, 3, 9]), body, rng.random() < 0.5)]
    kept = arrays[:2] + rng.sample(arrays[2:], 2)
    return ArrayProgram(steps, {array.name: array for array in kept}, kept[-1])


def fill(array, source):
    return Statement(Access(array, 0, (1,)), (SIZE,), [Term(Apply(ops.mul, (Access(source, 0, (1,)), Number(0.7))))])


def assert_as_interpreted(program, dtype="float64"):
    start = np.random.default_rng(0).normal(size=SIZE)
    machines = Native(program, dtype), Interpreted(program, dtype)
    for machine in machines:
        for array in program.leaves.values():
            machine.views[array][:] = start
        machine.run()
        machine.run()
    tolerance = 1e-11 if dtype == "float64" else 1e-3
    for array in program.leaves.values():
        found, expected = (machine.views[array] for machine in machines)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=array.name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_loops(dtype):
    found = [Small(random_program(seed)) for seed in range(150)]
    assert sum(bool(small.flows) for small in found) > 100
    assert sum(bool(small.alone) for small in found) > 20
    assert sum(bool(flow.carried) for small in found for flow in small.flows.values()) > 30
    for seed in range(150):
        assert_as_interpreted(random_program(seed), dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_staggered_loops(dtype, monkeypatch):
    monkeypatch.setattr(carried, "WINDOW", 0)
    monkeypatch.setattr(Flow, "latency", 0)  # of all: turns need not wait for each other
    programs = [random_program(seed) for seed in range(150)]
    assert sum(bool(Small(program).staggered) for program in programs) > 30
    for program in programs:
        assert_as_interpreted(program, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_blocks(dtype, monkeypatch):
    monkeypatch.setattr(carried, "is_small", lambda step: False)  # loops fall into blocks and single statements
    monkeypatch.setattr(blocks, "EACH", 6)
    programs = [random_program(seed) for seed in range(150)]
    found = [Small(program) for program in programs]
    parts = [part for small in found for each in small.parts.values() for part in each]
    assert sum(isinstance(part, Repeat) for part in parts) > 60
    assert sum(bool(small.alone) for small in found) > 3
    for program in programs:
        assert_as_interpreted(program, dtype)


def only_loops(program, parts):
    return {array: {program.steps[-1]} for array in program.arrays()}


FAULTS = {
    "earlier turns are not asked": (Flow, "is_written_before", lambda flow, key: False),
    "what the next turn replaces is never stored": (carried.Loop, "_store_last", lambda loop, last: None),
    "what other statements do is not seen": (carried, "_touching", only_loops),
    "time always runs forward": (carried.Loop, "_time", lambda loop, index: index),
    "each position is an element, however it moves": (carried, "key_of", lambda a, t: (*key_of(a, t)[:2], 0)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_loop_is_noticed(monkeypatch, fault):
    monkeypatch.setattr(*FAULTS[fault])
    wrong, seeds = 0, iter(range(150))
    while wrong < 3:
        try:
            assert_as_interpreted(random_program(next(seeds)))
        except (AssertionError, KeyError):
            wrong += 1


def turns_of(program):
    """The instructions of each turn of the small loops."""
    text = str(Module(program, DOUBLE, host()))
    return re.findall(r"^head.*?^after", text, flags=re.MULTILINE | re.DOTALL)


def test_state_and_sums_stay_in_registers():
    a, x = Value(0.5), Value(2.0)
    state, total = x, Value(0.0)
    for k in range(50):
        state = a * state + 0.1 * k
        total = total + a * state
    program = compile(total, wrt=[a, x])
    total.backward()
    assert program.value_and_grad()[1] == pytest.approx([a.grad, x.grad], rel=1e-12)
    forward, back = [turn for turn in turns_of(program.code.laid_out) if "phi double" in turn]
    assert forward.count("phi double") == 1  # the state
    assert forward.count(" load ") == 1  # 0.1·k
    assert back.count("phi double") == 2  # the derivatives of the state and of a
    assert back.count(" load ") == 2  # the state, and what the sum hands back


def test_rows_of_an_alignment_are_staggered():
    """Each waits for the one before cell by cell; but the steps of a filter do so from end to end."""
    staggered = {}
    for name, size in {"soft_alignment": 16, "kalman_filter": 100}.items():
        found = PROGRAMS[name]
        leaves = [Value(x) for x in found.numbers(size)]
        program = compile(found.function(chainrule, leaves, size), wrt=leaves, allow_frozen_branches=True)
        staggered[name] = [step.count for step in Small(program.code.laid_out).staggered]
    assert staggered == {"soft_alignment": [5, 5], "kalman_filter": []}

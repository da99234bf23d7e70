"""Places in memory: what is needed at the same time lies apart, and what is never so shares a place."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from chainrule import Value, compile, losses, nn
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native
from chainrule.compiler.backends.llvm.fusion import can_replace, groups
from chainrule.compiler.passes.places import lives_in, places
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Number, Repeat, Statement, Term

SIZE = 40


def array(name, kind="value"):
    return Array(name, SIZE, kind)


def at(source, base=0, stride=1):
    return Access(source, base, (stride,))


def statement(target, *expressions, accumulate=False, turns=SIZE):
    terms = [Term(expression) for expression in expressions]
    return Statement(target if isinstance(target, Access) else at(target), (turns,), terms, accumulate)


def total_of(target, source):
    return Statement(Access(target, 0, ()), (), [Term(at(source), (SIZE,))])


def overlaps(native):
    """Pairs of arrays that have an element's place in common."""
    views = native.views.items()
    return {frozenset((a.name, b.name)) for a, x in views for b, y in views if a is not b and np.shares_memory(x, y)}


def assert_as_interpreted(program):
    """Results and leaves after a run, on memory that holds NaN wherever the caller has put nothing."""
    native, interpreted = Native(program), Interpreted(program)
    native.memory[:] = np.nan
    numbers = np.random.default_rng(0).uniform(0.5, 1.5, SIZE)
    for machine in (native, interpreted):
        for leaf in program.leaves.values():
            machine.views[leaf][:] = numbers[: leaf.size]
        machine.run()
    for known in (*program.leaves.values(), *program.results):
        np.testing.assert_allclose(native.views[known], interpreted.views[known], rtol=1e-12, err_msg=known.name)
    return native


class TestLives:
    def test_an_array_lives_from_the_first_step_that_touches_it_to_the_last(self):
        a, b, c = map(array, "abc")
        steps = [statement(b, at(a)), statement(c, at(b)), statement(c, at(a), accumulate=True)]
        assert lives_in(step.body for step in steps) == {b: (0, 1), a: (0, 2), c: (1, 2)}

    def test_the_first_place_that_is_free(self):
        a, b, c, d = (Array(name, size, "value") for name, size in zip("abcd", (3, 2, 2, 4), strict=True))
        offsets, size = places({a: (0, 1), b: (0, 3), c: (2, 3), d: (3, 3)}, lambda array: array.size)
        assert (offsets, size) == ({a: 0, b: 3, c: 0, d: 5}, 9)

    def test_a_place_that_is_taken_over(self):
        a, b, c = (Array(name, 3, "value") for name in "abc")
        offsets, size = places({a: (0, 1), b: (1, 2), c: (2, 2)}, lambda array: array.size, {b: a})
        assert (offsets, size) == ({a: 0, b: 0, c: 3}, 6)


class TestSharing:
    def test_a_chain_of_layers_needs_room_for_two(self):
        """Each layer reads all of the one before, so it cannot take its place."""
        weights, *layers, result = array("w", "captured"), *map(array, ["h1", "h2", "h3", "h4"]), Array("r", 1, "value")
        steps = [statement(layers[0], at(weights) * 2.0)]
        for before, after in pairwise(layers):
            terms = [Term(Access(before, 0, (0, 1)) * Access(weights, 0, (1, 0)), (SIZE,))]
            steps.append(Statement(at(after), (SIZE,), terms))
        program = ArrayProgram([*steps, total_of(result, layers[-1])], {"w": weights}, result)
        native = assert_as_interpreted(program)
        assert overlaps(native) == {frozenset(("h1", "h3")), frozenset(("h2", "h4"))}

    def test_leaves_results_and_constants_keep_their_places(self):
        a, b, c, d = array("a", "captured"), array("b"), array("c"), array("d")
        constant = Array("k", SIZE, "constant", np.arange(1.0, 1.0 + SIZE))
        first, second = (Array(name, 1, "value") for name in "st")
        steps = [statement(b, at(a) * at(constant)), total_of(first, b), statement(c, at(a) * 2.0), total_of(second, c)]
        program = ArrayProgram([*steps, statement(d, at(c))], {"a": a}, d)
        program.gradient = b
        assert not any({"a", "b", "d", "k"} & pair for pair in overlaps(Native(program)))

    def test_time_does_not_end_a_life(self):
        """What one time of a loop reads at its end, the next one reads again."""
        a, state, kept, b = array("a", "captured"), array("s"), array("k"), array("b")
        body = [statement(b, at(kept) + at(state)), statement(state, at(b) * 0.5)]
        steps = [statement(kept, at(a) * 3.0), statement(state, at(a)), Repeat(3, body)]
        result = array("r")
        program = ArrayProgram([*steps, statement(result, at(state))], {"a": a}, result)
        native = assert_as_interpreted(program)
        assert not {frozenset(pair) for pair in [("k", "s"), ("k", "b"), ("s", "b")]} & overlaps(native)


class TestTakingOver:
    """One array in the place of another, at the step that needs that one last."""

    def test_element_by_element(self):
        a, b, c, other = array("a", "captured"), array("b"), array("c"), Array("o", 1, "value")
        result = Array("r", 1, "value")
        steps = [statement(b, at(a) * 2.0), total_of(other, b)]
        steps += [statement(c, at(b) * Access(other, 0, (0,))), total_of(result, c)]
        native = assert_as_interpreted(ArrayProgram(steps, {"a": a}, result))
        assert frozenset(("b", "c")) in overlaps(native)

    def test_what_an_adjoint_replaces(self):
        """The adjoint of a layer lies where its results were, which a derivative reads last."""
        model = nn.MLP(2, [16, 16, 1], rng=1)
        program = compile(lambda x, y: losses.hinge([model(x)], [y]), wrt=model.parameters())
        program.batch_value_and_grad(np.ones((64, 2)), np.ones(64))
        code = program._last_run[1]
        assert {frozenset(("v1", "dv0")), frozenset(("v3", "dv2"))} <= overlaps(Native(code.laid_out))

    @pytest.mark.parametrize(
        ("what", "make"),
        [
            ("its neighbour", lambda a, b: [statement(b, at(a, 1), turns=SIZE - 1)]),
            ("every other", lambda a, b: [statement(b, at(a, 0, 2), turns=SIZE // 2)]),
            ("backward", lambda a, b: [statement(b, at(a, SIZE - 1, -1))]),
            ("one for all", lambda a, b: [statement(b, at(a, 0, 0))]),
            ("all for each", lambda a, b: [Statement(at(b), (SIZE,), [Term(Access(a, 0, (0, 1)), (SIZE,))])]),
            ("through a table", lambda a, b: [statement(b, Access(a, 0, (1,), np.arange(SIZE)[::-1]))]),
            ("again and again", lambda a, b: [statement(at(b, 0, 0), at(a, 0, 0), Number(1.0))]),
            ("added to", lambda a, b: [statement(b, at(a), accumulate=True)]),
            ("read later", lambda a, b: [statement(b, at(a)), statement(array("c"), at(a))]),
            ("written too", lambda a, b: [statement(b, at(a)), statement(a, at(b))]),
        ],
    )
    def test_whatever_reads_more_stays_apart(self, what, make):
        a, b = array("a"), array("b")
        (group,) = groups(make(a, b)) if what != "again and again" else [tuple(make(a, b))]
        assert not can_replace(group, a, b)
        assert can_replace((statement(b, at(a)),), a, b)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("sizes", [[8, 1], [24, 24, 2], [5]])
@pytest.mark.parametrize("count", [1, 7, 37, 100])
def test_networks_on_memory_of_any_contents(activation, sizes, count):
    """A run reads nothing that it has not written; and eager Values agree."""
    rng = Random(count)
    model = nn.MLP(3, sizes, activation=activation, rng=3)
    program = compile(lambda *x: _square(model, x), wrt=model.parameters())
    columns = [[rng.uniform(-1.0, 1.0) for _ in range(count)] for _ in range(3)]
    value, gradient = program.batch_value_and_grad(*columns)
    machine = program._last_run[1].take()
    for kept in machine.views:
        if kept.kind in ("value", "adjoint"):
            machine.views[kept][:] = np.nan
    program._last_run[1].give_back(machine)
    again, gradient_again = program.batch_value_and_grad(*columns)
    np.testing.assert_array_equal([again, *gradient_again], [value, *gradient])
    total = sum((_square(model, x) for x in zip(*columns, strict=True)), Value(0.0)) * (1.0 / count)
    total.backward()
    assert value == pytest.approx(total.data, rel=1e-12)
    np.testing.assert_allclose(gradient, [p.grad for p in model.parameters()], rtol=1e-9, atol=1e-13)


def _square(model, x):
    out = model(list(x))
    return sum(each * each for each in (out if isinstance(out, list) else [out]))

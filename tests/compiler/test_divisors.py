"""Divisors outside of sums: what shares a divisor is added up and then divided."""

import numpy as np
import pytest

from chainrule import Value, compile, softmax
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native
from chainrule.compiler.passes.divisors import with_divisors_outside
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Number, Repeat, Statement, Term

ROWS, COLUMNS = 3, 5


def normalised(target=(1,), divisor=(1, 0), table=None, sign=1, accumulate=False, in_time=False, itself=False):
    """The derivatives with respect to the sums that rows were divided by."""
    numbers = {kind: Array(kind, ROWS * COLUMNS, kind) for kind in ("input", "captured", "parameter")}
    dy, y, s = [numbers[kind] for kind in ("input", "captured", "parameter")]
    ds = Array("ds", ROWS, "value")
    quotient = -(Access(y, 0, (COLUMNS, 1)) / Access(s, 0, divisor))
    product = Access(ds if itself else dy, 0, (1, 0) if itself else (COLUMNS, 1)) * quotient
    place = Access(ds, 0, target, table)
    start = Statement(Access(ds, 0, (1,)), (ROWS,), [Term(Number(0.25))])
    step = Statement(place, (ROWS,), [Term(product, (COLUMNS,), sign)], accumulate)
    return ArrayProgram([start, Repeat(2, [step]) if in_time else step], numbers, ds).verify()


def results(program, runner):
    machine = runner(program)
    draw = np.random.default_rng(1)
    for leaf in program.leaves.values():
        machine.views[leaf][: leaf.size] = draw.normal(size=leaf.size)
    machine.run()
    return machine.views[program.output][:ROWS].copy()


def test_the_sum_is_divided_once():
    assert str(with_divisors_outside(normalised(sign=-1, accumulate=True)).verify()).splitlines() == [
        "i<3: ds[i] = 0.25",
        "i<3: ds.sum[i] = Σj<5 input[5i+j]·(neg(captured[5i+j]))",
        "i<3: ds[i] += - ds.sum[i] / parameter[i]",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"sign": -1},
        {"accumulate": True},
        {"sign": -1, "accumulate": True},
        {"table": np.array([2, 0, 1])},
        {"target": (0,), "accumulate": True},
        {"table": np.array([2, 0, 2]), "accumulate": True},
        {"divisor": (0, 1)},
        {"divisor": (0, 0)},
        {"in_time": True, "accumulate": True},
        {"itself": True, "accumulate": True},
    ],
    ids=str,
)
def test_the_same_numbers(given):
    expected = results(normalised(**given), Interpreted)
    for runner in (Interpreted, Native):
        found = results(with_divisors_outside(normalised(**given)).verify(), runner)
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize(
    "given",
    [
        {"divisor": (1, 1)},  # one for each term
        {"target": (0,), "accumulate": True},  # all sums in one place
        {"table": np.array([2, 0, 2]), "accumulate": True},
        {"in_time": True},
        {"itself": True, "accumulate": True},
    ],
    ids=str,
)
def test_not_where_sums_have_no_places_or_divisors_of_their_own(given):
    assert str(with_divisors_outside(normalised(**given))) == str(normalised(**given))


def test_the_derivatives_of_a_softmax():
    scores = [[Value(0.1 * i * j - 0.3) for j in range(9)] for i in range(8)]
    leaves = [score for row in scores for score in row]
    exps = [[score.exp() for score in row] for row in scores]
    by_hand = [[e / sum(row) for e in row] for row in exps]
    shares = [softmax(row) for row in scores]
    for rows in (by_hand, shares):
        loss = sum((k + 1.0) * share * share for row in rows for k, share in enumerate(row))
        for leaf in leaves:
            leaf.grad = 0.0
        loss.backward()
        program = compile(loss, wrt=leaves)
        assert ".sum" in str(with_divisors_outside(program.code.laid_out))
        expected = [leaf.grad for leaf in leaves]
        np.testing.assert_allclose(program.value_and_grad()[1], expected, rtol=1e-12, atol=1e-15)

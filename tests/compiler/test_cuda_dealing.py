"""How the CUDA backend deals work to threads, so that they rarely wait for each other at shared memory."""

from itertools import product

import numpy as np
import pytest

from chainrule import ops
from chainrule.compiler.backends.cuda.banks import WARP, wavefronts
from chainrule.compiler.backends.cuda.blocks import Call, with_barriers
from chainrule.compiler.backends.cuda.costs import cost, cost_of_sum
from chainrule.compiler.backends.cuda.dealing import Block, Deal, deal, deal_sum, touches
from chainrule.compiler.backends.cuda.rows import in_rows
from chainrule.compiler.backends.cuda.storage import Storage
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term

FLOAT = 4  # bytes
SHARING = Block(256, 4)  # threads that share four examples


class TestWavefronts:
    """The figures are those that the profiler gave for such loads on an H200."""

    @pytest.mark.parametrize(
        ("place", "words", "expected"),
        [
            (lambda lane: lane, 1, 1),
            (lambda lane: 0, 1, 1),
            (lambda lane: 32 * lane, 1, 32),
            (lambda lane: lane % 4 + 64 * (lane // 4), 1, 8),
            (lambda lane: 4 * lane, 4, 4),
            (lambda lane: 0, 4, 2),
            (lambda lane: 68 * (lane // 16), 4, 2),
            (lambda lane: 68 * (lane % 16), 4, 4),
            (lambda lane: 68 * (lane // 2), 4, 2),  # neighbours have the same address
            (lambda lane: 16 * (lane % 16), 4, 16),
        ],
    )
    def test_of_a_warp(self, place, words, expected):
        assert wavefronts([place(lane) for lane in range(WARP)], words) == expected


class TestDeals:
    @pytest.mark.parametrize(
        "given",
        [
            Deal((4, 16, 6), (4, 1, 1), (1, 2, 0)),
            Deal((4, 16, 6), (4, 2, 3), (2, 1, 0), pair=1),
            Deal((16, 12), (4, 6), (1, 0), near=(2, 3), pair=0),
            Deal((16, 12), (8, 2), (0, 1), near=(1, 2), pair=1),
        ],
    )
    def test_every_turn_belongs_to_one_tile(self, given):
        found = []
        for number in range(given.count):
            first = given.first(number)
            turns = [[first[d] + given.turn(d, k) for k in range(t)] for d, t in enumerate(given.tile)]
            found += product(*turns)
        assert sorted(found) == list(product(*map(range, given.loops)))

    def test_a_product_is_dealt_so_that_neighbours_share_operands(self):
        """Σl weights[k, l]·x[j, l]: rows of x that begin in different banks, and padded weights."""
        x, y = (Array(name, 16 * 68, "value", examples=4) for name in "xy")
        weights = Array("w", 16 * 20, "value")
        operands = Access(weights, 0, (0, 0, 20, 1)), Access(x, 0, (1, 68, 0, 4))
        statement = Statement(Access(y, 0, (1, 68, 4)), (4, 16, 16), [Term(Apply(ops.mul, operands), (16,))])
        found = deal(statement, SHARING, FLOAT)
        plain = Deal((4, 16, 16), (4, 1, 1), (1, 2, 0))
        assert (found.tile, found.pair) == (plain.tile, 1)
        assert cost(statement, found, FLOAT) < cost(statement, plain, FLOAT)

    @pytest.mark.parametrize("pitch", [256, 260])
    def test_a_sum_over_examples_has_no_conflicts(self, pitch):
        """Σk Σl dx[4i + 68k + l]·y[4j + pitch·k + l]: four numbers at once, two wavefronts for each load."""
        operands = (
            Access(Array("dx", 16 * 68, "value", examples=4), 0, (4, 0, 68, 1)),
            Access(Array("y", 16 * pitch, "value", examples=4), 0, (0, 4, pitch, 1)),
        )
        target = Access(Array("dw", 16 * 64, "gradient"), 0, (64, 1))
        statement = Statement(target, (16, 64), [Term(Apply(ops.mul, operands), (16, 4))], accumulate=True)
        found = deal_sum(statement, SHARING, FLOAT, whole=False)
        assert cost_of_sum(statement, found, FLOAT) == 2 * sum(found.outputs.tile)

    def test_a_sum_over_examples_that_threads_own_has_no_conflicts(self):
        rows = [Array(name, 16 * 516, "value", examples=512) for name in ("dy", "x")]
        operands = Access(rows[0], 0, (516, 0, 1)), Access(rows[1], 0, (0, 516, 1))
        target = Access(Array("dw", 256, "gradient"), 0, (16, 1))
        statement = Statement(target, (16, 16), [Term(Apply(ops.mul, operands), (512,))], accumulate=True)
        found = deal_sum(statement, Block(128, 512, 4), FLOAT, whole=False)
        assert cost_of_sum(statement, found, FLOAT) == 2 * sum(found.outputs.tile)


class TestBarriers:
    def waits(self, second_stride):
        """Whether a statement that goes on with what another one wrote, turn by turn or not, waits for it."""
        a, b, c = (Array(name, 4 * 256, "value", examples=4) for name in "abc")
        storage = Storage()
        storage.add("shared", (a, b, c))
        first = Statement(Access(b, 0, (1, 4)), (4, 256), [Term(Access(a, 0, (1, 4)))])
        second = Statement(Access(c, 0, (1, 4)), (4, 256), [Term(Access(b, 0, (1, second_stride)))])
        calls = []
        for statement in (first, second):
            target, *others = touches(statement, deal(statement, SHARING, FLOAT), SHARING.threads)
            calls.append(Call("", [target], others))
        return [call.waits for call in with_barriers(calls, storage)]

    def test_statements_that_are_dealt_alike(self):
        assert self.waits(4) == [False, False]

    def test_statements_that_read_elsewhere(self):
        assert self.waits(0) == [False, True]


class TestRows:
    def test_one_loop_through_several_runs_is_split(self):
        """Threads that go from row to row of 16 use different banks, though one statement goes through all at once."""
        x, y = (Array(name, 4 * 1024, kind, examples=4) for name, kind in (("x", "input"), ("y", "value")))
        total = Array("t", 4 * 64, "value", examples=4)
        steps = [
            Statement(Access(y, 0, (1, 4)), (4, 1024), [Term(Apply(ops.exp, (Access(x, 0, (1, 4)),)))]),
            Statement(Access(total, 0, (1, 4)), (4, 64), [Term(Access(y, 0, (1, 64, 4)), (16,))]),
        ]
        first, second = in_rows(ArrayProgram(steps, {"input": x}, total)).steps
        assert first.loops == (4, 64, 16)
        assert first.target.strides == next(second.accesses()).strides == (1, 68, 4)
        reached = first.target.positions(first.loops)
        assert len(np.unique(reached)) == 4096
        assert reached.max() < first.target.array.size

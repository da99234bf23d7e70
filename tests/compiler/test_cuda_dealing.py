"""How the CUDA backend deals work to threads, so that they rarely wait for each other at shared memory."""

import numpy as np

from chainrule import ops
from chainrule.compiler.backends.cuda.rows import in_rows
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term


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

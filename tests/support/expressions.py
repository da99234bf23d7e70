"""Random programs over the op table, as data: hypothesis draws and shrinks them, any number type runs them."""

import math

from hypothesis import strategies as st

from chainrule.ops import TABLE

ROWS = list(TABLE.values())  # the rows as shipped
CONTINUOUS = [row for row in ROWS if all(row.partials) and row.name not in ("fmod", "mod")]  # which jump

numbers = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, math.inf, -math.inf, math.nan, 1e308, 1e-308, 5e-324]),
)
tame_numbers = st.floats(0.1, 2.0).map(lambda x: round(x, 3))


@st.composite
def programs(draw, rows=ROWS, numbers=numbers, most_nodes=200):
    """(leaves, steps): each step is (row, indices of earlier results, or ("constant", number))."""
    leaves = draw(st.lists(numbers, min_size=1, max_size=5))
    steps = []
    for _ in range(draw(st.integers(1, most_nodes))):
        row = draw(st.sampled_from(rows))
        available = len(leaves) + len(steps)
        operands = []
        for _ in range(row.arity):
            if draw(st.integers(0, 9)) == 0:
                operands.append(("constant", draw(numbers)))
            else:  # mostly recent results, so that programs are deep
                operands.append(max(0, available - 1 - draw(st.integers(0, min(available - 1, 6)))))
        steps.append((row, operands))
    return leaves, steps


def run(program, leaf, apply):
    """The leaves and all results of a program, with `leaf` to make numbers and `apply(row, operands)` to compute."""
    numbers, steps = program
    leaves = [leaf(number) for number in numbers]
    results = list(leaves)
    for row, operands in steps:
        results.append(apply(row, [o[1] if isinstance(o, tuple) else results[o] for o in operands]))
    return leaves, results

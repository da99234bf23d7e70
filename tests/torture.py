"""Random programs on every engine, for as long as you like; a failure is shrunk to a minimal program and printed.

    python tests/torture.py --seconds 60 --seed 1

A program is data: numbers to start from, and blocks that append vectors to a list of vectors, by elementwise ops,
matrix products, stencils, running sums, gathers or loops in time. Indices wrap around, so a program stays valid
whatever is taken out of it, and shrinking is taking out. Half of the programs are wild (any op, any number, infinities
included): there the Python engine, the native one and `compile(strict=True)` must agree to the last bit. The others are
tame: there compiled code, the reference interpreter and PyTorch must agree too, as far as rounding allows; at a corner
of relu, clip and their like it allows anything.
"""

import argparse
import math
import random
import struct
import sys
import time
import warnings

import chainrule
from chainrule import engine, ops
from chainrule.compiler import compile
from engines import ENGINES
from expressions import CONTINUOUS, ROWS

WILD_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, math.inf, -math.inf, math.nan, 1e308, 1e-308, 5e-324)
LARGEST = 1e6  # beyond it, tame programs are not compared: rounding decides
MOST_NODES = 3000


def random_program(rng):
    """(wild, leaves, blocks)."""
    wild = rng.random() < 0.5
    leaves = [
        rng.choice(WILD_NUMBERS) if wild and rng.random() < 0.3 else round(rng.uniform(0.1, 2.0), 3)
        for _ in range(rng.randint(1, 8))
    ]
    rows = ROWS if wild else CONTINUOUS
    return wild, leaves, [random_block(rng, rows) for _ in range(rng.randint(1, 8))]


def random_block(rng, rows):
    kind = rng.choice(["each", "each", "each", "matrix", "stencil", "running", "gather", "time", "scale"])
    row = rng.choice(rows)
    numbers = [rng.randint(0, 9) for _ in range(6)]
    body = [(rng.choice(rows).name, [rng.randint(0, 9) for _ in range(4)]) for _ in range(rng.randint(1, 4))]
    return kind, row.name, numbers, body if kind == "time" else []


def run(program, leaf, apply):
    """The leaves and the result, with `leaf` to make numbers and `apply(row, operands)` to compute."""
    _, numbers, blocks = program
    leaves = [leaf(number) for number in numbers]
    vectors = [leaves]
    budget = [MOST_NODES]

    def op(row, operands):
        budget[0] -= 1
        return apply(row, operands) if budget[0] > 0 else operands[0]

    for block in blocks:
        vectors.append(run_block(block, vectors, op))
    total = vectors[-1][0]
    for value in vectors[-1][1:]:
        total = op(ops.add, [total, value])
    return leaves, op(ops.mul, [total, 0.125])


def run_block(block, vectors, op):
    kind, name, (i, j, k, size, shift, times), body = block
    row, a, b, c = ops.TABLE[name], vectors[-1 - i % len(vectors)], vectors[j % len(vectors)], vectors[0]

    def operands(n):
        return [v[(n + shift * p) % len(v)] for p, v in zip(range(row.arity), (a, b, c), strict=False)]

    if kind == "each":
        return [op(row, operands(n)) for n in range(max(len(a), 1 + size))]
    if kind == "scale":
        return [op(ops.mul, [v, 0.1 * (k + 1)]) for v in a]
    if kind == "gather":
        return [a[(n * n + shift) % len(a)] for n in range(1 + size)]
    if kind == "stencil":
        return [op(row, [a[(n + p) % len(a)] for p in range(row.arity)]) for n in range(len(a))]
    if kind == "running":
        return [
            sum_of(op, [op(ops.mul, [a[p % len(a)], b[p % len(b)]]) for p in range(n + 1)]) for n in range(1 + size)
        ]
    if kind == "matrix":
        return [
            sum_of(op, [op(ops.mul, [b[(n * len(a) + p) % len(b)], a[p]]) for p in range(len(a))])
            for n in range(1 + size)
        ]
    state = [a[n % len(a)] for n in range(1 + size % 4)]
    for time_ in range(3 + 3 * times):
        values = [*state, b[time_ % len(b)], c[k % len(c)]]
        for step, places in body:
            step_row = ops.TABLE[step]
            values.append(op(step_row, [values[-1 - p % len(values)] for p in places[: step_row.arity]]))
        state = [*state[1:], values[-1]]
    return state


def sum_of(op, terms):
    total = terms[0]
    for term in terms[1:]:
        total = op(ops.add, [total, term])
    return total


def smooth_graph(seed, most_blocks=8):
    """(leaves, root, reach) of a random program on Values, after a backward pass; None if its numbers grow large.

    `reach` is by how much rounding errors may be magnified.
    """
    _, numbers, blocks = random_program(random.Random(seed))
    numbers = [0.5 + abs(n) % 1.0 if math.isfinite(n) else 0.5 for n in numbers]
    nodes = []

    def apply(row, operands):
        nodes.append(chainrule.Value._apply(row, tuple(operands)))
        return nodes[-1]

    leaves, root = run((False, numbers, blocks[:most_blocks]), chainrule.Value, apply)
    root.backward()
    if not all(math.isfinite(v.data) and abs(v.data) < 1e4 and abs(v.grad) < 1e4 for v in nodes):
        return None
    return leaves, root, max(1.0, sum(abs(v.data * v.grad) for v in nodes))


class Eager:
    """A program run on Values: its nodes, its result and its gradients."""

    def __init__(self, Value, program):
        self.nodes = []

        def apply(row, operands):
            self.nodes.append(Value._apply(row, tuple(operands)))
            return self.nodes[-1]

        leaves, root = run(program, Value, apply)
        root.backward()
        self.numbers = [root.data, *[leaf.grad for leaf in leaves]]


def compiled(program, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaves, root = run(program, chainrule.Value, lambda row, o: chainrule.Value._apply(row, tuple(o)))
        value, gradient = compile(root, leaves, **options).value_and_grad()
    return [value, *gradient.tolist()]


def pytorch(program):
    import torch

    import torch_ops

    def tensor(number):
        return number if torch.is_tensor(number) else torch.tensor(float(number), dtype=torch.float64)

    leaves, root = run(
        program, torch_ops.leaf, lambda row, operands: torch_ops.FUNCTIONS[row.name](*map(tensor, operands)).double()
    )
    if root.requires_grad:
        root.backward()
    return [root.item(), *[0.0 if leaf.grad is None else leaf.grad.item() for leaf in leaves]]


EXACT = {"compile(strict=True)": lambda program: compiled(program, strict=True)}
if "native" in ENGINES:
    EXACT["native engine"] = lambda program: Eager(ENGINES["native"], program).numbers
ROUNDED = {
    "compile": lambda program: compiled(program),
    "compile(backend='interpreter')": lambda program: compiled(program, backend="interpreter"),
    "PyTorch": pytorch,
}


def bits(number):
    return "nan" if math.isnan(number) else struct.pack("<d", number)


def check(program, exact=EXACT, rounded=ROUNDED):
    """None if all agree, else what does not, in words."""
    eager = Eager(engine.Value, program)
    for name, contender in exact.items():
        found = contender(program)
        if list(map(bits, found)) != list(map(bits, eager.numbers)):
            return f"{name} gives {found}, and the Python engine {eager.numbers}"
    values = [x for node in eager.nodes for x in (node.data, node.grad)]
    if program[0] or not all(math.isfinite(x) and abs(x) < LARGEST for x in values + eager.numbers):
        return None
    reach = max(1.0, sum(abs(node.data * node.grad) for node in eager.nodes))
    tolerance = 1e-12 * reach * max(1.0, *map(abs, values), *map(abs, eager.numbers))
    for name, contender in rounded.items():
        found = contender(program)
        close = all(abs(ours - theirs) <= tolerance for ours, theirs in zip(found, eager.numbers, strict=True))
        if not close and not any(map(is_at_a_corner, eager.nodes)):
            return f"{name} gives {found}, and the Python engine {eager.numbers}, to be equal within {tolerance:.1g}"
    return None


def is_at_a_corner(node):
    """Whether rounding of its operands decides on the node's slopes, as in relu(x - x * (1 / x) * x)."""
    numbers = [operand.data for operand in node._operands]

    def slopes(operands):
        out = node._rule.forward(*operands)
        return [partial(out, *operands) for partial in node._rule.partials]

    here = slopes(numbers)
    for k, number in enumerate(numbers):
        for nudge in (-1e-9, 1e-9):
            there = slopes([*numbers[:k], number + nudge * max(1.0, abs(number)), *numbers[k + 1 :]])
            if any(abs(a - b) > 1e-3 * max(1.0, abs(a)) for a, b in zip(here, there, strict=True)):
                return True
    return False


def shrunk(program, fails, most=2000):
    """A smaller program that fails as well: blocks, leaves and numbers taken out or made simpler, while it does."""
    tries = 0
    changed = True
    while changed and tries < most:
        changed = False
        for smaller in simpler(program):
            tries += 1
            if tries >= most:
                break
            if fails(smaller):
                program, changed = smaller, True
                break
    return program


def simpler(program):
    """Programs that are a little simpler, the boldest steps first."""
    wild, leaves, blocks = program
    for k in range(len(blocks)):
        if len(blocks) > 1:
            yield wild, leaves, blocks[:k] + blocks[k + 1 :]
    for k in range(len(leaves)):
        if len(leaves) > 1:
            yield wild, leaves[:k] + leaves[k + 1 :], blocks
    for k, (kind, name, numbers, body) in enumerate(blocks):
        for j in range(len(body)):
            if len(body) > 1:
                yield wild, leaves, [*blocks[:k], (kind, name, numbers, body[:j] + body[j + 1 :]), *blocks[k + 1 :]]
        for j, number in enumerate(numbers):
            for less in {0, number // 2} - {number}:
                simple = [*numbers[:j], less, *numbers[j + 1 :]]
                yield wild, leaves, [*blocks[:k], (kind, name, simple, body), *blocks[k + 1 :]]
    for k, leaf in enumerate(leaves):
        if leaf not in (1.0, 0.5):
            yield wild, [*leaves[:k], 1.0, *leaves[k + 1 :]], blocks
            yield wild, [*leaves[:k], 0.5, *leaves[k + 1 :]], blocks


def written_out(program):
    """The program as a person would write it, a line an op."""
    lines = []

    class Name(str):
        """A variable of the text."""

    def leaf(number):
        lines.append(f"x{len(lines)} = Value({number!r})")
        return Name(f"x{len(lines) - 1}")

    def apply(row, operands):
        lines.append(f"v{len(lines)} = {row.name}({', '.join(map(str, operands))})")
        return Name(f"v{len(lines) - 1}")

    run(program, leaf, apply)
    return "\n".join(lines if len(lines) <= 40 else [*lines[:40], f"… {len(lines) - 40} more"])


def verdict(program, exact, rounded):
    """As `check`; an engine that raises is a failure too."""
    try:
        return check(program, exact, rounded)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def minimal(program, culprit, exact, rounded):
    """A program as small as can be on which the same engine fails, and how it does."""
    least = shrunk(program, lambda smaller: (verdict(smaller, exact, rounded) or "").startswith(culprit))
    return least, verdict(least, exact, rounded)


def torture(seconds, seed, exact=EXACT, rounded=ROUNDED, say=print):
    """The number of programs tried, or None after a failure has been printed."""
    stop, tried = time.monotonic() + seconds, 0
    while time.monotonic() < stop:
        program = random_program(random.Random(f"{seed}/{tried}"))
        failure = verdict(program, exact, rounded)
        if failure:
            least, failure = minimal(program, failure.split(" ")[0], exact, rounded)
            say(f"program {tried} of seed {seed}: {failure}\n\n{written_out(least)}\n\nas data: {least!r}")
            return None
        tried += 1
    return tried


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", default=str(time.time_ns() % 10**9), help="a failure is found again by its seed")
    arguments = parser.parse_args()
    tried = torture(arguments.seconds, arguments.seed)
    if tried is None:
        return 1
    print(f"{tried:,} programs of seed {arguments.seed}: all agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Random programs on every engine, for as long as you like; a failure is shrunk to a minimal program and printed.

    python tests/support/torture.py --seconds 60 --seed 1
    python tests/support/torture.py --programs 100 --families coupled,scan --seed 1

Programs come in families. Those of `torture_families` are the loops that people write: coupled recurrences, recurrent
nets, stencils, integrators and so on; `torture_engines` runs them. The family `examples` is data of several structures,
with one of these programs for each, in batches and in training: see `torture_examples`.

The family `blocks`, here, is over the whole op table. A program is data: numbers to start from, and blocks that append
vectors to a list of vectors, by elementwise ops, matrix products, stencils, running sums, gathers or loops in time.
Indices wrap around, so a program stays valid whatever is taken out of it, and shrinking is taking out. Half of the
programs are wild (any op, any number, infinities included): there the Python engine, the native one and
`compile(strict=True)` must agree to the last bit. The others are tame: there compiled code, the reference interpreter
and PyTorch must agree too, as far as rounding allows; at a corner of relu, clip and their like it allows anything.
Second derivatives of the smaller ones, which are compiled as arrays, must be those of eager code.
"""

import argparse
import math
import os
import random
import re
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import chainrule
import torture_engines
import torture_examples
from chainrule import engine, ops
from chainrule.compiler import compile
from engines import ENGINES
from expressions import CONTINUOUS, ROWS
from torture_engines import LARGEST, TOLERANCE, bits, is_at_a_corner
from torture_families import FAMILIES

WILD_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, math.inf, -math.inf, math.nan, 1e308, 1e-308, 5e-324)
MOST_NODES = 3000
MOST_NODES_TWICE = 600  # for second derivatives, which eager code takes one by one


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


def check(program, exact=EXACT, rounded=ROUNDED):
    """None if all agree, else what does not, in words."""
    eager = Eager(engine.Value, program)
    for name, contender in exact.items():
        found = contender(program)
        if bits(found) != bits(eager.numbers):
            return f"{name} gives {found}, and the Python engine {eager.numbers}"
    values = [x for node in eager.nodes for x in (node.data, node.grad)]
    if program[0] or not all(math.isfinite(x) and abs(x) < LARGEST for x in values + eager.numbers):
        return None
    reach = max(1.0, sum(abs(node.data * node.grad) for node in eager.nodes))
    tolerance = TOLERANCE * reach * max(1.0, *map(abs, values), *map(abs, eager.numbers))
    for name, contender in rounded.items():
        found = contender(program)
        close = all(abs(ours - theirs) <= tolerance for ours, theirs in zip(found, eager.numbers, strict=True))
        if not close and not any(map(is_at_a_corner, eager.nodes)):
            return f"{name} gives {found}, and the Python engine {eager.numbers}, to be equal within {tolerance:.1g}"
    return check_twice(program, eager, 1e3 * tolerance)


def check_twice(program, eager, tolerance):
    """The same of second derivatives."""

    def function(leaves):
        return run((program[0], leaves, program[2]), lambda leaf: leaf, lambda row, operands: row(*operands))[1]

    if len(eager.nodes) > MOST_NODES_TWICE or any(map(is_at_a_corner, eager.nodes)):
        return None
    hessian, leaves = chainrule.hessian(function), program[1]
    wanted = [number for row in hessian(leaves) for number in row]
    size = max(map(abs, wanted))
    for backend in ("llvm", "interpreter") if size < LARGEST else ():
        found = [number for row in compile(hessian, backend=backend)(leaves) for number in row]
        if not all(
            abs(ours - theirs) <= tolerance * max(1.0, size) for ours, theirs in zip(found, wanted, strict=True)
        ):
            return f"compile(hessian, backend={backend!r}) gives {found}, and eager code {wanted}"
    return None


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


def verdict(program, exact=EXACT, rounded=ROUNDED):
    """As `check`; an engine that raises is a failure too."""
    try:
        return check(program, exact, rounded)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Family(NamedTuple):
    """Programs of one kind: drawn by a seed, judged, made simpler and shown."""

    draw: Callable[[str], Any]
    verdict: Callable[..., str | None]
    simpler: Callable[[Any], Any]
    written_out: Callable[[Any], str]


def blocks(exact=EXACT, rounded=ROUNDED):
    """The family of this module, with those that are to agree."""
    return Family(
        lambda seed: random_program(random.Random(seed)),
        lambda program, culprit=None: verdict(program, exact, rounded),
        simpler,
        lambda program: f"{written_out(program)}\n\nas data: {program!r}",
    )


def loops(name, engines=torture_engines.ENGINES):
    """A family of `torture_families`. Of a failure only the engine that failed is asked again."""
    return Family(
        lambda seed: torture_engines.random_program(name, seed),
        lambda program, culprit=None: torture_engines.check(program, engines, culprit),
        torture_engines.simpler,
        lambda program: f"{torture_engines.written_out(program)}\n\nas data: {program!r}",
    )


def examples(engines=torture_examples.ENGINES):
    """The family of `torture_examples`."""
    return Family(
        torture_examples.random_examples,
        lambda program, culprit=None: torture_examples.check(program, engines, culprit),
        torture_examples.simpler,
        lambda program: f"{torture_examples.written_out(program)}\n\nas data: {program!r}",
    )


def families_of(names, engines=tuple(torture_engines.ENGINES)):
    """The families of these names, by name, on the engines of these names."""
    on_loops, on_examples = (
        {name: engine for name, engine in module.ENGINES.items() if name in engines}
        for module in (torture_engines, torture_examples)
    )
    special = {"blocks": blocks, "examples": lambda: examples(on_examples)}
    return {name: special[name]() if name in special else loops(name, on_loops) for name in names}


ALL = families_of(["blocks", "examples", *FAMILIES])


def shrunk(program, simpler, fails, most=2000):
    """The program made simpler, step by step, while it fails."""
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


def minimal(family, program, failure):
    """A program as small as can be on which the same engine fails in the same way, and how it does."""
    who, how = _culprit(failure)
    least = shrunk(program, family.simpler, lambda smaller: _culprit(family.verdict(smaller, who) or "") == (who, how))
    return least, family.verdict(least, who) or f"{failure} (once, but not when it was tried again)"


def _culprit(failure):
    """Who fails, and how, by the words of a verdict; the name of an engine may have several."""
    found = re.match("(.+?) (gives|raises) ", failure)
    return found.groups() if found else (failure.partition(" ")[0], "")


def torture(seed, seconds=math.inf, programs=math.inf, first=0, families=ALL, say=print):
    """How many programs of each family were tried, so many of each at most; None after a failure has been printed.

    Families take turns: the one that had the least time so far is the next.
    """
    stop, tried, spent = time.monotonic() + seconds, dict.fromkeys(families, 0), dict.fromkeys(families, 0.0)
    while time.monotonic() < stop and (open_ := [name for name in families if tried[name] < programs]):
        name = min(open_, key=spent.__getitem__)
        started, number = time.monotonic(), first + tried[name]
        family = families[name]
        program = family.draw(f"{seed}/{name}/{number}")
        failure = family.verdict(program)
        if failure:
            least, failure = minimal(family, program, failure)
            again = f"python tests/support/torture.py --seed {seed} --families {name} --first {number} --programs 1"
            say(f"{name}, program {number} of seed {seed}: {failure}\n\n{family.written_out(least)}\n\nagain: {again}")
            return None
        tried[name] += 1
        spent[name] += time.monotonic() - started
    return tried


def to_the_last_bit():
    """Have XLA add up in the same order in every run, which it does not on a GPU; to be called before JAX starts."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".lstrip()


def main():
    """The command line."""
    to_the_last_bit()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=math.inf, help="60 if no number of programs is given")
    parser.add_argument("--programs", type=int, default=math.inf, help="of each family, at most")
    parser.add_argument("--families", default=",".join(ALL), help="of " + ", ".join(ALL))
    parser.add_argument("--engines", default=",".join(torture_engines.ENGINES), help="for all families but blocks")
    parser.add_argument("--seed", default=str(time.time_ns() % 10**9), help="a failure is found again by its seed")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    arguments = parser.parse_args()
    seconds = 60.0 if arguments.seconds == arguments.programs == math.inf else arguments.seconds
    for given, known in ((arguments.families, ALL), (arguments.engines, torture_engines.ENGINES)):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))} is not one of {', '.join(known)}")
    families = families_of(arguments.families.split(","), arguments.engines.split(","))
    tried = torture(arguments.seed, seconds, arguments.programs, arguments.first, families)
    if tried is None:
        return 1
    print(", ".join(f"{name} {count:,}" for name, count in tried.items()))
    print(f"{sum(tried.values()):,} programs of seed {arguments.seed}: all agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How each engine runs a program of a family (`torture_families`), and what they must agree on.

Eager code and PyTorch run the family's own lines at every move, which is a set of new numbers for the leaves. Whoever
compiles does so once, at the first numbers, and is then called at all moves. `strict` programs must give eager's bits;
the others what eager gives, within what rounding can do: the size of all nodes times their derivatives, as in
`torture`. At a corner of relu and its like that is anything.
"""

import math
import random
import struct
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import chainrule
from chainrule import Value, ops
from chainrule.compiler import compile
from chainrule.compiler.backends import interpret
from chainrule.compiler.backends.cuda.driver import is_available
from chainrule.compiler.backends.llvm.fusion import without_zeros
from chainrule.compiler.passes import (
    classes,
    completion,
    cones,
    families,
    gather,
    loops,
    order,
    postpone,
    repeats,
    threads,
)
from chainrule.compiler.passes import lift as lifting
from chainrule.compiler.passes.classes import classify, links_of_differences
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.layout import lay_out
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.loops import find_loops
from chainrule.compiler.passes.outline import leaves_first
from chainrule.compiler.passes.partition import partition
from chainrule.compiler.passes.postpone import postponed
from chainrule.compiler.passes.recurrence import find_recurrences
from chainrule.compiler.passes.waists import by_depth, find_levels
from chainrule.compiler.trace.graph import graph_of
from chainrule.core.graph import lay_flat
from emulated_gpu import playing, random_shape
from torture_families import BRANCHING, FAMILIES, Picks, World

MOVES = 3
LARGEST = 1e6  # beyond it, numbers are not compared: rounding decides
TOLERANCE = 1e-12  # for each unit of what rounding is magnified by, in doubles
SINGLE = 2.0**29  # how much coarser floats are
FUNCTIONS = ops.TABLE | {"softmax": chainrule.softmax, "logsumexp": chainrule.logsumexp}
MODES = ("graph", "graph", "graph", "function", "function", "batch")
EXAMPLES = (1, 2, 3, 7, 8, 9, 16, 17, 33)
FEW_EXAMPLES = (1, 2, 3, 9)  # which may each take another path


class Program(NamedTuple):
    """A family, the whole numbers that it picked, and a seed for the leaves' numbers and the choice of engines."""

    family: str
    picks: tuple[int, ...]
    seed: str


def random_program(family, seed):
    """A program of this family, always the same one for a seed."""
    picks = Picks(rng=random.Random(f"{seed} picks"))
    program = Program(family, (), seed)
    written(program, Leaves(Value), FUNCTIONS, picks=picks)
    return Program(family, tuple(picks.taken), seed)


def written(program, leaf, functions, move=0, example=0, picks=None):
    """What the program's code gives, with `leaf(kind, number)` to make its leaves of the numbers at a move."""
    numbers = {
        "parameter": random.Random(f"{program.seed} parameter {move}"),
        "datum": random.Random(f"{program.seed} datum {move} {example}"),
    }
    made = []

    def make(kind, low, high):
        made.append(leaf(kind, numbers[kind].uniform(low, high)))
        return made[-1]

    result = FAMILIES[program.family](World(picks or Picks(program.picks), make, functions, program.seed))
    return made[0] + result if isinstance(result, float) else result  # so that there is something to compile


def written_on(program, parameters, data, functions=FUNCTIONS):
    """The same with leaves that are there already."""
    given = {"parameter": iter(parameters), "datum": iter(data)}
    return written(program, lambda kind, _: next(given[kind]), functions)


class Leaves:
    """Makes leaves of some kind of number, and keeps them and the numbers."""

    def __init__(self, make):
        self.make = make
        self.all = []
        self.kinds = []
        self.numbers = []

    def __call__(self, kind, number):
        self.all.append(self.make(number))
        self.kinds.append(kind)
        self.numbers.append(number)
        return self.all[-1]


class Measured:
    """A result on Values after its backward pass: its nodes, and how far rounding may lead it astray."""

    def __init__(self, root):
        every, rules, _ = lay_flat(root)
        self.nodes = [node for node, rule in zip(every, rules, strict=True) if rule is not None]
        sizes = [abs(x) for node in every for x in (node.data, node.grad)]
        self.is_tame = all(size < LARGEST for size in sizes)
        reach = max(1.0, sum(abs(node.data * node.grad) for node in every))
        self.tolerance = TOLERANCE * reach * max(1.0, *sizes)


class Eager(Measured):
    """The program on Values at one move: its result and its gradients."""

    def __init__(self, program, move, example=0):
        made = Leaves(Value)
        self.root = written(program, made, FUNCTIONS, move, example)
        self.leaves, self.kinds, self.numbers = made.all, made.kinds, made.numbers
        self.root.backward()
        self.value, self.gradient = self.root.data, [leaf.grad for leaf in self.leaves]
        super().__init__(self.root)

    def of(self, kind, things):
        """Those of the leaves, or of their numbers, that belong to leaves of this kind."""
        return [thing for thing, this in zip(things, self.kinds, strict=True) if this == kind]


def is_at_a_corner(node):
    """Whether rounding of its operands decides on the node's slopes, as in relu(x - x * (1 / x) * x)."""
    numbers = [operand.data for operand in node._operands]

    def slopes(operands):
        out = node._rule.forward(*operands)
        return [partial(out, *operands) for partial in node._rule.partials if partial]

    here = slopes(numbers)
    for k, number in enumerate(numbers):
        for nudge in (-1e-9, 1e-9):
            there = slopes([*numbers[:k], number + nudge * max(1.0, abs(number)), *numbers[k + 1 :]])
            if any(abs(a - b) > 1e-3 * max(1.0, abs(a)) for a, b in zip(here, there, strict=True)):
                return True
    return False


def bits(numbers):
    return ["nan" if math.isnan(number) else struct.pack("<d", number) for number in numbers]


class Contest:
    """One program, how it is compiled (`mode`), and what eager code makes of it at every move."""

    def __init__(self, program, engines):
        self.program = program
        rng = random.Random(f"{program.seed} contest")
        self.known, self.wanted = {}, {}
        start = self.eager(0)
        self.mode = rng.choice(MODES) if start.of("datum", start.leaves) else rng.choice(MODES[:-1])
        self.mode = "batch" if program.family == "batches" else self.mode
        self.branches = program.family in BRANCHING
        if self.branches and self.mode == "graph":  # of one path
            self.mode = "function"
        self.wrt = start.of("parameter", range(len(start.leaves)))
        if self.mode == "graph" and rng.random() < 0.5:
            self.wrt = list(range(len(start.leaves)))
        if rng.random() < 0.3:
            rng.shuffle(self.wrt)
        if rng.random() < 0.2:
            self.wrt = self.wrt[: rng.randint(0, len(self.wrt))]
        self.examples = rng.choice(FEW_EXAMPLES if self.branches else EXAMPLES) if self.mode == "batch" else 1
        self.reduce = rng.choice(["mean", "sum"])
        self.each = self.mode == "batch" and rng.random() < 0.3  # whether single examples are looked at too
        self.engines = [name for name, engine in engines.items() if rng.random() < engine.share]

    def eager(self, move, example=0):
        if (move, example) not in self.known:
            self.known[move, example] = Eager(self.program, move, example)
        return self.known[move, example]

    def runs(self, move):
        """Every example of a batch at a move; or the one run, if there is no batch."""
        return [self.eager(move, example) for example in range(self.examples)]

    def written(self, move, leaf, functions):
        """The result of every example, and the leaves of the first one; parameters are the same for all of them."""
        runs = self.runs(move)
        parameters = [leaf(number) for number in runs[0].of("parameter", runs[0].numbers)]
        data = [[leaf(number) for number in run.of("datum", run.numbers)] for run in runs]
        of_kind = {"parameter": iter(parameters), "datum": iter(data[0])}
        results = [written_on(self.program, parameters, row, functions) for row in data]
        return results, [next(of_kind[kind]) for kind in runs[0].kinds]

    def numbers(self, total, gradient, results):
        """What is compared: the value, its derivatives by `wrt`, and what single examples gave."""
        return [total, *[gradient[k] for k in self.wrt], *(results if self.each else [])]

    def expected(self, move):
        """Those of eager code; of a batch, as a `strict` program adds it up."""
        if move not in self.wanted:
            results, leaves = self.written(move, Value, FUNCTIONS)
            total = results[0]
            if self.mode == "batch":
                total = chainrule.mean(results) if self.reduce == "mean" else sum(results)
            total.backward()
            gradient, each = [leaf.grad for leaf in leaves], [result.data for result in results]
            self.wanted[move] = self.numbers(total.data, gradient, each)
        return self.wanted[move]

    def tolerance(self, move):
        """How far rounding may lead astray; there is no telling where numbers are not tame."""
        runs = self.runs(move)
        if not all(run.is_tame for run in runs):
            return math.inf
        return sum(run.tolerance for run in runs) / (len(runs) if self.reduce == "mean" else 1)

    def is_at_a_corner(self, move):
        return any(is_at_a_corner(node) for run in self.runs(move) for node in run.nodes)

    def compiled(self, **options):
        """The numbers of a compiled program at every move."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a function was compiled for many structures
            return self.graph(**options) if self.mode == "graph" else self.function(**options)

    def graph(self, **options):
        start, found = Eager(self.program, 0), []
        wrt = [start.leaves[k] for k in self.wrt]
        program = compile(start.root, wrt, **options)
        for move in range(MOVES):
            for leaf, there in zip(start.leaves, self.eager(move).numbers, strict=True):
                leaf.data, leaf.grad = there, 0.0
            value, gradient = program.value_and_grad()
            found.append([value, *gradient.tolist()])
        called, wanted = [program(), *[leaf.grad for leaf in wrt]], [value, *[0.0 + grad for grad in gradient]]
        if bits(called) != bits(wanted):  # 0.0 + -0.0 is 0.0
            raise AssertionError(f"a call adds {called}, and value_and_grad gives {wanted}")
        return found

    def function(self, **options):
        start, found = Eager(self.program, 0), []
        parameters = start.of("parameter", start.leaves)
        wrt = [start.leaves[k] for k in self.wrt]
        program = compile(lambda data: written_on(self.program, parameters, data), wrt, **options)
        for move in range(MOVES):
            runs = self.runs(move)
            for leaf, there in zip(parameters, runs[0].of("parameter", runs[0].numbers), strict=True):
                leaf.data = there
            rows = [run.of("datum", run.numbers) for run in runs]
            if self.mode == "batch":
                value, gradient = program.batch_value_and_grad(rows, reduce=self.reduce)
            else:
                value, gradient = program.value_and_grad(rows[0])
            each = program.batch(rows, reduce=None).tolist() if self.each else []
            found.append([value, *gradient.tolist(), *each])
        return found


def pytorch(contest):
    """The program's own lines on tensors of one double: nothing of ours but the lines."""
    import torch

    import torch_ops

    def on_tensors(name):
        def function(*operands):
            if not any(map(torch.is_tensor, operands)):
                return ops.TABLE[name](*operands)
            tensors = [torch.as_tensor(operand, dtype=torch.float64) for operand in operands]
            return torch_ops.FUNCTIONS[name](*tensors)

        return function

    def of_many(name, function):
        def on_many(items):
            if not any(map(torch.is_tensor, items)):
                return FUNCTIONS[name](items)
            return function(torch.stack([torch.as_tensor(item, dtype=torch.float64) for item in items]), 0)

        return on_many

    functions = {name: on_tensors(name) for name in torch_ops.FUNCTIONS} | {
        "softmax": of_many("softmax", lambda *given: list(torch.softmax(*given))),
        "logsumexp": of_many("logsumexp", torch.logsumexp),
    }
    found = []
    for move in range(MOVES):
        results, leaves = contest.written(move, torch_ops.leaf, functions)
        total = sum(results) / (len(results) if contest.reduce == "mean" else 1)
        total.backward()
        gradient = [0.0 if leaf.grad is None else leaf.grad.item() for leaf in leaves]
        found.append(contest.numbers(total.item(), gradient, [result.item() for result in results]))
    return found


def verified(contest):
    """Every stage of the compiler looks at what it made."""
    start = Eager(contest.program, 0)
    graph = graph_of(start.root, [start.leaves[k] for k in contest.wrt]).verify()
    classes = classify(graph).verify()
    for recurrence in find_recurrences(classes):
        recurrence.verify(classes)
    ordered = leaves_first(graph)
    for loop in [*find_loops(ordered), *find_loops(ordered, inside=True)]:
        loop.verify(ordered)
    for links in (set(), set(links_of_differences(graph))):
        lifting._Lifter(graph, links=links).families.verify()
    program = differentiate(lift(graph, math.inf).verify()).verify()
    without_zeros(lay_out(program)[0].verify()).verify()
    partition(program).whole(program.leaves).verify()


class InParts(interpret.Interpreted):
    """The interpreter, on parts of the parameters and of their gradient."""

    def __init__(self, program, dtype):
        super().__init__(partition(program).whole(program.leaves), dtype)


def in_parts(contest):
    """With parameters in parts, as training steps have them that go through JAX."""
    with patch.object(interpret, "Interpreted", InParts):
        return contest.compiled(backend="interpreter")


def with_loops(contest):
    """With all loops outlined that there are, also where classes do better."""
    always = {"MANY_NODES": 0, "FEW_STATEMENTS": math.inf}
    with patch.multiple(lifting, **always), patch.object(loops, "LEAST_HANDED_OVER", 0.0):
        return contest.compiled(backend="interpreter")


def with_loops_inside(contest):
    """With the loops inside of others, which may read what one another has computed."""
    with patch.object(order, "find_loops", partial(find_loops, inside=True)):
        return with_loops(contest)


def with_cones(contest):
    """With loops for cones of influence wherever one is seen, and several short ones for each."""
    with (
        patch.multiple(lifting, GRADIENT=math.inf, FAR_LESS=0.0, MUCH_LESS=0.01),
        patch.multiple(cones, FEWEST=3, LEAST_COVERED=0.0, FEW_PAIRS=20),
        patch.multiple(threads, FEWEST=3, LEAST_ALIVE=0.0, MOST_ALIVE=1.0),
        patch.multiple(completion, SHORTEST=2, LESS_WORK=1.0),
    ):
        return contest.compiled(backend="interpreter" if contest.program.seed[-1] in "13579" else "llvm")


def with_waists(contest):
    """With a cut at every waist."""

    def levels(graph, inside=False):
        return [] if inside else find_levels(graph, most=64)

    deep = {"leaves_first": lambda graph: by_depth(leaves_first(graph))}
    with patch.object(order, "find_loops", levels), patch.multiple(lifting, **deep):
        return with_loops(contest)


def with_postponing(contest):
    """With everything that can wait as late as it can be."""
    late = {"leaves_first": lambda graph: postponed(leaves_first(graph))}
    with patch.multiple(lifting, **late), patch.object(postpone, "_limit", lambda distances: 1):
        return with_loops(contest)


def by_xla(contest):
    """By XLA, also where there are so many small statements that nodes would be faster."""
    with patch.object(lifting, "LEAST_OF_A_KERNEL", 0):
        return contest.compiled(backend="xla")


def with_sums_and_ends(contest):
    """With every sum going on from an older one, and the ends of all chains of `maximum` and `minimum` gathered."""

    def always(found, graph):
        together = gather.gathered(graph, found.classes)
        return lifting._Lifter(together) if together else found

    eager = {"FEW_STATEMENTS": 0, "VERY_FEW_STATEMENTS": math.inf, "MOST_MORE": math.inf, "_with_gathered": always}
    with (
        patch.multiple(lifting, **eager),
        patch.object(repeats, "LEAST_BEGUN", 0.0),
        patch.object(gather, "FEWEST_LENGTHS", 1),
    ):
        return contest.compiled(backend="interpreter")


def with_inputs(contest):
    """With what steps read from outside gathered wherever there is any, and chains of + and - as sums."""

    def always(found, graph, order, merges):
        together = gather.with_inputs(graph, found.classes)
        return lifting._Lifter(together) if together else found

    with (
        patch.object(lifting, "_with_structure", always),
        patch.multiple(gather, FAR=1, MANY=2, MANY_CHANGES=0.0),
        patch.multiple(classes, LONG=3, LONGEST_PERIOD=1),
    ):
        return contest.compiled(backend="interpreter" if contest.program.seed[-1] in "13579" else "llvm")


def with_differences(contest):
    """With chains of differences as sums, all or some, and rows of one array, wherever there are any."""
    step = 1 + int(contest.program.seed[-1] in "13579")

    def always(found, graph):
        return lifting._Lifter(graph, links=set(links_of_differences(graph)[::step]))

    with (
        patch.object(lifting, "_with_differences", always),
        patch.multiple(families, FEWEST=2, MOST_PADDING=math.inf),
    ):
        return contest.compiled(backend="interpreter")


def in_c(contest):
    """The exported header of one example through a C compiler, with all leaves as parameters."""
    from c_compiler import Compiled

    if contest.mode == "batch" or contest.branches:
        return None
    start, found = Eager(contest.program, 0), []
    program = compile(start.root, start.leaves, backend="interpreter")
    with tempfile.TemporaryDirectory() as folder:
        compiled = Compiled(program.to_c("tortured"), Path(folder))
        for move in range(MOVES):
            given = compiled("tortured_gradient", parameters=contest.eager(move).numbers)
            found.append(contest.numbers(float(given["outputs"][0]), given["gradient"].tolist(), []))
    return found


def in_jax(contest):
    """The exported function of one example inside of `jax.jit`, with all leaves as parameters."""
    import jax

    if contest.mode == "batch" or contest.branches:
        return None
    start, found = Eager(contest.program, 0), []
    function = jax.jit(compile(start.root, start.leaves, backend="interpreter").to_jax(gradient=True))
    with jax.enable_x64(True):
        for move in range(MOVES):
            value, gradient = function(np.array(contest.eager(move).numbers))
            found.append(contest.numbers(float(value), gradient.tolist(), []))
    return found


def by_arguments(contest):
    """The code as a function of all its numbers, with its gradient by these, from arrays that are differentiated."""
    if contest.mode == "batch":
        return None
    program = compile(lambda parameters, data: written_on(contest.program, parameters, data))
    found = []
    for move in range(MOVES):
        run = contest.eager(move)
        given = [run.of(kind, run.numbers) for kind in ("parameter", "datum")]
        value, slopes = program.value_and_grad(*given, argnums=(0, 1))
        of_kind = dict(zip(("parameter", "datum"), map(iter, slopes), strict=True))
        found.append(contest.numbers(value, [next(of_kind[kind]) for kind in run.kinds], []))
    return found


def on_a_gpu(contest, dtype="float64"):
    """On a GPU that is played by this processor, in blocks of any shape, with any room in shared memory."""
    with playing(**random_shape(random.Random(f"{contest.program.seed} gpu"))):
        return contest.compiled(backend="cuda", dtype=dtype)


class Engine(NamedTuple):
    """Gives the numbers of a contest at every move, to be eager's within a tolerance (0: to the bit)."""

    run: Callable[[Contest], list[list[float]] | None]
    coarser: float = 1.0  # than doubles
    share: float = 1.0  # of the programs that it is asked to run


ENGINES = {
    "PyTorch": Engine(pytorch),
    "verify": Engine(verified),
    "strict": Engine(lambda contest: contest.compiled(strict=True), coarser=0.0),
    "interpreter": Engine(lambda contest: contest.compiled(backend="interpreter")),
    "loops": Engine(with_loops),
    "loops inside": Engine(with_loops_inside),
    "cones": Engine(with_cones),
    "waists": Engine(with_waists),
    "postponed": Engine(with_postponing),
    "in parts": Engine(in_parts, share=0.3),
    "sums and ends": Engine(with_sums_and_ends),
    "inputs": Engine(with_inputs),
    "differences": Engine(with_differences),
    "llvm": Engine(lambda contest: contest.compiled()),
    "by arguments": Engine(by_arguments, share=0.3),
    "float32": Engine(lambda contest: contest.compiled(dtype="float32"), coarser=SINGLE, share=0.05),
    "cuda": Engine(on_a_gpu, share=0.1),
    "cuda float32": Engine(lambda contest: on_a_gpu(contest, "float32"), coarser=SINGLE, share=0.02),
    "C": Engine(in_c, share=0.03),
    "jax": Engine(lambda contest: contest.compiled(backend="jax"), share=0.1),
    "to_jax": Engine(in_jax, share=0.03),
    "xla": Engine(by_xla, share=0.01),
}
if is_available():  # a GPU that is no emulation
    ENGINES["GPU"] = Engine(lambda contest: contest.compiled(backend="cuda"), share=0.2)
    single = {"backend": "cuda", "dtype": "float32"}
    ENGINES["GPU float32"] = Engine(lambda contest: contest.compiled(**single), coarser=SINGLE, share=0.05)


def check(program, engines=ENGINES, only=None):
    """None if all agree, else who does not, in words; `only` names the engine to ask."""
    contest = Contest(program, engines)
    for name in [only] if only else contest.engines:
        try:
            failure = disagreement(contest, engines[name])
        except Exception as error:
            failure = f"raises {type(error).__name__}: {error}"
        if failure:
            return f"{name} {failure}"
    return None


def disagreement(contest, engine):
    """What is wrong with an engine's numbers, in words; None if nothing is."""
    if contest.branches and engine.coarser > 1.0:  # its numbers may be on the other side
        return None
    found = engine.run(contest)
    for move, ours in enumerate(found or []):
        wanted = contest.expected(move)
        if engine.coarser == 0.0:
            if bits(ours) != bits(wanted):
                return f"gives {ours} at move {move}, and eager code {wanted}"
            continue
        tolerance = contest.tolerance(move) * engine.coarser
        close = all(abs(a - b) <= tolerance for a, b in zip(ours, wanted, strict=True))
        if tolerance < math.inf and not close and not contest.is_at_a_corner(move):
            return f"gives {ours} at move {move}, and eager code {wanted}, to be equal within {tolerance:.1g}"
    return None


def simpler(program):
    """Programs of the family with less picked, the boldest steps first."""
    for halves in (False, True):
        for k, number in enumerate(program.picks):
            for less in {number // 2, number - 1} if halves else {0}:
                if less < number:
                    picks = Picks((*program.picks[:k], less, *program.picks[k + 1 :]))
                    written(program, Leaves(Value), FUNCTIONS, picks=picks)
                    if tuple(picks.taken) != program.picks:
                        yield program._replace(picks=tuple(picks.taken))


def written_out(program):
    """The program as code on Values, a line an op, and how it is compiled."""
    contest = Contest(program, {})
    start = contest.eager(0)
    leaves = enumerate(zip(start.numbers, start.kinds, strict=True))
    lines = [f"x{k} = Value({number!r})  # {kind}" for k, (number, kind) in leaves]
    lines += lines_of(start.root, {leaf: f"x{k}" for k, leaf in enumerate(start.leaves)})
    by = ", ".join(f"x{k}" for k in contest.wrt)
    batch = f" of {contest.examples} examples, {contest.reduce}" if contest.mode == "batch" else ""
    return "\n".join([*lines, f"compiled as a {contest.mode}{batch}, wrt=[{by}]"])


def lines_of(root, leaves, most=60):
    """A line for each op of a result, with these names of leaves; others are numbers."""
    lines, names = [], []
    for k, (node, rule, places) in enumerate(zip(*lay_flat(root), strict=True)):
        if rule is None:
            names.append(leaves.get(node, repr(node.data)))
        else:
            names.append(f"v{k}")
            lines.append(f"v{k} = {rule.name}({', '.join(names[place] for place in places)})")
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} more"]

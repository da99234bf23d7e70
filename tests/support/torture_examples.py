"""The family `examples` of the torture: ragged data, in batches and in training.

Data has up to three structures, and there is a program of `torture_families` for each: the function that is compiled
does something else for every structure that it meets, and may branch. All programs read the same parameters, the
smaller ones only the first of them. Compiled code must give what the same loop on Values gives: the results of a batch,
its gradient, the losses of training steps, and what these leave in the parameters and in the optimizer.
"""

import math
import random
import warnings
from contextlib import nullcontext
from functools import cached_property
from typing import NamedTuple

import numpy as np

import chainrule
import torture_engines
from chainrule import Value, optim
from chainrule.compiler import compile
from emulated_gpu import playing, random_shape
from torture_engines import FUNCTIONS, SINGLE, Measured, Program, bits, is_at_a_corner, lines_of
from torture_families import BRANCHING, FAMILIES, Picks, World

CONTAINERS = (list, tuple, lambda numbers: {"numbers": numbers}, np.array, lambda numbers: [(), numbers])
OPTIMIZERS = (
    lambda parameters: optim.SGD(parameters, lr=1e-3),
    lambda parameters: optim.SGD(parameters, lr=optim.cosine(1e-3, 1e-4, 9), momentum=0.9, weight_decay=0.1),
    lambda parameters: optim.SGD(parameters, lr=1e-3, momentum=0.9, nesterov=True),
    lambda parameters: optim.RMSprop(parameters, lr=optim.linear(1e-3, 0.0, 7), momentum=0.5, eps=0.1),
    lambda parameters: optim.AdamW(parameters, lr=1e-3, weight_decay=0.1, eps=0.1),
)
STEEPEST = 1e3  # beyond it, a step leads too far for the next ones to be compared


class Examples(NamedTuple):
    """A program and a container for each structure; the structure of each example; how they are trained on."""

    kinds: tuple[tuple[Program, int], ...]
    order: tuple[int, ...]
    size: int
    optimizer: int
    branches: bool
    seed: str


def random_examples(seed):
    """Always the same ones for a seed."""
    rng = random.Random(seed)
    names = [rng.choice(list(FAMILIES)) for _ in range(rng.choice((1, 2, 2, 3)))]
    programs = [torture_engines.random_program(name, f"{seed} {k}") for k, name in enumerate(names)]
    kinds = tuple((program, rng.randrange(len(CONTAINERS))) for program in programs)
    order = tuple(rng.randrange(len(kinds)) for _ in range(rng.choice((1, 2, 3, 7, 9, 20, 40))))
    return Examples(kinds, order, rng.choice((1, 1, 2, 3, 8)), rng.randrange(len(OPTIMIZERS)), rng.random() < 0.3, seed)


def written(program, parameter, datum):
    """The program's code, with functions that make a parameter and a datum between two bounds."""
    make = {"parameter": parameter, "datum": datum}
    world = World(Picks(program.picks), lambda kind, *bounds: make[kind](*bounds), FUNCTIONS, program.seed)
    return FAMILIES[program.family](world)


class Contest:
    """Examples, and what eager code makes of them."""

    def __init__(self, program):
        self.program, self.rng = program, random.Random(f"{program.seed} contest")
        self.branches = program.branches or any(own.family in BRANCHING for own, _ in program.kinds)
        self.programs, rows = {}, []
        for kind, (own, _) in enumerate(program.kinds):
            rows.append([self._given(kind, example) for example in range(1 + program.order.count(kind))])
            self.programs.setdefault(_key(rows[-1][0]), own)  # the first one, if two are of one structure
        supply = list(map(iter, rows))
        self.data = [next(supply[kind]) for kind in program.order]
        self.start = [self.rng.random() for _ in range(max(1, *map(self._parameters, self.programs.values())))]
        self.later = [number + self.rng.uniform(-0.1, 0.1) for number in self.start]
        self.reduce, self.threads = self.rng.choice(("mean", "sum")), self.rng.choice((None, 1, 2))
        self.knows_wrt, self.by_name = self.rng.random() < 0.5, self.rng.random() < 0.2

    def _given(self, kind, example):
        """The argument for an example of this kind."""
        (program, container), numbers = self.program.kinds[kind], []
        draw = random.Random(f"{self.program.seed} {kind} {example}")
        written(program, lambda low, high: 0.5 * (low + high), lambda *bounds: _kept(numbers, draw.uniform(*bounds)))
        return CONTAINERS[container](numbers)

    def _parameters(self, program):
        """How many parameters a program has."""
        made = []
        written(program, lambda low, high: _kept(made, 0.5 * (low + high)), lambda low, high: 0.5 * (low + high))
        return len(made)

    def function(self, parameters, leaf):
        """The function of an argument. Parameters say how far between its bounds each leaf lies."""

        def result(given):
            numbers = list(map(leaf, _numbers(given)))
            shares, supply, program = iter(parameters), iter(numbers), self.programs[_key(given)]
            found = written(program, lambda low, high: low + (high - low) * next(shares), lambda *_: next(supply))
            if self.program.branches and (found > 0.3 or (numbers and numbers[0] > 0.0)):
                found = 0.5 * found + parameters[0]
            return found if self._reads_parameters(self.programs[_key(given)]) else found + 0.0 * parameters[0]

        return result

    def _reads_parameters(self, program):
        """Whether what a program gives depends on its parameters: the gradient of a function without any is refused."""
        return isinstance(written(program, lambda low, high: Value(0.5 * (low + high)), lambda *ends: sum(ends)), Value)

    @cached_property
    def expected(self):
        """The numbers of a batch and of training by eager code, the results that were differentiated for these, and
        the largest slope."""
        parameters = list(map(Value, self.start))
        function, optimizer = self.function(parameters, Value), OPTIMIZERS[self.program.optimizer](parameters)
        results = list(map(function, self.data))
        runs, slopes = [], []

        def differentiated(root):
            optimizer.zero_grad()
            root.backward()
            runs.append(Measured(root))
            slopes.extend(parameter.grad for parameter in parameters)
            return root.data

        numbers = [differentiated(chainrule.mean(results) if self.reduce == "mean" else sum(results)), *slopes]
        numbers += [result.data for result in results]
        for data in self._epochs(parameters):
            for first in range(0, len(data), self.program.size):
                part = data[first : first + self.program.size]
                numbers.append(differentiated(chainrule.mean(list(map(function, part)))))
                optimizer.step()
        return [*numbers, *_state(parameters, optimizer)], runs, max(map(abs, slopes))

    def _epochs(self, parameters):
        """The examples of two calls of `train`; the parameters are set before each."""
        half = len(self.data) // 2
        for part, numbers in ((self.data[: half + 1], self.start), (self.data[half:], self.later)):
            for parameter, number in zip(parameters, numbers, strict=True):
                parameter.data = number
            yield part

    @cached_property
    def tolerance(self):
        """How far rounding may lead astray; there is no telling where numbers are not tame."""
        _, runs, steepest = self.expected
        tame = steepest < STEEPEST and all(run.is_tame for run in runs)
        return 10.0 * sum(run.tolerance for run in runs) if tame else math.inf

    def is_at_a_corner(self):
        return any(is_at_a_corner(node) for run in self.expected[1] for node in run.nodes)

    def compiled(self, **options):
        """The same numbers by a compiled function."""
        parameters = list(map(Value, self.start))
        program = compile(
            self.function(parameters, lambda number: number), parameters if self.knows_wrt else None, **options
        )
        optimizer, losses = OPTIMIZERS[self.program.optimizer](parameters), []

        def on(method, data, *others, **options):
            return method(*others, given=data, **options) if self.by_name else method(*others, data, **options)

        value, gradient = on(program.batch_value_and_grad, self.data, reduce=self.reduce, threads=self.threads)
        by = dict(zip(program.wrt, gradient.tolist(), strict=True))
        each = on(program.batch, self.data, reduce=None, threads=self.threads).tolist()
        for data in self._epochs(parameters):
            losses += on(program.train, data, optimizer, batch_size=self.program.size)
        return [value, *[by.get(p, 0.0) for p in parameters], *each, *losses, *_state(parameters, optimizer)]


def _kept(numbers, number):
    numbers.append(number)
    return number


def _numbers(given):
    """The numbers in an argument, whatever contains them."""
    if isinstance(given, dict):
        return given["numbers"]
    return list(given[1] if len(given) == 2 and isinstance(given[0], tuple) else given)


def _key(given):
    """What tells structures apart."""
    return type(given), len(given), len(_numbers(given))


def _state(parameters, optimizer):
    """All that training changes."""
    return [p.data for p in parameters] + [number for slot in optimizer.slots for number in optimizer.buffers[slot]]


class Engine(NamedTuple):
    """How examples are compiled, and how far from eager that may be."""

    options: dict[str, object]
    coarser: float = 1.0  # than doubles; 0 for the same bits
    share: float = 1.0  # of the programs that it is asked to run


ENGINES = {
    "strict": Engine({"strict": True}, coarser=0.0),
    "interpreter": Engine({"backend": "interpreter"}, share=0.3),
    "llvm": Engine({}),
    "float32": Engine({"dtype": "float32"}, coarser=SINGLE, share=0.1),
    "cuda": Engine({"backend": "cuda"}, share=0.1),
    "jax": Engine({"backend": "jax"}, share=0.01),
}


def check(program, engines=ENGINES, only=None):
    """None if all agree, else who does not, in words; `only` names the engine to ask."""
    contest, rng = Contest(program), random.Random(f"{program.seed} engines")
    for name in [only] if only else [name for name, engine in engines.items() if rng.random() < engine.share]:
        gpu = playing(**random_shape(rng)) if engines[name].options.get("backend") == "cuda" else nullcontext()
        try:
            with gpu, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of many paths
                failure = disagreement(contest, engines[name])
        except Exception as error:
            failure = f"raises {type(error).__name__}: {error}"
        if failure:
            return f"{name} {failure}"
    return None


def disagreement(contest, engine):
    """What is wrong with an engine's numbers, in words; None if nothing is."""
    if contest.branches and engine.coarser > 1.0:  # its parameters may be on the other side
        return None
    ours, wanted = contest.compiled(**engine.options), contest.expected[0]
    if engine.coarser == 0.0:
        return None if bits(ours) == bits(wanted) else f"gives {ours}, and eager code {wanted}"
    tolerance = contest.tolerance * engine.coarser
    close = all(abs(a - b) <= tolerance for a, b in zip(ours, wanted, strict=True))
    if tolerance == math.inf or close or contest.is_at_a_corner():
        return None
    return f"gives {ours}, and eager code {wanted}, to be equal within {tolerance:.1g}"


def simpler(program):
    """Examples that are a little simpler, the boldest steps first."""
    for k in range(len(program.order)):
        if len(program.order) > 1:
            yield program._replace(order=program.order[:k] + program.order[k + 1 :])
    for change in ({"branches": False}, {"optimizer": 0}, {"size": program.size // 2 or 1}):
        if (less := program._replace(**change)) != program:
            yield less
    for k, (own, container) in enumerate(program.kinds):
        if container:
            yield program._replace(kinds=(*program.kinds[:k], (own, 0), *program.kinds[k + 1 :]))
        for less in torture_engines.simpler(own) if k in program.order else ():
            yield program._replace(kinds=(*program.kinds[:k], (less, container), *program.kinds[k + 1 :]))


def written_out(program):
    """The code for each structure, a line an op, and the structures in their order."""
    contest, parts = Contest(program), []
    parameters = list(map(Value, contest.start))
    names = {parameter: f"p{k}" for k, parameter in enumerate(parameters)}
    for given in {_key(given): given for given in contest.data}.values():
        root = contest.function(parameters, Value)(given)
        parts.append("\n".join([f"given {given!r}:", *lines_of(root, names)]))
    steps = f"{OPTIMIZERS[program.optimizer](parameters)!r}, batch_size={program.size}"
    return "\n\n".join([*parts, f"examples {contest.data!r}\ntrained by {steps}"])

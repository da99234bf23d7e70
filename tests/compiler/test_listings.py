"""The listings in docs/compiler/ are what the compiler prints.

Listings of anything else, such as how a program would be otherwise, are marked as `text`, and not looked for. Those of
`functions.md` are printed by the page's own code: see tests/repository/test_readme.py.
"""

import random
import re
from functools import reduce

import pytest
from programs import PROGRAMS
from test_cases import censored, level
from test_families import by_columns, elimination
from test_recurrence import hidden_states, hidden_units

import chainrule
from chainrule import Value, losses, nn, optim
from chainrule.compiler.passes.arrange import arranged
from chainrule.compiler.passes.classes import links_of_differences
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.equal_elements import with_equal_elements_once
from chainrule.compiler.passes.known_numbers import with_known_numbers
from chainrule.compiler.passes.lift import _Lifter, lift
from chainrule.compiler.passes.neighbours import apart
from chainrule.compiler.passes.partition import partition
from chainrule.compiler.run.steps import CompiledSteps
from chainrule.compiler.trace.graph import graph_of
from project import ROOT
from scripts import load

pytestmark = pytest.mark.slow
PAGES = sorted({*(ROOT / "docs/compiler").glob("*.md")} - {ROOT / "docs/compiler/functions.md"})


def stages(forward):
    """A program as it is lifted, differentiated, laid out and simplified."""
    whole = differentiate(apart(forward))
    laid_out, _ = arranged(whole)
    return [forward, differentiate(forward), laid_out, with_equal_elements_once(with_known_numbers(laid_out))]


def of_a_loss(loss, wrt):
    return stages(lift(graph_of(loss, wrt)))


def of_the_suite(name, size):
    leaves = [Value(x) for x in PROGRAMS[name].numbers(size)]
    return of_a_loss(PROGRAMS[name].loss(chainrule, leaves, size), leaves)


def of_a_batch(function, wrt, *arguments):
    """What a function of one example is for a batch, in names and in memory."""
    compiled = chainrule.compile(function, wrt=wrt, backend="interpreter")
    compiled.batch_value_and_grad(*arguments)
    (paths,) = compiled._traces.by_structure.values()
    return [compiled.describe(), *stages(paths.known.paths[0].batched(len(arguments[0]), total=True))]


def growth():
    a, b = Value(1.0), Value(0.5)

    def grow(x):
        for _ in range(50):
            x = x + 0.1 * (a * x - b * x * x)
        return x

    return of_a_batch(grow, [a, b], [0.1 + 0.01 * k for k in range(64)])


def a_hinge_loss():
    model, rng = nn.MLP(2, [16, 16, 1], rng=1), random.Random(0)

    def loss(x, y):
        return (1.0 - y * model(x)).relu() + losses.l2(1e-4)(model.parameters())

    points = [[rng.random(), rng.random()] for _ in range(320)]
    return of_a_batch(loss, model.parameters(), points, [rng.choice([-1.0, 1.0]) for _ in points])


def digits():
    """A training step on one image, whole and in parts."""
    model, rng = nn.MLP(784, [50, 10], rng=1), random.Random(0)
    image, optimizer = [rng.random() for _ in range(784)], optim.SGD(model.parameters(), lr=0.1)
    steps = CompiledSteps(lambda x: losses.cross_entropy([model(x[0])], [3]), [image], optimizer, backend="interpreter")
    return [steps.code.whole, partition(steps.code.whole).program]


def a_gpt(monkeypatch):
    """That of the examples, with attention over the positions so far and a softmax of exponentials alone."""
    microgpt = load("microgpt")

    def attention(query, keys, values, position):
        heard, before = [], slice(position + 1)
        for start in range(0, microgpt.WIDTH, microgpt.HEAD):
            head = slice(start, start + microgpt.HEAD)
            scores = [microgpt.dot(query[head], key[head]) / microgpt.HEAD**0.5 for key in keys[before]]
            weights = [score.exp() for score in scores]
            shares = [weight / total for total in [sum(weights)] for weight in weights]
            columns = zip(*(value[head] for value in values[before]), strict=True)
            heard += [microgpt.dot(shares, column) for column in columns]
        return heard

    monkeypatch.setattr(microgpt, "attention", attention)
    gpt = microgpt.GPT(random.Random(7))
    tokens, targets, _ = microgpt.example("maximilianjames")
    graph = graph_of(gpt.surprise([*tokens, targets[-1]]), gpt.parameters())
    program = lift(graph)
    assert (len(graph), len(program.statements), len(differentiate(program).statements)) == (137_731, 37, 94)
    return [program]


def a_cone(cells=60):
    """A rod with ends that are held, of which one cell is recorded after as many steps as it has cells."""
    row, rate = [Value(0.1 * k) for k in range(cells)], Value(0.2)
    now = row
    for _ in range(cells):
        inner = [now[k] + rate * (now[k - 1] - 2 * now[k] + now[k + 1]) for k in range(1, cells - 1)]
        now = [now[0], *inner, now[-1]]
    return now[cells // 2], [*row, rate]


def programs(monkeypatch):
    yield from of_a_loss(*a_cone())
    yield from [*of_a_loss(*level(400)), *of_a_loss(*censored(400))]
    yield from of_a_loss(*hidden_units(1000))
    yield from of_a_loss(*hidden_states(160))
    yield from of_a_loss(*by_columns(5))
    eliminated = graph_of(*elimination(7))
    yield _Lifter(eliminated, links=set(links_of_differences(eliminated))).program
    for name, size in (("heat_in_a_rod", 200), ("implicit_heat", 160), ("yield_curve", 48), ("bodies_by_pairs", 8)):
        yield from of_the_suite(name, size)
    for name, size in (("transformer_block", 16), ("soft_alignment", 16)):
        yield from of_the_suite(name, size)
    w, start = Value(0.9), Value(1.0)
    yield from of_a_loss(reduce(lambda y, _: w * y, range(50), start), [w, start])
    yield from [*growth(), *a_hinge_loss(), *digits(), *a_gpt(monkeypatch)]
    model = nn.MLP(2, [16, 16, 1], rng=1)
    inputs = [[Value(0.01 * k), Value(1.0 - 0.01 * k)] for k in range(100)]
    yield from of_a_loss(losses.hinge([model(x) for x in inputs], [1.0] * 100), model.parameters())


def shows(program, listing):
    """Whether the lines of a listing are among those of a program, in order; "…" stands for any number of lines."""
    lines, place = program.splitlines(), 0
    for part in re.split(r"^ *…\n", listing, flags=re.MULTILINE):
        wanted = part.splitlines()
        starts = [k for k in range(place, len(lines) - len(wanted) + 1) if lines[k : k + len(wanted)] == wanted]
        if not starts:
            return False
        place = starts[0] + len(wanted)
    return True


def listings(page):
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if not language and re.search(r"\[.*\] \+?= ", text)]


def test_they_are_what_the_compiler_prints(monkeypatch):
    wanted = [(page.name, listing) for page in PAGES for listing in listings(page)]
    assert len(wanted) > 15
    printed = [str(program) for program in programs(monkeypatch)]
    assert [(name, text) for name, text in wanted if not any(shows(program, text) for program in printed)] == []


def test_a_line_that_is_not_printed_is_noticed():
    program = "a[0] = 1\nb[0] = 2\nc[0] = 3\n"
    assert shows(program, "a[0] = 1\n…\nc[0] = 3\n")
    assert not shows(program, "a[0] = 1\nc[0] = 3\n")
    assert not shows(program, "c[0] = 3\n…\na[0] = 1\n")
    assert not shows(program, "b[0] = 3\n")

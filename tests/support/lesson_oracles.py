"""Whether an answer to an exercise is right, found out independently of the exercise's check, and more strictly.

`is_right(exercise, code)` runs the code in its template and compares what it does with PyTorch, or with formulas, on
many numbers: zeros, negative ones, fractions; operands that are the same node; gradients that were there before.
"""

from __future__ import annotations

import ast
import io
import math
import random
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import torch

from chainrule.learn.course import Exercise, clean, fill
from chainrule.learn.lesson_files import load_course

Names = dict[str, Any]
ORACLES: dict[str, Callable[[Names], None]] = {}
NUMBERS = (0.0, 1.0, -1.0, 2.0, -0.75, 0.3, 1.7, -2.6)


class Wrong(Exception):  # noqa: N818  # it is a verdict
    """The answer is wrong."""


def is_right(exercise: Exercise, code: str, codes: Mapping[str, str] | None = None) -> bool:
    """Whether `code` is a right answer."""
    names: Names = {"__name__": "answer", "code": clean(code)}
    try:
        with redirect_stdout(io.StringIO()):
            exec(fill(exercise.template, code, {**exercise.parts, **(codes or {})}).text, names)
            ORACLES[exercise.name](names)
    except BaseException:  # exit() and whatever else an answer may raise
        return False
    return True


def oracle(name: str) -> Callable[[Callable[[Names], None]], Callable[[Names], None]]:
    def register(judge: Callable[[Names], None]) -> Callable[[Names], None]:
        ORACLES[name] = judge
        return judge

    return register


def demand(truth: object) -> None:
    if not truth:
        raise Wrong


def near(got: Any, expected: Any, tolerance: float = 1e-8) -> None:
    if isinstance(expected, (list, tuple)):
        demand(isinstance(got, (list, tuple)) and len(got) == len(expected))
        for g, e in zip(got, expected, strict=True):
            near(g, e, tolerance)
    else:
        demand(isinstance(got, (int, float)) and not isinstance(got, bool))
        demand(got == expected or abs(got - expected) <= tolerance * max(1.0, abs(expected)))


def tensor(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64, requires_grad=True)


# Lessons 1 to 3.


@oracle("slope")
def _(names: Names) -> None:
    cases = (
        (math.sin, math.cos, 1.0),
        (lambda x: 2.5 * x * x - x, lambda x: 5 * x - 1, 5.0),
        (math.exp, math.exp, 8.0),
    )
    for f, derivative, curvature in cases:
        for x in NUMBERS[:-1]:
            for h in (None, 0.01, 0.0003, -0.002):
                got = names["slope"](f, x) if h is None else names["slope"](f, x, h)
                demand(abs(got - derivative(x)) <= 0.6 * curvature * abs(h or 0.0003) + 1e-9)
    for step in (2.0, 4.0, -2.0):  # over such a distance a staircase is a ramp, to either side
        near(names["slope"](round, 0.0, step), 1.0)


@oracle("init")
def _(names: Names) -> None:
    Value = names["Value"]
    x, y = Value(math.pi, label="x"), Value(-1.0)
    z = Value(0.0, (x, y, x), "op", "z")
    for node, data, children, op, label in (
        (x, math.pi, set(), "", "x"),
        (y, -1.0, set(), "", ""),
        (z, 0.0, {x, y}, "op", "z"),
    ):
        demand((node.data, node.grad, node._op, node.label) == (data, 0.0, op, label))
        demand(node._prev == children)
        x.grad, y.grad, node.grad, node.data = 0.25, 0.5, -1.5, 8.0
        before = [(other.data, other.grad) for other in (x, y, z)]
        demand(node._backward() is None)
        demand(before == [(other.data, other.grad) for other in (x, y, z)])
        node.data = data
        for other in (x, y, z):
            other.grad = 0.0


OPERATIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "add": (lambda a, b: a + b, 2),
    "mul": (lambda a, b: a * b, 2),
    "tanh": (lambda a: a.tanh(), 1),
    "exp": (lambda a: a.exp(), 1),
    "relu": (lambda a: a.relu(), 1),
}
SPECIAL = {"tanh": (400.0, -400.0), "relu": (1e-6, -1e-6)}
EXPONENTS = (2, 3, -1, 0.5, 1, 2.5, -2)


def _one_operation(Value: Any, operation: Callable[..., Any], numbers: tuple[float, ...], twice: bool = False) -> None:
    """The closure of one operation, with gradients that are neither 0 before nor 1 after it."""
    own, theirs = [Value(number) for number in numbers], [tensor(number) for number in numbers]
    if twice:
        own, theirs = own[:1] * len(own), theirs[:1] * len(theirs)
    out, result = operation(*own), operation(*theirs)
    for node in own:
        node.grad = 0.25
    out.grad = -1.7
    out._backward()
    result.backward(torch.tensor(-1.7, dtype=torch.float64))
    near([node.grad for node in own], [0.25 + float(node.grad) for node in theirs])
    near([node.data for node in own], [node.item() for node in theirs])
    near((out.data, out.grad), (result.item(), -1.7))


def _operation(names: Names, operation: Callable[..., Any], arity: int, numbers: tuple[float, ...]) -> None:
    Value = names["Value"]
    for a in numbers:
        for b in numbers if arity == 2 else (0.0,):
            _one_operation(Value, operation, (a, b)[:arity])
        if arity == 2:
            _one_operation(Value, operation, (a, a), twice=True)
    _class(names)


def _register_operations() -> None:
    for name, (operation, arity) in OPERATIONS.items():
        numbers = (*NUMBERS, *SPECIAL.get(name, ()))
        ORACLES[name] = partial(_operation, operation=operation, arity=arity, numbers=numbers)


@oracle("power")
def _(names: Names) -> None:
    for n in EXPONENTS:
        for x in NUMBERS:
            if (x > 0 or float(n).is_integer()) and (x or n >= 1):
                _one_operation(names["Value"], lambda a, n=n: a**n, (x,))
    _class(names)


# Whole classes: random graphs in which everything is used again.


def _random_graph(rng: random.Random, leaves: list[Any], operations: list[Callable[..., Any]]) -> list[Any]:
    nodes = list(leaves)
    for _ in range(rng.randint(3, 12)):
        nodes.append(rng.choice(operations)(rng.choice(nodes), rng.choice(nodes)))
    return nodes


def _random_graphs(Value: Any, operations: list[Callable[..., Any]], count: int = 25) -> None:
    for seed in range(count):
        numbers = [random.Random(seed).choice(NUMBERS) for _ in range(3)]
        leaves, theirs = [Value(number) for number in numbers], [tensor(number) for number in numbers]
        for leaf in leaves:
            leaf.grad = 0.5
        for shape in (seed, seed + count):  # two results: gradients of the leaves add up
            graph = _random_graph(random.Random(shape), leaves, operations)
            other = _random_graph(random.Random(shape), theirs, operations)
            graph[-1].backward()
            other[-1].backward()
            near([node.data for node in graph], [node.item() for node in other])
        near([leaf.grad for leaf in leaves], [0.5 + float(leaf.grad or 0.0) for leaf in theirs], 1e-7)


def _class(names: Names) -> None:
    operations = [
        lambda a, b: a + b,
        lambda a, b: a * b * 0.5,
        lambda a, b: (a - b).tanh(),
        lambda a, b: (a * 0.1).exp() * b,
        lambda a, b: a**2 * 0.3,
        lambda a, b: a.relu() + b / 3.0,
    ]
    _random_graphs(names["Value"], operations)


@oracle("backward")
def _(names: Names) -> None:
    _class(names)
    Value = names["Value"]
    x = Value(3.0)
    x.grad = 5.0
    x.backward()
    near(x.grad, 1.0)
    y = x * x
    for grad in (1.0, -4.0, 0.0):  # of the result, before
        x.grad, y.grad = 0.0, grad
        y.backward()
        near((y.grad, x.grad), (1.0, 6.0))
    y.backward()
    near((y.grad, x.grad), (1.0, 12.0))
    demand(y._prev == {x})
    for _ in range(2):  # other results above the same node
        x.grad = y.grad = 0.0
        (y * 3 + x).backward()
        near((y.grad, x.grad), (3.0, 19.0))
    node = start = Value(0.5)
    for _ in range(100):
        node = node + node * 0.01
    node.backward()
    near(start.grad, 1.01**100)


# Lessons 3 and 6.


@oracle("by-hand")
def _(names: Names) -> None:
    for numbers in zip(NUMBERS, NUMBERS[1:], NUMBERS[2:], NUMBERS[3:], strict=False):
        a, b, c, f = (names["Value"](number) for number in numbers)
        e = a * b
        d = e + c
        L = d * f
        data = [node.data for node in (a, b, c, f, e, d, L)]
        for node in (e, d, L):
            node._backward = lambda: None
        names["by_hand"](a, b, c, f, e, d, L)
        near([node.grad for node in (L, d, e, c)], [1.0, f.data, f.data, f.data])
        near([node.grad for node in (f, a, b)], [d.data, b.data * f.data, a.data * f.data])
        demand(data == [node.data for node in (a, b, c, f, e, d, L)])


@oracle("uphill")
def _(names: Names) -> None:
    near([names[leaf].data for leaf in "abcf"], [2.06, -3.04, 9.98, -1.96])
    near(names["L"].data, -7.286496)
    Value = names["Value"]
    for leaf, data, grad in zip("abcf", (1.5, 0.0, -2.0, 7.0), (-3.0, 0.7, 0.0, 11.0), strict=True):
        names[leaf] = Value(data)
        names[leaf].grad = grad
    exec(names["code"], names)
    near([names[leaf].data for leaf in "abcf"], [1.47, 0.007, -2.0, 7.11])


@oracle("diamond")
def _(names: Names) -> None:
    a, b, c, d = (names[name] for name in "abcd")
    near([node.data for node in (a, b, c, d)], [2, 3, 6, 18])
    near([node.grad for node in (a, b, c, d)], [15, 6, 3, 1])
    demand(d._prev == {b, c})
    demand(a in b._prev and a in c._prev)


@oracle("trace")
def _(names: Names) -> None:
    Value, trace = names["Value"], names["trace"]
    rng = random.Random(4)
    for _ in range(20):
        nodes = [Value(rng.choice(NUMBERS)) for _ in range(3)]
        for _ in range(12):
            left, right = rng.choice(nodes), rng.choice(nodes)
            nodes.append(left + right if rng.random() < 0.5 else left * right)
        below, waiting = {nodes[-1]}, [nodes[-1]]
        while waiting:
            new = [child for child in waiting.pop()._prev if child not in below]
            below.update(new)
            waiting += new
        arrows = {(child, node) for node in below for child in node._prev}
        for found, edges in (trace(nodes[-1]), trace(nodes[-1])):
            demand(set(found) == below and len(found) == len(below))
            demand(set(map(tuple, edges)) == arrows and len(edges) == len(arrows))
    node, looks = Value(1.0), 0

    class Counted(set[Any]):
        def __iter__(self) -> Any:
            nonlocal looks
            looks += 1
            demand(looks < 50_000)  # of 2 ** 20 paths
            return super().__iter__()

    for _ in range(20):
        sides = node + 1, node + 2
        node = sides[0] + sides[1]
        for each in (*sides, node):
            each._prev = Counted(each._prev)
    demand(len(trace(node)[0]) == 1 + 5 * 20)


@oracle("draw")
def _(names: Names) -> None:
    Value = names["Value"]
    p, q = Value(-1.23456, label="p"), Value(0.0, label="q")
    square = p * p
    r = square + q * 1
    square.label, r.label = "square", "result"
    r.backward()
    text = names["draw"](r)
    demand(text.strip().removeprefix("strict ").startswith("digraph") and text.strip().endswith("}"))
    found = re.findall(r'^[ \t]*("[^"\n]*"|\w+)[ \t]*\[.*?label *= *"([^"]*)"', text, re.MULTILINE)
    boxes = {key.strip('"'): label for key, label in found}
    demand(len(boxes) == 6)
    keys = {}
    for node in (p, q, square, r):
        (keys[node.label],) = (key for key, label in boxes.items() if re.search(rf"\b{node.label}\b", label))
        box = boxes[keys[node.label]]
        demand(re.search(rf"data[^\d-]*{node.data:.4f}", box) and re.search(rf"grad[^\d-]*{node.grad:.4f}", box))
        demand(node._op in box)
    ends = re.findall(r'("[^"\n]*"|\w+)(?::\w+)*[ \t]*->[ \t]*("[^"\n]*"|\w+)', text)
    arrows = sorted((one.strip('"'), other.strip('"')) for one, other in ends)
    wanted = {(keys["p"], keys["square"]), (keys["square"], keys["result"])}
    demand(len(arrows) == 5 and wanted <= set(arrows) and {key for arrow in arrows for key in arrow} == set(boxes))
    text = names["draw"](Value(0.5) + Value(0.5))
    demand(len(set(re.findall(r'^[ \t]*("[^"\n]*"|\w+)[ \t]*\[.*?label *=', text, re.MULTILINE))) == 3)


# Lessons 7 and 8.


def _set(parameters: list[Any], rng: random.Random) -> list[float]:
    for p in parameters:
        p.data, p.grad = rng.uniform(-1, 1), 0.0
    return [p.data for p in parameters]


@oracle("neuron")
def _(names: Names) -> None:
    rng = random.Random(1)
    for nin in (1, 2, 5):
        neuron = names["Neuron"](nin)
        demand(len({w.data for w in neuron.w}) == nin and len(neuron.w) == nin)
        demand(any(names["Neuron"](nin).w[0].data != neuron.w[0].data for _ in range(3)))
        demand(names["Neuron"](nin).b is not neuron.b)
        p = neuron.parameters()
        demand(isinstance(p, list) and all(x is y for x, y in zip(p, [*neuron.w, neuron.b], strict=True)))
        demand(len(neuron.parameters()) == nin + 1 and len(neuron.w) == nin)
        numbers = _set(p, rng)
        for x in ([0.0] * nin, [rng.uniform(-2, 2) for _ in range(nin)]):
            theirs = [tensor(number) for number in numbers]
            result = torch.tanh(sum(w * xi for w, xi in zip(theirs, x, strict=False)) + theirs[-1])
            result.backward()
            for q in p:
                q.grad = 0.0
            out = neuron([names["Value"](xi) for xi in x])
            near(out.data, result.item())
            kept = list(x)
            near(neuron(x).data, result.item())
            demand(x == kept)
            out.backward()
            near([q.grad for q in p], [float(t.grad) for t in theirs])


def _layer_output(numbers: list[float], x: list[float], nout: int) -> list[float]:
    size = len(x) + 1
    rows = [numbers[k * size : (k + 1) * size] for k in range(nout)]
    return [math.tanh(sum(w * xi for w, xi in zip(row, x, strict=False)) + row[-1]) for row in rows]


@oracle("layer")
def _(names: Names) -> None:
    rng = random.Random(2)
    for nin, nout in ((1, 1), (2, 1), (3, 2), (2, 5)):
        layer = names["Layer"](nin, nout)
        demand(len(layer.neurons) == nout and len({id(neuron) for neuron in layer.neurons}) == nout)
        p = layer.parameters()
        own = [q for neuron in layer.neurons for q in (*neuron.w, neuron.b)]
        demand(isinstance(p, list) and all(x is y for x, y in zip(p, own, strict=True)))
        demand(len(p) == len(layer.parameters()) == nout * (nin + 1))
        demand(len({w.data for neuron in layer.neurons for w in neuron.w}) == nout * nin)
        numbers, x = _set(p, rng), [rng.uniform(-2, 2) for _ in range(nin)]
        kept = list(x)
        out = layer(x)
        out = out if isinstance(out, list) or nout > 1 else [out]  # one answer may come without a list
        demand(isinstance(out, list) and x == kept)
        near([o.data for o in out], _layer_output(numbers, x, nout))


@oracle("mlp")
def _(names: Names) -> None:
    rng = random.Random(3)
    for nin, nouts in ((3, [4, 4, 1]), (1, [1]), (2, [3, 2]), (2, [5]), (4, [2, 3, 2, 3]), (2, [1, 1]), (1, [1, 2])):
        sizes = list(nouts)
        model = names["MLP"](nin, nouts)
        demand(nouts == sizes)
        p = model.parameters()
        own = [q for layer in model.layers for q in layer.parameters()]
        demand(isinstance(p, list) and all(x is y for x, y in zip(p, own, strict=True)))
        demand(len({id(q) for q in p}) == sum(n * (m + 1) for m, n in zip([nin, *nouts], nouts, strict=False)))
        numbers, x = _set(p, rng), [rng.uniform(-2, 2) for _ in range(nin)]
        expected = list(x)
        for nout in nouts:
            count = nout * (len(expected) + 1)
            expected, numbers = _layer_output(numbers[:count], expected, nout), numbers[count:]
        kept = list(x)
        for out in (model(x), model(x)):
            demand(isinstance(out, list) if nouts[-1] > 1 else not isinstance(out, list))
            near([o.data for o in out] if nouts[-1] > 1 else [out.data], expected)
        demand(x == kept)
        first = model(x)[0] if nouts[-1] > 1 else model(x)
        first.backward()
        p[0].data += 1e-6
        moved = model(x)[0] if nouts[-1] > 1 else model(x)
        near(p[0].grad, (moved.data - first.data) / 1e-6, 1e-4)


@oracle("loss")
def _(names: Names) -> None:
    rng = random.Random(4)
    for count in (1, 2, 5):
        xs, ys = [[rng.uniform(-2, 2)] for _ in range(count)], [rng.uniform(-2, 2) for _ in range(count)]
        w, v = names["Value"](0.7), tensor(0.7)
        kept = [list(x) for x in xs], list(ys)
        loss = names["loss_of"](lambda x, w=w: w * x[0], xs, ys)
        demand((xs, ys) == kept)
        result = sum((v * x[0] - y) ** 2 for x, y in zip(xs, ys, strict=True))
        result.backward()
        loss.backward()
        near((loss.data, w.grad), (result.item(), float(v.grad)))


def _trained(numbers: list[float], xs: list[list[float]], ys: list[float], steps: int, rate: float) -> Any:
    weights = [tensor(number) for number in numbers]
    optimizer, losses = torch.optim.SGD(weights, lr=rate), []
    for _ in range(steps):
        outputs = [torch.tanh(sum(w * xi for w, xi in zip(weights, x, strict=False)) + weights[-1]) for x in xs]
        loss = sum((out - y) ** 2 for out, y in zip(outputs, ys, strict=True))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses, [w.item() for w in weights]


@oracle("train")
def _(names: Names) -> None:
    rng = random.Random(5)
    xs, ys = [[0.5, -1.0], [2.0, 0.3], [-1.0, 1.0]], [1.0, -1.0, 0.5]
    for steps, rate in ((0, 0.1), (1, 0.1), (5, 0.03)):
        model = names["MLP"](2, [1])
        numbers = _set(model.parameters(), rng)
        losses, weights = _trained(numbers, xs, ys, steps, rate)
        near(names["train"](model, xs, ys, steps, rate), losses)
        near([p.data for p in model.parameters()], weights)
        losses, weights = _trained(weights, xs, ys, 2, rate)
        near(names["train"](model, xs, ys, 2, rate), losses)


# Lesson 9.


@oracle("numerical")
def _(names: Names) -> None:
    Value, numerical = names["Value"], names["numerical"]
    f, cube = lambda a, b, c: a * b * b + (c * a).tanh(), lambda x: x**3
    for numbers in ((0.5, -1.5, 2.0), (0.0, 1.0, -0.3)):
        values, theirs = [Value(number) for number in numbers], [tensor(number) for number in numbers]
        for value in values:
            value.grad = 0.5
        f(*theirs).backward()
        for h in (None, 0.001, 0.0005):
            got = numerical(f, values) if h is None else numerical(f, values, h)
            demand(isinstance(got, list))
            near(got, [float(t.grad) for t in theirs], 2e-5)
            near([value.data for value in values], numbers, 1e-12)
    near(numerical(cube, [Value(-1.0)], 0.5), [3.25])
    near(numerical(cube, [Value(2.0)], 0.25), [12.0625])


@oracle("suspects")
def _(names: Names) -> None:
    Value, suspects = names["Value"], names["suspects"]

    def scaled(x: Any, slope: float) -> Any:
        out = Value(2.0 * x.data, (x,), "scaled")

        def backward() -> None:
            x.grad += slope * out.grad

        out._backward = backward
        return out

    for slopes, found in (
        ((2, 2, 2), []),
        ((2, 3, 2), [1]),
        ((1, 2, 3), [0, 2]),
        ((-2, 2.0001, 2), [0, 1]),
    ):
        values = [Value(0.5), Value(-1.0), Value(0.0)]
        for value in values:
            value.grad = 0.75
        for _ in range(2):
            near(suspects(lambda *v, s=slopes: sum(map(scaled, v, s), Value(0.0)), values), found)
    values = [Value(1.0), Value(1.0)]
    near(suspects(lambda a, b: scaled(a, 2.5) + scaled(b, 1.5), values, 0.4), [0, 1])
    near(suspects(lambda a, b: scaled(a, 2.5) + scaled(b, 1.5), values, tolerance=0.6), [])
    for size, given, found in ((1e6, 2.000001, [0]), (1e-7, 2.5, [])):  # wrong by 1, and by 0.00000005
        near(suspects(lambda a, s=size, g=given: scaled(a, g) * s, [Value(0.5)]), found)


# Lesson 10.


def _catches(name: str, names: Names) -> None:
    """That the answer's test, `f` at `at`, shows the planted bug: with the starter's class it differs from PyTorch."""

    def gradients(engine: str) -> list[float]:
        """Of the answer's test, whose class `Value` is replaced."""
        body = [statement for statement in ast.parse(names["code"]).body if not isinstance(statement, ast.Expr)]
        place = next(k for k, node in enumerate(body) if isinstance(node, ast.ClassDef) and node.name == "Value")
        body[place : place + 1] = ast.parse(engine).body
        moved: Names = {"__name__": "answer", "tensor": tensor}
        exec(compile(ast.unparse(ast.Module(body, [])), "answer", "exec"), moved)
        leaves = [moved["Value"](number) for number in moved["at"]]
        moved["f"](*leaves).backward()
        return [0.0 if leaf.grad is None else float(leaf.grad) for leaf in leaves]

    starter = ast.parse(load_course().exercises[name].starter)
    planted = next(statement for statement in starter.body if isinstance(statement, ast.ClassDef))
    right, wrong = gradients("Value = tensor"), gradients(ast.unparse(planted))
    demand(any(abs(r - w) > 1e-6 * (1 + abs(r)) for r, w in zip(right, wrong, strict=True)))


@oracle("bug-one")
def _(names: Names) -> None:
    _catches("bug-one", names)
    _random_graphs(names["Value"], [lambda a, b: a + b, lambda a, b: (a * b).tanh(), lambda a, b: a.tanh() * b])


@oracle("bug-two")
def _(names: Names) -> None:
    w, b = tensor(0.5), tensor(-0.25)
    optimizer, losses = torch.optim.SGD([w, b], lr=0.02), []
    for _ in range(40):
        loss = sum((w * x + b - y) ** 2 for x, y in ((1.0, 3.0), (2.0, 5.0), (3.0, 7.0)))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    near(names["history"], losses)
    near((names["w"].data, names["b"].data), (w.item(), b.item()))


@oracle("bug-three")
def _(names: Names) -> None:
    _catches("bug-three", names)

    def product(a: Any, b: Any) -> Any:
        return a * b

    _random_graphs(names["Value"], [lambda a, b: a + b, lambda a, b: a + a + b, product])


@oracle("bug-four")
def _(names: Names) -> None:
    _catches("bug-four", names)
    divided = [lambda a, b: a - b, lambda a, b: a.sigmoid() / b.sigmoid(), lambda a, b: (a - b).sigmoid()]
    _random_graphs(names["Value"], divided)
    for a in NUMBERS:
        for b in (1.0, -1.0, 0.3, -2.5):
            _one_operation(names["Value"], lambda x, y: x / y, (a, b))


# Lessons 11 and 12.


@oracle("plain-output")
def _(names: Names) -> None:
    rng = random.Random(3)
    for nin, nouts in ((1, [1]), (2, [3, 1]), (3, [2, 4, 2])):
        sizes = list(nouts)
        model = names["regressor"](nin, nouts)
        demand(nouts == sizes)
        _set(model.parameters(), rng)
        x = [rng.uniform(-3, 3) for _ in range(nin)]
        said: list[Any] = x
        for depth, layer in enumerate(model.layers):
            sums = [sum((w.data * s for w, s in zip(n.w, said, strict=True)), n.b.data) for n in layer.neurons]
            said = sums if depth == len(nouts) - 1 else [math.tanh(total) for total in sums]
        demand([len(layer.neurons) for layer in model.layers] == nouts)
        answer = model(x)
        answer = answer if isinstance(answer, list) else [answer]
        near([o.data for o in answer], said)
        count = sum((a + 1) * b for a, b in zip([nin, *nouts], nouts, strict=False))
        demand(len(set(map(id, model.parameters()))) == len(model.parameters()) == count)
        answer[0].backward()
        near(model.layers[-1].neurons[0].b.grad, 1.0)
    neuron = names["Plain"](2)
    neuron.w[0].data, neuron.w[1].data, neuron.b.data = 2.0, -1.0, 0.5
    given = [3.0, names["Value"](-4.0)]
    near(neuron(given).data, 10.5)
    demand(len(given) == 2 and given[0] == 3.0)
    demand(isinstance(neuron, names["Neuron"]))


@oracle("vanishing")
def _(names: Names) -> None:
    squashes = (lambda v: v.tanh(), lambda v: v.relu(), lambda v: v * -0.5 + 1.0, lambda v: v * v * 0.3)
    for squash in squashes:
        for x in NUMBERS:
            for depth in (0, 1, 2, 5):
                node = start = tensor(x)
                for _ in range(depth):
                    node = squash(node)
                node.backward()
                near(names["gradient_through"](depth, x, squash), float(start.grad))


def _matrices() -> list[tuple[list[list[float]], list[float], list[float]]]:
    rng = random.Random(6)
    return [
        (
            [[rng.uniform(-2, 2) for _ in range(n)] for _ in range(m)],
            [rng.uniform(-2, 2) for _ in range(n)],
            [0.0, *NUMBERS[-m:]][-m:],
        )
        for m, n in ((1, 1), (1, 3), (3, 1), (2, 2), (2, 4), (4, 2))
    ]


@oracle("linear")
def _(names: Names) -> None:
    Value = names["Value"]
    for W, x, b in _matrices():
        expected = [sum(w * xj for w, xj in zip(row, x, strict=True)) + bi for row, bi in zip(W, b, strict=True)]
        near(names["linear"](W, x, b), expected)
        values = names["linear"]([[Value(w) for w in row] for row in W], [Value(v) for v in x], [Value(v) for v in b])
        near([value.data for value in values], expected)


@oracle("linear-backward")
def _(names: Names) -> None:
    for W, x, dy in _matrices():
        kept = [list(row) for row in W], list(x), list(dy)
        dW, dx, db = names["linear_backward"](W, x, dy)
        near(dW, [[g * xj for xj in x] for g in dy])
        near(dx, [sum(g * row[j] for g, row in zip(dy, W, strict=True)) for j in range(len(x))])
        near(db, dy)
        demand((W, x, dy) == kept)


_register_operations()


# Lesson 14.


def _values(names: Names, numbers: Any) -> Any:
    """The same lists, of the learner's Values."""
    return [_values(names, n) for n in numbers] if isinstance(numbers, list) else names["Value"](numbers)


def _flat(numbers: Any) -> list[Any]:
    return [x for n in numbers for x in _flat(n)] if isinstance(numbers, (list, tuple)) else [numbers]


def _agree(names: Names, function: str, reference: Callable[..., torch.Tensor], *arguments: Any) -> None:
    """Results and their gradients are those of PyTorch; they are weighted, so that no two count the same."""
    given = [_values(names, argument) for argument in arguments]
    found = _flat(names[function](*given))
    tensors = [torch.tensor(argument, dtype=torch.float64, requires_grad=True) for argument in arguments]
    expected = reference(*tensors).flatten()
    demand(len(found) == len(expected))
    near([x.data for x in found], expected.tolist(), 1e-9)
    weights = [1.5 - 0.7 * k for k in range(len(found))]
    total = sum((x * weight for x, weight in zip(found, weights, strict=True)), names["Value"](0.0))
    total.backward()
    (expected * torch.tensor(weights, dtype=torch.float64)).sum().backward()
    for value, tensor in zip(given, tensors, strict=True):
        assert tensor.grad is not None
        near([x.grad for x in _flat(value)], tensor.grad.flatten().tolist(), 1e-7)
    demand([[x.data for x in _flat(value)] for value in given] == [_flat(argument) for argument in arguments])


def _attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    shares = torch.softmax(keys @ query / len(query) ** 0.5, 0)
    return torch.cat([shares, shares @ values])


@oracle("embed")
def _(names: Names) -> None:
    for rows, columns in ((1, 1), (1, 3), (3, 1), (2, 4), (5, 3)):
        table = [[NUMBERS[(3 * i + 5 * j) % 8] for j in range(columns)] for i in range(rows)]
        for token in ([0.0] * (rows - 1) + [1.0], [0.5 - i for i in range(rows)]):
            _agree(names, "embed", lambda table, token: token @ table, table, token)
            plain = [sum(t * row[j] for t, row in zip(token, table, strict=True)) for j in range(columns)]
            near([getattr(x, "data", x) for x in names["embed"](table, token)], plain)


@oracle("softmax")
def _(names: Names) -> None:
    for scores in (
        [0.0],
        [1.0, 2.0],
        list(NUMBERS),
        [800.0, 799.0],
        [-900.0, -901.5, -899.0],
        [3.0, 3.0, 3.0],
        [0.0, 800.0],
        [0.0, 800.0, -800.0],
    ):
        _agree(names, "softmax", lambda scores: torch.softmax(scores, 0), scores)


@oracle("attention")
def _(names: Names) -> None:
    for length, count, width in ((1, 1, 1), (1, 2, 3), (3, 2, 1), (4, 3, 2), (2, 4, 5)):
        query = [NUMBERS[(k + 2) % 8] for k in range(length)]
        keys = [[NUMBERS[(2 * i + 3 * k) % 8] for k in range(length)] for i in range(count)]
        values = [[NUMBERS[(i + 5 * j + 1) % 8] for j in range(width)] for i in range(count)]
        _agree(names, "attention", _attention, query, keys, values)


@oracle("surprise")
def _(names: Names) -> None:
    for scores in ([0.0, 1.0], list(NUMBERS), [5.0, -5.0, 0.5]):
        for place in range(len(scores)):
            target = [0.25 if k == place else 0.0 for k in range(len(scores))]
            _agree(names, "surprise", lambda s, t: -(t * torch.log_softmax(s, 0)).sum(), scores, target)
        _agree(names, "surprise", lambda s, t: -(t * torch.log_softmax(s, 0)).sum(), scores, [0.5] * len(scores))

"""Functions that branch on numbers: each path is traced when it is first taken, and every call takes eager code's."""

import functools
import math
import operator
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import chainrule
from chainrule import Value, compiler, losses, nn, ops, optim
from chainrule.compiler import TracingError, compile
from chainrule.compiler.pipeline import Code
from chainrule.compiler.run import paths, traced
from chainrule.compiler.trace import symbols


def of_values(given):
    return [of_values(item) if isinstance(item, (list, tuple)) else Value(item) for item in given]


def number(result):
    return result.data if isinstance(result, Value) else float(result)


def gradients(wrt):
    """The gradients, which are then 0."""
    found = [w.grad for w in wrt]
    for w in wrt:
        w.grad = 0.0
    return found


def eager(written, wrt, given):
    """The result and the gradient of the function called on Values."""
    gradients(wrt)
    result = written(*of_values(given))
    if isinstance(result, Value):
        result.backward()
    return number(result), gradients(wrt)


def bits(numbers):
    return np.asarray(numbers, dtype=np.float64).tobytes()


def close(found, wanted):
    return found == pytest.approx(wanted, rel=1e-11, abs=1e-11, nan_ok=True)


def assert_follows(written, calls, wrt=(), backend="interpreter"):
    """Single calls and batches, compiled and strict, equal eager code, in this order and in the opposite one."""
    expected = [eager(written, wrt, given) for given in calls]
    strict, compiled = compile(written, wrt, strict=True), compile(written, wrt, backend=backend)
    for turn in (zip(calls, expected, strict=True), reversed([*zip(calls, expected, strict=True)])):
        for arguments, (value, gradient) in turn:
            found = strict.value_and_grad(*arguments)
            assert bits(found[0]) == bits(value)
            assert bits(found[1]) == bits(gradient)
            found = compiled.value_and_grad(*arguments)
            assert close(found[0], value)
            assert close(found[1].tolist(), gradient)
            assert close(compiled(*arguments), value)
            assert close(gradients(wrt), gradient)
    arrays = [*map(list, zip(*calls, strict=True))]
    for program in (compiled, compile(written, wrt, backend=backend)):
        each = program.batch(*arrays, reduce=None)
        assert close(each.tolist(), [value for value, _ in expected])
        value, gradient = program.batch_value_and_grad(*arrays, reduce="sum")
        assert close(value, sum(value for value, _ in expected))
        assert close(gradient.tolist(), [sum(column) for column in zip(*[g for _, g in expected], strict=True)])
    assert_strict_batch(strict, written, wrt, calls)
    assert_strict_batch(compile(written, wrt, strict=True), written, wrt, calls)
    return compiled


def assert_strict_batch(program, written, wrt, calls):
    """To the last bit what `backward()` on the sum or the mean of all results gives."""
    arrays = [*map(list, zip(*calls, strict=True))]
    for reduce, reduced in (("sum", sum), ("mean", chainrule.mean)):
        gradients(wrt)
        total = reduced([written(*of_values(arguments)) for arguments in calls])
        if isinstance(total, Value):
            total.backward()
        wanted = [number(total), *gradients(wrt)]
        value, gradient = program.batch_value_and_grad(*arrays, reduce=reduce)
        assert bits([value, *gradient]) == bits(wanted)


# Programs as people write them.


def test_huber():
    scale = Value(1.5)

    def huber(r):
        return 0.5 * scale * r * r if abs(r) < 1.0 else scale * (abs(r) - 0.5)

    program = assert_follows(huber, [(x,) for x in (0.3, -0.2, 2.0, -7.0, 1.0, -1.0, math.nan)], [scale], "llvm")
    assert repr(program) == "<CompiledFunction huber: 1 structure traced, 2 paths>"


def test_newton_to_a_tolerance():
    start = Value(1.0)

    def root(a):
        x = start
        while abs(x * x - a) > 1e-9:
            x = 0.5 * (x + a / x)
        return x

    program = assert_follows(root, [(a,) for a in (2.0, 9.0, 1.0, 0.01, 2.5, 144.0)], [start], "llvm")
    assert program.stats["paths"] > 3


def solved(matrix, right):
    """Gaussian elimination with partial pivoting."""
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = max(range(k, len(rows)), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    x = [0.0] * len(rows)
    for k in reversed(range(len(rows))):
        x[k] = (rows[k][-1] - sum(rows[k][j] * x[j] for j in range(k + 1, len(rows)))) / rows[k][k]
    return x


def test_partial_pivoting():
    w, rng = Value(0.7), random.Random(1)
    systems = [([[rng.uniform(-1, 1) for _ in range(3)] for _ in range(3)], [1.0, 2.0, -1.0]) for _ in range(12)]

    def written(matrix, right):
        return sum(solved(matrix, [w * b for b in right]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert_follows(written, systems, [w])
    inverse = compile(solved)
    for matrix, right in systems[:3]:
        assert inverse(matrix, right) == pytest.approx(np.linalg.solve(matrix, right).tolist())


def test_sorted_and_the_median():
    shift = Value(0.5)

    def median(xs):
        return sorted(x * shift for x in xs)[len(xs) // 2]

    rng = random.Random(2)
    assert_follows(median, [(rng.sample(range(10), 3),) for _ in range(8)], [shift])


def test_early_exercise():
    """An American put on a tree of prices: hold, or exercise, at every node."""
    rate, volatility = Value(0.05), Value(0.3)

    def put(price, strike, steps=3):
        up = chainrule.exp(volatility * math.sqrt(1.0 / steps))
        discount = chainrule.exp(-rate / steps)
        chance = (1.0 / discount - 1.0 / up) / (up - 1.0 / up)
        prices = [price * up ** (2 * k - steps) for k in range(steps + 1)]
        values = [max(strike - s, 0.0) for s in prices]
        for step in reversed(range(steps)):
            for k in range(step + 1):
                held = discount * (chance * values[k + 1] + (1.0 - chance) * values[k])
                now = strike - price * up ** (2 * k - step)
                values[k] = now if now > held else held
        return values[0]

    assert_follows(put, [(s, 100.0) for s in (60.0, 95.0, 100.0, 140.0)], [rate, volatility])


def test_collisions():
    """A ball in a box, which bounces at the walls."""
    bounce = Value(0.9)

    def flight(x, v):
        for _ in range(12):
            x = x + 0.1 * v
            if not 0.0 < x < 1.0:
                v = -v * bounce
                x = min(max(x, 0.0), 1.0)
        return x * v

    assert_follows(flight, [(0.5, 0.1), (0.5, 1.0), (0.2, -3.0), (0.9, 2.0)], [bounce])


def test_max_with_a_key():
    w = [Value(0.5), Value(-1.0)]

    def farthest(points):
        x, y = max(points, key=lambda p: w[0] * p[0] * p[0] + p[1] * p[1])
        return x * w[0] + y * w[1]

    assert_follows(farthest, [([[1.0, 2.0], [3.0, 0.5]],), ([[4.0, 0.0], [1.0, 1.0]],), ([[0.0, 1.0]] * 2,)], w)


def test_nested_ifs():
    a, b = Value(2.0), Value(-3.0)

    def written(x, y):
        if x > 0:
            if y > x:
                return a * x + y
            return b * y if y < -1 else a * b
        if x == y or not y:
            return x * a * a
        return b / (x - y)

    calls = [(1.0, 2.0), (1.0, -2.0), (1.0, 0.5), (-1.0, -1.0), (-1.0, 0.0), (-1.0, 3.0), (math.nan, 1.0), (0.0, -0.0)]
    plain = [number(written(*call)) for call in calls]
    program = compile(written, [a, b])
    assert [program(*call) for call in calls + calls] == pytest.approx(plain * 2, nan_ok=True)
    assert program.batch(*zip(*calls, strict=True), reduce=None).tolist() == pytest.approx(plain, nan_ok=True)


CONDITIONS = {
    "chained": lambda x, y: 0.0 < x < y,
    "and": lambda x, y: x > 0 and y > 1,
    "or": lambda x, y: x > 0 or y > 1,
    "not": lambda x, y: not (x > 0 and not y > 1),
    "truth": lambda x, y: x,
    "tie": lambda x, y: x >= y and not x > y,
    "sum at a tie": lambda x, y: 0.1 * x + 0.2 * x <= 0.3 * x,
    "in": lambda x, y: x in (y, 2.0),
    "itself": lambda x, y: x == x * 1.0,
    "joined": lambda x, y: (x > 0) & (y > 1) | (x == y),
    "any": lambda x, y: any(v > 2 for v in (x, y)),
    "all": lambda x, y: all([x > 0, y > 0]),
    "max": lambda x, y: max(x, y, 1.5) > 2,
    "reduce": lambda x, y: functools.reduce(max, [x, y, 0.0]) != y,
    "argmax": lambda x, y: losses.argmax([x, y, 1.0]) == 1,
    "count": lambda x, y: sum(v > 1 for v in (x, y)) == 1,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_are_those_of_the_plain_call(name):
    numbers = (-1.0, 0.0, -0.0, 1.0, 2.0, 3.0, math.nan, math.inf)

    def written(x, y):
        return x * 3.0 if CONDITIONS[name](x, y) else y - 1.0

    programs = [compile(written), compile(written, strict=True)]
    calls = [(x, y) for x in numbers for y in numbers]
    for program in programs:
        for x, y in calls:
            assert bits(program(x, y)) == bits(written(x, y)), (x, y)
        xs, ys = np.array(calls).T
        assert bits(program.batch(xs, ys, reduce=None)) == bits([written(x, y) for x, y in calls])


def test_values_that_are_computed_are_equal_if_they_are_the_same_node():
    w = Value(2.0)

    def written(x, y):
        a, b = x * w, y * w
        same = [a == b, a == a, a != b, w == a, a in [b], w != w * 1.0, (w > x) == (w > y), a == 4.0]
        return x + sum(2.0**k for k, answer in enumerate(same) if answer)

    program = compile(written)
    for x, y in ((1.0, 1.0), (2.0, 3.0), (2.0, 2.0)):
        assert program(x, y) == written(x, y)
    assert compile(lambda x, y: chainrule.where(x * w == y * w, 1.0, 2.0))(1.0, 1.0) == 2.0  # as eager code


# Captured Values.


def test_the_path_follows_a_captured_value():
    w = Value(1.0)

    def loss(x):
        return (w - 3.0) ** 2 * x if w < 2.0 else -w * x

    program, optimizer, sides = compile(loss), optim.SGD([w], lr=0.3), set()
    for x in (1.5, 1.5, 1.5, -1.5, -1.5, -1.5, -1.5, -1.5, 1.5):
        value, gradient = eager(loss, [w], (x,))
        sides.add(w._data < 2.0)
        assert program(x) == pytest.approx(value, abs=1e-12)
        assert [w.grad] == pytest.approx(gradient, abs=1e-12)
        optimizer.step()
    assert sides == {True, False}


@pytest.mark.parametrize(
    "written",
    [
        lambda x: x if captured else -x,
        lambda x: x if captured > 0 else -x,
        lambda x: x * (captured if captured < other else other * other),
        lambda x: x if captured < x else -x,
        lambda x: x * max([captured, other]),
        lambda x: x * sorted([captured, other, x * captured])[1],
        lambda x: x * (computed if computed > x else other),
    ],
)
def test_branches_on_captured_values(written):
    program, strict = compile(written, [captured, other]), compile(written, [captured, other], strict=True)
    for captured.data in (2.0, 0.0, -1.0, 5.0, 2.0):
        computed.data = captured.data * 2.0
        value, gradient = eager(written, [captured, other], (2.5,))
        assert program(2.5) == value
        assert gradients([captured, other]) == gradient
        assert bits([*strict.value_and_grad(2.5)[1]]) == bits(gradient)
    captured.data = 2.0


captured, other = Value(2.0), Value(3.0)
computed = captured * 2.0


def test_gradients_are_by_the_values_of_all_paths():
    w, v, u = Value(2.0), Value(3.0), Value(5.0)
    program = compile(lambda x: w * x if x < 1 else v * x if x < 2 else u * w)
    assert [*map(list, [program.value_and_grad(0.5)[1]])] == [[0.5]]
    assert program.value_and_grad(1.5)[1].tolist() == [0.0, 1.5]
    assert program.wrt == [w, v]
    assert program.value_and_grad(0.5)[1].tolist() == [0.5, 0.0]
    assert program.batch_value_and_grad([0.5, 1.5, 2.5, 3.5], reduce="sum")[1].tolist() == [0.5 + 5 + 5, 1.5, 4.0]
    assert program.wrt == [w, v, u]
    assert program(0.5) == 1.0
    assert gradients([w, v, u]) == [0.5, 0.0, 0.0]


def test_constants_are_no_conditions():
    inner = compile(lambda x, n: x * 2.0 if n > 1 else x)
    program = compile(lambda x: inner(x, 3.0) + inner(x, 0.0))
    assert (program(2.0), program(-1.0)) == (6.0, -3.0)
    assert "paths" not in program.stats


def in_another_thread(deed):
    thread = threading.Thread(target=deed)
    thread.start()
    thread.join()


def test_a_value_that_moves_before_it_is_branched_on():
    w = Value(1.0)

    def written(x):
        in_another_thread(lambda: setattr(w, "data", 5.0))
        return x if w > 3.0 else -x

    assert compile(written)(2.0) == 2.0


def test_examples_are_sorted_again_if_a_value_moves_meanwhile():
    w = Value(1.0)

    def written(x):
        if x > 1.0:
            # while this path is traced, after the other example has found its own
            in_another_thread(lambda: setattr(w, "data", -1.0))
            return w * x
        return w * x if w > 0.0 else 100.0 * w * x

    program = compile(written)
    assert program(0.5) == 0.5
    assert program.batch([0.5, 2.0], reduce=None).tolist() == [-50.0, -2.0]


def test_values_that_never_rest_are_told(monkeypatch):
    w, numbers = Value(1.0), iter(range(-1, -1000, -1))
    program = compile(lambda x: x if w > 0 else -x)
    assert program(2.0) == 2.0
    monkeypatch.setattr(paths.Known, "moment", lambda self: np.array([float(next(numbers))]))
    with pytest.raises(RuntimeError, match="its conditions are not the same when they are computed again"):
        program(2.0)


def test_plain_numbers_that_change_are_told_when_a_path_depends_on_them():
    limits = [1.0]
    program = compile(lambda x: x if x < limits[0] else -x)
    assert program(0.5) == 0.5
    limits[0] = 3.0
    with pytest.raises(RuntimeError, match="plain numbers that it captures must not change"):
        program(2.0)


# Rules of the user's own.


def test_rules_in_python_are_asked_on_their_path_only():
    root = ops.Op("careful_root", lambda x: math.sqrt(x), (lambda out, x: 0.5 / out,))

    def written(x):
        if x > 0.0:
            return root(x) * 2.0 if root(x) > 1.0 else x
        return -x

    program = compile(written, strict=True)
    assert [program(x) for x in (4.0, -1.0, 0.25, -4.0)] == [4.0, 1.0, 0.25, 4.0]
    assert program.batch([4.0, -1.0, 0.25, -4.0], reduce=None).tolist() == [4.0, 1.0, 0.25, 4.0]


def test_errors_of_a_path_are_the_function_s():
    def written(x):
        if x < 0:
            raise ValueError("negative")
        return x * 2.0

    program = compile(written)
    for _ in range(2):
        assert program(2.0) == 4.0
        with pytest.raises(ValueError, match="negative"):
            program(-1.0)
        with pytest.raises(ValueError, match="negative"):
            program.batch([1.0, -1.0])


def test_classes_are_checked_on_their_path():
    program = compile(lambda logits, label: losses.cross_entropy([logits], [label]) if logits[0] > 0 else label)
    assert program([-1.0, 2.0], 7.0) == 7.0
    assert program.batch([[-1.0, 2.0], [1.0, 2.0]], [7.0, 1.0], reduce=None)[0] == 7.0
    with pytest.raises(ValueError, match="must be a class index below 2"):
        program([1.0, 2.0], 7.0)
    with pytest.raises(ValueError, match="must be a class index below 2"):
        program.batch([[-1.0, 2.0], [1.0, 2.0]], [1.0, 7.0])


# Structures, batches, training.


def test_results_of_several_structures():
    program = compile(lambda x: [x, x] if x > 0 else x)
    assert (program(1.0), program(-1.0)) == ([1.0, 1.0], -1.0)
    with pytest.raises(
        TypeError, match="results of one structure, on every path: the result was a number and is a list"
    ):
        program.batch([-1.0, 1.0], reduce=None)
    with pytest.raises(TypeError, match="returns 2 numbers in a structure"):
        program.batch([-1.0, 1.0])


def test_batches_in_which_every_example_takes_another_path():
    w = Value(0.5)

    def written(x):
        k = 0
        while x > 1.0:
            x, k = x * w, k + 1
        return x * k

    assert_follows(written, [(2.0**k,) for k in range(6)], [w])
    for threads in (1, 2):
        many = compile(written, [w], backend="interpreter").batch(
            np.linspace(0.1, 20.0, 3000), reduce=None, threads=threads
        )
        assert close(many.tolist(), [number(written(x)) for x in np.linspace(0.1, 20.0, 3000).tolist()])


def test_a_loop_that_does_not_end_is_told_before_it_takes_all_memory(monkeypatch):
    monkeypatch.setattr(symbols, "MOST_CONDITIONS", 100)

    def root(a):
        x = a
        while abs(x * x - a) > 1e-12:  # the square of no float is as near to a billion
            x = 0.5 * (x + a / x)
        return x

    program = compile(root)
    with pytest.raises(TracingError, match=r"`while abs.*` asks for more than 100 conditions, .*a tolerance that"):
        program(1e9 + 0.1)
    assert program(9.0) == 3.0


def test_sizes_of_batches_do_not_count_as_programs():
    program = compile(lambda x: x if x > 0 else -2.0 * x)
    rng = random.Random(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (3, 10, 17, 30, 41, 70, 100, 150, 300, 411, 500):
            xs = [rng.uniform(-1, 1) for _ in range(size)]
            assert program.batch(xs, reduce="sum") == pytest.approx(sum(x if x > 0 else -2.0 * x for x in xs))


def test_batches_that_are_divided_differently_need_no_new_programs(monkeypatch):
    made = []
    monkeypatch.setattr(traced, "Code", lambda *given, **named: made.append(given) or Code(*given, **named))
    w = Value(0.5)
    program = compile(lambda x: w * x if x > 0 else -2.0 * w * x, [w])
    for up, down in ((64, 0), (64, 64), (0, 64)):
        for reduce in ("mean", "sum"):
            _, gradient = program.batch_value_and_grad([0.5] * up + [-0.5] * down, reduce=reduce)
            assert gradient == pytest.approx((0.5 * up + down) / (up + down if reduce == "mean" else 1.0))
    assert len(made) == 2


def test_structures_do():
    program = compile(lambda xs: max(xs) * 2.0, backend="interpreter")
    with pytest.warns(RuntimeWarning, match="compiled over and over.*argument 0 was a list of 8 and is a list of 9"):
        found = [program([1.0] * size) for size in range(1, 11)]
    assert found == [2.0] * 10


@pytest.mark.parametrize("options", [{}, {"backend": "interpreter"}, {"strict": True}, {"dtype": "float32"}])
@pytest.mark.parametrize("size", [1, 3])
def test_training_steps_may_change_the_path(options, size):
    xs = [0.5, -1.0, 2.0, 0.1, -3.0, 1.0, 0.7]

    def run(train):
        model = nn.MLP(1, [3, 1], rng=1)
        unused = Value(1.0)
        optimizer = optim.Adam([*model.parameters(), unused], lr=0.3)

        def loss(x):
            out = model([x])
            return out * out if out > 0.2 else 0.1 - out

        return train(loss, optimizer), [p.data for p in optimizer.parameters]

    def eagerly(loss, optimizer):
        found = []
        for start in range(0, len(xs), size):
            total = chainrule.mean([loss(x) for x in xs[start : start + size]])
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            found.append(total.data)
        return found

    def compiled(loss, optimizer):
        return compile(loss, optimizer.parameters, **options).train(optimizer, xs, batch_size=size)

    tolerance = 1e-3 if "dtype" in options else 1e-10
    for found, wanted in zip(run(compiled), run(eagerly), strict=True):
        assert found == pytest.approx(wanted, abs=tolerance)


def test_fit_compiled_by_example_takes_every_path():
    inputs, targets = [[0.1 * k] for k in range(60)], [math.sin(0.1 * k) for k in range(60)]

    def robust(predictions, wanted):
        return chainrule.mean(
            [(p - y) ** 2 if abs(p - y) < 0.5 else abs(p - y) - 0.25 for p, y in zip(predictions, wanted, strict=True)]
        )

    curves, data = [], chainrule.data.Dataset(inputs, targets)
    for compiled in (True, False):
        model = nn.MLP(1, [4, 1], rng=1)
        settings = {"optimizer": optim.SGD(model.parameters(), lr=0.05), "epochs": 3, "batch_size": 20, "rng": 1}
        curves.append(chainrule.fit(model, robust, data, compiled=compiled, progress=False, **settings)["loss"])
    assert curves[0] == pytest.approx(curves[1], rel=1e-9)


# What needs one program for all numbers.


def pick(x):
    return x if x > 0 else -x  # THE LINE


@pytest.mark.parametrize(
    "deed",
    [
        lambda program: program.to_c("pick", 1.0),
        lambda program: program.to_jax(1.0),
        lambda program: (program(1.0), program.to_c("pick")),
    ],
)
def test_what_needs_one_program_names_the_line_and_the_remedy(deed):
    with pytest.raises(TracingError, match=r"# THE LINE` branches on a number.*chainrule\.where") as caught:
        deed(compile(pick))
    assert str(caught.value).startswith(f"{__file__}:")


def test_xla_takes_paths_and_a_mesh_refuses_them():
    pytest.importorskip("jax")
    program = compile(pick, backend="jax")
    assert (program(2.0), program(-3.0), program.batch([1.0, -5.0])) == (2.0, 3.0, 3.0)
    with pytest.raises(TracingError, match="a mesh of devices needs one program"):
        program.shard("all").batch([1.0, -5.0])


def test_conditions_outside_of_a_trace_are_refused():
    with pytest.raises(TracingError, match="branches on a traced number"):
        bool(compiler.trace.symbols.Symbol.argument(0) > 1.0)


def test_a_number_of_an_earlier_trace_is_refused():
    kept = []

    def written(x):
        kept.append(x)
        try:
            return x if kept[0] > 0 else -x
        except TypeError:
            return x * 7.0

    program = compile(written)
    assert program(1.0) == 1.0
    with pytest.raises(TracingError, match=r"kept\[0\] > 0 else -x` uses a traced number of an earlier trace"):
        program(-1.0)


# Bounds, warnings, what it shows.


def counted(x):
    k = 0
    while x > 1.0:  # HALVED
        x, k = x * 0.5, k + 1
    return x + k


def test_many_paths_draw_a_warning_that_names_the_line():
    program = compile(counted)
    with pytest.warns(
        RuntimeWarning, match=r"has taken 9 paths so far.*8 times at .*# HALVED.*chainrule\.where"
    ) as told:
        found = [program(2.0**k) for k in range(12)]
    assert found == [1.0 + k for k in range(12)]
    assert len(told) == 1
    assert told[0].filename == __file__


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_too_many_paths_run_node_by_node(monkeypatch):
    monkeypatch.setattr(paths, "MOST_PATHS", 3)
    w = Value(1.0)

    def written(x):
        return w * counted(x * w)

    program, strict = compile(written), compile(written, strict=True)
    for k in (0, 1, 2, 9, 3, 9, 1, 0):
        value, gradient = eager(written, [w], (2.0**k,))
        assert program.value_and_grad(2.0**k) == (value, gradient)
        assert strict.value_and_grad(2.0**k) == (value, gradient)
    assert program.stats["paths"] == 3
    calls = [(2.0**k,) for k in (5, 9, 0, 7, 7, 1, 9)]
    assert_follows(written, calls, [w])
    program(2.0**20)
    assert program.stats["node by node"] == "because its path is one of too many"
    assert program.describe().startswith("# path beyond 3\n")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_that_a_function_makes_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(paths, "MOST_PATHS", 2)
    w, made = Value(3.0), {}

    def written(x):
        total = Value(0.5)
        lazy = made.setdefault("lazy", Value(2.0))
        return total * w * lazy + counted(x)

    program = compile(written)
    for k in range(12):
        assert program(2.0**k) == 4.0 + k
    assert program.batch([2.0**k for k in range(12)], reduce="sum") == 48.0 + 66.0
    assert (w.grad, made["lazy"].grad) == (12 + 12, 12 * 1.5 + 12 * 1.5)
    [known] = [paths.known for paths in program._traces.by_structure.values()]
    assert len(known.values) == 4


def test_a_path_with_very_many_conditions_is_not_kept(monkeypatch):
    monkeypatch.setattr(paths, "MOST_GUARDS", 5)
    program = compile(counted)
    assert [program(2.0**k) for k in (1, 30, 2, 30)] == [2.0, 31.0, 3.0, 31.0]
    assert program.stats["paths"] == 2
    reason = "because its path has 31 conditions, which is more than 5"
    assert program.stats["node by node"] == reason
    assert repr(program).endswith(f"2 paths; the last call ran node by node, {reason}>")
    program(2.0**3)
    assert "node by node" not in program.stats


def test_a_first_path_with_very_many_conditions_is_compiled(monkeypatch):
    monkeypatch.setattr(paths, "MOST_GUARDS", 5)
    program = compile(counted)
    assert program(2.0**30) == 31.0
    assert "node by node" not in program.stats


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_very_long_path_is_told_its_length_even_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(paths, "MOST_PATHS", 1)
    monkeypatch.setattr(paths, "MOST_GUARDS", 5)
    program = compile(counted)
    for number, reason in ((1.0, None), (2.0**3, "one of too many"), (2.0**30, "conditions, which is more than 5")):
        program(number)
        assert program.stats.get("node by node", "None").endswith(str(reason))


def test_describe_shows_the_path():
    program = compile(pick)
    program(-2.0)
    program(2.0)
    condition = f"# {__file__}:{pick.__code__.co_firstlineno + 1}: `return x if x > 0 else -x  # THE LINE` is"
    assert program.describe() == f"# path 2 of 2\n{condition} true\noutput[0] = x"
    program(-1.0)
    assert program.describe() == f"# path 1 of 2\n{condition} false\nv0[0] = neg(x)"
    assert (program.stats["paths"], program.stats["conditions"]) == (2, 1)
    many = compile(counted)
    many(2.0**5)
    assert "is true, 5 times\n" in many.describe()


# Threads.


def test_threads_that_take_different_paths():
    w = Value(2.0)

    def written(x):
        return counted(x) * w if x > w else x * w * w

    program = compile(written, [w])

    def work(seed):
        rng = random.Random(seed)
        xs = [rng.uniform(0.0, 60.0) for _ in range(40)]
        return all(program.value_and_grad(x)[0] == pytest.approx(number(written(x))) for x in xs) and close(
            program.batch(xs, reduce=None).tolist(), [number(written(x)) for x in xs]
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_a_call_sees_captured_values_of_one_moment():
    """While another thread moves `w` across the branch, results are those of one side or the other."""
    w = Value(1.0)
    program = compile(lambda x: w * x if w > 0 else w * x * 100.0)
    wanted, over = {1.0 * 3.0, -1.0 * 300.0}, []

    def move():
        while not over:
            w.data = -w._data

    with ThreadPoolExecutor(1) as pool:
        pool.submit(move)
        try:
            found = {program.value_and_grad(3.0)[0] for _ in range(3000)}
        finally:
            over.append(True)
    assert found <= wanted


# Random programs.

EXPRESSIONS = [
    "x",
    "y",
    "w",
    "v",
    "x * w",
    "y - v",
    "x + y",
    "chainrule.sin(x)",
    "w * v",
    "0.5",
    "-1.0",
    "s",
    "s * x - y",
]
COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]
JOINTS = [" and ", " or "]


@st.composite
def blocks(draw, depth=0):
    """Lines of code on the variables a and b, with branches and loops in them."""
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["set", "set", "if", "while", "pick", "sort"] if depth < 2 else ["set"]))
        target, one, two = (draw(st.sampled_from(choice)) for choice in ("ab", EXPRESSIONS, [*EXPRESSIONS, "a", "b"]))
        if kind == "set":
            lines.append(f"{target} = {draw(st.sampled_from(['a + ', 'b * ', 'a - ', 'chainrule.tanh(b) + ']))}({one})")
        elif kind == "if":
            condition = draw(conditions)
            lines += [f"if {condition}:", *indented(draw(blocks(depth + 1)))]
            if draw(st.booleans()):
                lines += ["else:", *indented(draw(blocks(depth + 1)))]
        elif kind == "while":
            lines += [f"turns, {target} = 0, abs({two}) + 1.0", f"while {target} > 0.6 and turns < 6:"]
            lines += indented([f"turns, {target} = turns + 1, {target} * {draw(st.sampled_from(['0.5', '0.9', 'c']))}"])
        elif kind == "pick":
            lines.append(f"{target} = {draw(st.sampled_from(['max', 'min']))}(a, b, {one}, key=lambda z: z * {two})")
        else:
            lines.append(f"a, _, b = sorted([a, b, {one}])")
    return lines


conditions = st.lists(
    st.tuples(st.sampled_from([*EXPRESSIONS, "a", "b"]), st.sampled_from(COMPARISONS), st.sampled_from(EXPRESSIONS)),
    min_size=1,
    max_size=2,
).flatmap(lambda parts: st.sampled_from(JOINTS).map(lambda joint: joint.join(" ".join(part) for part in parts)))


def indented(lines):
    return [f"    {line}" for line in lines]


corners = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0])
numbers = st.one_of(corners, st.floats(-3.0, 3.0, allow_nan=False))


@given(
    lines=blocks(),
    calls=st.lists(st.tuples(numbers, numbers), min_size=2, max_size=9),
    moves=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=2),
    backend=st.sampled_from(["interpreter", "interpreter", "llvm"]),
)
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=25)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_programs_take_eager_code_s_path(lines, calls, moves, backend):
    text = "\n".join(["def written(x, y):", *indented(["a, b, c = x * w, y + v, w * 0.5", *lines, "return a * v + b"])])
    w, v = Value(0.75), Value(-0.5)
    outside = w * v + 0.25  # computed once, before the function is called
    names = {"w": w, "v": v, "s": outside, "chainrule": chainrule}
    exec(text, names)
    written, programs = names["written"], [compile(names["written"], [w, v], strict=True)]
    programs.append(compile(names["written"], [w, v], backend=backend))
    for w.data, v.data in [(0.75, -0.5), *moves]:
        outside.data, expected = w.data * v.data + 0.25, []
        for x, y in calls:
            w.grad = v.grad = 0.0
            result = written(x, y)  # `==` of arguments is that of the plain numbers
            result.backward()
            expected.append((result.data, [w.grad, v.grad]))
        w.grad = v.grad = 0.0
        if any(abs(n) > 1e6 for value, gradient in expected for n in (value, *gradient)):
            return
        for (x, y), (value, gradient) in zip(calls, expected, strict=True):
            found = programs[0].value_and_grad(x, y)
            assert bits([found[0], *found[1]]) == bits([value, *gradient]), text
            found = programs[1].value_and_grad(x, y)
            assert found[0] == pytest.approx(value, rel=1e-9, abs=1e-9), text
            assert found[1].tolist() == pytest.approx(gradient, rel=1e-9, abs=1e-9), text
        xs, ys = [x for x, _ in calls], [y for _, y in calls]
        assert bits(programs[0].batch(xs, ys, reduce=None)) == bits([value for value, _ in expected]), text
        total = functools.reduce(operator.add, [written(x, y) for x, y in calls], 0)
        total.backward()
        found = programs[0].batch_value_and_grad(xs, ys, reduce="sum")
        assert bits([found[0], *found[1]]) == bits([total.data, w.grad, v.grad]), text
        found = programs[1].batch_value_and_grad(xs, ys, reduce="sum")
        assert [found[0], *found[1]] == pytest.approx([total.data, w.grad, v.grad], rel=1e-9, abs=1e-8), text
        w.grad = v.grad = 0.0


def test_a_condition_may_be_a_derivative():
    @compile
    def root(a):
        def cube(v):
            return v * v * v - a

        x = a
        while abs(cube(x)) > 1e-12:
            x = x - cube(x) / chainrule.grad(cube)(x)
        return x if chainrule.grad(cube)(x) > 10.0 else -x

    eager = root.function
    for a in (2.0, 8.0, 27.0, 3.0):
        assert root(a) == pytest.approx(eager(a), rel=1e-14)
    slopes = compile(chainrule.grad(eager)).batch([2.0, 8.0, 27.0], reduce=None)
    np.testing.assert_allclose(slopes, [chainrule.grad(eager)(a) for a in (2.0, 8.0, 27.0)], rtol=1e-12)


def test_an_op_that_raises_in_a_condition_is_not_swallowed():
    @chainrule.op(lambda out, x: 1.0)
    def positive(x):
        if isinstance(x, float) and x < 0.0:
            raise ValueError("negative")
        return x * 1.0

    @compile
    def caught(x):
        try:
            if positive(x * 10.0 - 50.0) > 0.0:
                return x * 2.0
        except ValueError:
            pass
        y = x * 3.0 - 1.0
        return y if y > 0.0 else -y

    for number in (0.1, 1.0, 4.0):
        with pytest.raises(TracingError, match=r"raised ValueError\('negative'\) while a condition was computed"):
            caught(number)
    assert caught(7.0) == 14.0
    with pytest.raises(TracingError, match="while a condition was computed"):
        caught(1.0)
    with pytest.raises(ValueError, match="negative"):
        compile(lambda x: x if positive(x) > 1.0 else -x)(-3.0)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float32", "longdouble"])
@pytest.mark.parametrize("lengths", [(1, 1, 1), (1, 2, 1)])
def test_a_batch_as_a_list_of_arrays_of_other_types(dtype: str, lengths: tuple[int, ...]) -> None:
    w = Value(1.0)
    f = chainrule.compile(lambda x: w * x[0] * (10.0 if x[0] > 0.5 else 1.0) + len(x), wrt=[w])
    rows = [np.full(n, k).astype(dtype) for k, n in zip((0, 1, 3), lengths, strict=True)]
    expected = [float(row[0]) * (10.0 if row[0] > 0.5 else 1.0) + len(row) for row in rows]
    assert [f(row.astype(np.float64)) for row in rows] == expected  # all paths are known from here on
    assert f.batch(rows, reduce=None).tolist() == expected
    assert f.batch_value_and_grad(rows)[0] == pytest.approx(sum(expected) / 3)
    if len(set(lengths)) == 1:
        assert f.batch(np.array(rows), reduce=None).tolist() == expected

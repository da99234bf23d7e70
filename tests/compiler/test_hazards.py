"""What cannot be traced is refused, with the line and the remedy; and conditions can be joined."""

import copy
import math
import threading
from functools import partial

import numpy as np
import pytest

import chainrule
from chainrule import Value, losses, ops
from chainrule.compiler import TracingError, compile
from chainrule.compiler.trace.symbols import Symbol


def branch(x):
    return 1.0 if x > 0 else 2.0


def as_float(x):
    return float(x)  # FLOAT


def with_math(x):
    return math.exp(x)  # MATH


def as_complex(x):
    return complex(x)  # COMPLEX


def as_int(x):
    return int(x)  # INT


def as_count(x):
    return sum(1.0 for _ in range(x))  # RANGE


def as_index(x):
    return [1.0, 2.0][x]  # INDEX


def condition_as_index(x):
    return [x, 10.0 * x][x > 1.0]  # CONDITION-INDEX


def joined_as_index(x):
    return [x, 10.0 * x][(x > 1.0) & (x < 2.0)]  # JOINED-INDEX


def long_product_as_index(x):
    return [1.0, 2.0][math.prod([x] * 5000)]  # PRODUCT-INDEX


def as_mask(x):
    return np.array([1.0, 2.0])[np.array([x, x])].sum()  # MASK


def as_conditions(x):
    return np.array([x, 2.0])[[x > 0.0, x > 1.0]].sum()  # CONDITIONS


def rounded(x):
    return round(x)  # ROUND


def floor(x):
    return math.floor(x)  # FLOOR


def ceiling(x):
    return math.ceil(x)  # CEIL


def truncated(x):
    return math.trunc(x)  # TRUNC


def iterated(x):
    return sum(v for v in x)  # ITERATE


def formatted(x):
    return f"{x:.3f}"  # FORMAT


def copied_with_captured(x):
    return copy.deepcopy([x * captured])[0] * x  # COPY


def reads_data(x):
    return (x * 2.0).data  # DATA


def reads_grad(x):
    return x.grad  # GRAD


def calls_backward(x):
    (x * x).backward()  # BACKWARD
    return x


def wraps(x):
    return Value(x) * 2.0  # WRAP


def halved(x):
    return x // 2.0  # QUOTIENT


def halved_with_rest(x):
    return divmod(x, 2.0)[1]  # DIVMOD


def method_of_a_value(x):
    return Value(1.0).maximum(x)  # METHOD


captured, other = Value(2.0), Value(3.0)
recorded = compile(captured * captured)
scaled_by_captured = compile(lambda x: captured * x)


def data_of_captured(x):
    return x * captured.data  # CAPTURED-DATA


def data_of_computed(x):
    return x * (captured * 2.0).data  # COMPUTED-DATA


def grad_of_captured(x):
    return x - 0.1 * captured.grad  # CAPTURED-GRAD


def float_of_captured(x):
    return x * math.exp(captured)  # CAPTURED-FLOAT


def argmax_of_captured(x):
    return x * losses.argmax([captured, other])  # CAPTURED-ARGMAX


def copied(x):
    return x * copy.deepcopy([captured])[0]  # CAPTURED-COPY


def stepped(x):
    chainrule.optim.SGD([captured], lr=0.1).step()  # CAPTURED-STEP
    return x


def data_is_set(x):
    captured.data = 5.0  # SET-DATA
    return x * captured


def grad_is_set(x):
    captured.grad = 0.0  # SET-GRAD
    return x * captured


def grads_are_set(x):
    chainrule.optim.SGD([captured], lr=0.1).zero_grad()  # SET-GRADS
    return x * captured


def with_gradient(x):
    return scaled_by_captured.value_and_grad(x)[0]  # INNER-GRADIENT


def with_batch(x):
    return scaled_by_captured.batch([x, x])  # INNER-BATCH


def with_recorded(x):
    return x * recorded()  # INNER-RECORDED


def compiling(x):
    return x * compile(captured * other)()  # INNER-COMPILE


HAZARDS = [
    (as_float, "FLOAT", "turns a traced number into a float", "chainrule.exp(x) for math.exp(x)"),
    (with_math, "MATH", "turns a traced number into a float", "chainrule.exp(x) for math.exp(x)"),
    (as_complex, "COMPLEX", "turns a traced number into a complex one", "chainrule's functions"),
    (as_int, "INT", "turns a traced number into an int", "let the function capture it"),
    (as_count, "RANGE", "uses a traced number as an index or a count", "let the function capture it"),
    (as_index, "INDEX", "uses a traced number as an index or a count", "chainrule.where"),
    (condition_as_index, "CONDITION-INDEX", "uses a condition as an index or a count", "`b if condition else a` for"),
    (joined_as_index, "JOINED-INDEX", "uses a condition as an index or a count", "chainrule.where(condition, b, a)"),
    (long_product_as_index, "PRODUCT-INDEX", "uses a traced number as an index or a count", "chainrule.where"),
    (as_mask, "MASK", "uses an index that NumPy refuses; traced numbers, which have no", "as in x[mask > 0]"),
    (as_conditions, "CONDITIONS", "uses an index that NumPy refuses; traced numbers", "chainrule.where("),
    (rounded, "ROUND", "rounds a traced number", "chainrule.rint(x) for round(x)"),
    (floor, "FLOOR", "rounds a traced number", "chainrule.rint(x) for round(x)"),
    (ceiling, "CEIL", "rounds a traced number", "chainrule.rint(x) for round(x)"),
    (truncated, "TRUNC", "rounds a traced number", "chainrule.rint(x) for round(x)"),
    (iterated, "ITERATE", "iterates over a traced number", "give the function a list"),
    (formatted, "FORMAT", "formats a traced number", "print the result of the call instead"),
    (copied_with_captured, "COPY", "copies what was computed from a captured Value", "[row[:] for row in rows]"),
    (reads_data, "DATA", "reads `.data` of a traced number", "read numbers from the result of the call"),
    (reads_grad, "GRAD", "reads `.grad` of a traced number", "call the compiled function first"),
    (calls_backward, "BACKWARD", "calls backward() on a traced number", "return it"),
    (wraps, "WRAP", "does not accept a traced number", "write x for Value(x)"),
    (halved, "QUOTIENT", "does not accept a traced number", "write chainrule.floor(x / y) for x // y"),
    (halved_with_rest, "DIVMOD", "does not accept a traced number", "x % y for divmod(x, y)"),
    (method_of_a_value, "METHOD", "does not accept a traced number", "chainrule.maximum(w, x) for w.maximum(x)"),
    (data_of_captured, "CAPTURED-DATA", "reads `.data` of a Value, whose number may be different", "as an argument"),
    (data_of_computed, "COMPUTED-DATA", "reads `.data` of a Value", "compute with the Value itself"),
    (grad_of_captured, "CAPTURED-GRAD", "reads `.grad` of a Value", "as an argument"),
    (float_of_captured, "CAPTURED-FLOAT", "turns a Value into a float", "chainrule's functions"),
    (argmax_of_captured, "CAPTURED-ARGMAX", "reads `.data` of a Value", "softmax"),
    (copied, "CAPTURED-COPY", "copies a Value", "compute with the Value itself"),
    (stepped, "CAPTURED-STEP", "reads `.grad` of a Value", "as an argument"),
    (data_is_set, "SET-DATA", "sets `.data` of a Value, which would happen while the function is", "before the call"),
    (grad_is_set, "SET-GRAD", "sets `.grad` of a Value", "do it before the call, or after it"),
    (grads_are_set, "SET-GRADS", "sets `.grad` of", "do it before the call, or after it"),
    (with_gradient, "INNER-GRADIENT", "calls `value_and_grad` of a compiled function", "becomes part of this one"),
    (with_batch, "INNER-BATCH", "calls a batch of a compiled function", "or call it outside"),
    (with_recorded, "INNER-RECORDED", "runs a compiled Value", "use the Value itself"),
    (compiling, "INNER-COMPILE", "compiles a Value", "use the Value itself"),
]


class TestHazards:
    @pytest.mark.parametrize(("written", "mark", "deed", "remedy"), HAZARDS, ids=[row[1] for row in HAZARDS])
    def test_what_needs_the_number_names_the_line_and_the_remedy(self, written, mark, deed, remedy):
        with open(__file__, encoding="utf-8") as file:
            lines = file.read().splitlines()
        (number,) = [k for k, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
        with pytest.raises(TracingError) as caught:
            compile(written)(0.5)
        message = str(caught.value)
        assert message.startswith(f"{__file__}:{number}: `{lines[number - 1].strip()}` {deed}")
        assert remedy in message
        assert isinstance(caught.value, TypeError)

    def test_after_an_error_all_is_as_before(self):
        call = ops.Op.__call__
        program = compile(reads_data)
        for _ in range(2):
            with pytest.raises(TracingError):
                program(1.0)
        assert ops.Op.__call__ is call

    @pytest.mark.parametrize("written", [data_of_captured, reads_data, with_recorded])
    def test_after_an_error_numbers_can_be_read_again(self, written):
        with pytest.raises(TracingError):
            compile(written)(1.0)
        assert (captured.data, captured < other, bool(captured)) == (2.0, True, True)

    def test_comparisons_of_captured_values_are_conditions(self):
        w, v = Value(2.0), Value(3.0)

        def written(x):
            above, between = chainrule.where(w > v, x, -x), (w > 1) * (w <= 2.5)
            return above + 10.0 * between + 100.0 * (w >= x) + 1000.0 * (v < w)

        program = compile(written)
        results = []
        for w.data in (0.5, 2.0, 4.0):
            results.append(program(2.0))
        assert not w._read
        for w.data in (4.0, 2.0, 0.5):
            assert results.pop() == written(2.0)
        with pytest.raises(TypeError, match="not supported between instances"):
            compile(lambda x: x * (w > "text"))(1.0)

    def test_a_comparison_that_gives_a_condition_does_not_count_as_a_branch(self):
        w = Value(2.0)
        compile(lambda x: chainrule.where(w > x, w, x))(1.0)
        assert compile(w * 3.0)() == 6.0

    def test_values_can_be_named_and_shown(self):
        w = Value(2.0)

        def written(x):
            w.label = f"{w!r} {w} {w:.2f}"
            return w * x

        assert compile(written)(3.0) == 6.0
        assert w.label == "Value(data=2.0, grad=0.0) Value(data=2.0, grad=0.0) 2.00"

    def test_other_threads_read_numbers_during_a_trace(self):
        w = Value(2.0)
        seen = []

        def look():
            seen.extend([w.data, w.grad, w > 1.0, bool(w), max([w, Value(1.0)]) is w])
            seen.append(compile(lambda x: w * x)(4.0))  # a trace inside the time of another

        def written(x):
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            return x * w.data

        with pytest.raises(TracingError, match=r"reads `\.data` of a Value"):
            compile(written)(1.0)
        assert seen == [2.0, 0.0, True, True, True, 8.0]

    def test_one_trace_ends_while_another_goes_on(self):
        w = Value(2.0)
        inside, over = threading.Event(), threading.Event()

        def slow(x):
            inside.set()
            assert over.wait(30)
            return x * w.data

        def trace_slowly():
            with pytest.raises(TracingError, match=r"reads `\.data`"):
                compile(slow)(1.0)
            raised.append(True)

        raised = []
        thread = threading.Thread(target=trace_slowly)
        thread.start()
        assert inside.wait(30)
        assert compile(lambda x: w * x)(3.0) == 6.0
        assert w.data == 2.0
        over.set()
        thread.join()
        assert raised
        assert w.data == 2.0

    def test_other_errors_of_the_function_come_out_as_they_are(self):
        def written(x):
            raise TypeError("mine")

        with pytest.raises(TypeError, match=r"^mine$"):
            compile(written)(1.0)
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            compile(branch)()

    def test_a_traced_number_kept_from_an_earlier_trace(self):
        kept = []

        def written(xs):
            kept.extend(xs)
            return kept[0] + xs[-1]

        program = compile(written)
        assert program([1.0]) == 2.0
        with pytest.raises(TracingError, match="uses a traced number of an earlier trace"):
            program([1.0, 2.0])

    def test_printing_is_fine(self):
        assert compile(lambda x: x * float(f"{x} {x + 1}" == "Symbol(argument 0) Symbol(+)"))(3.0) == 3.0

    def test_unknown_attributes(self):
        with pytest.raises(AttributeError, match="a traced number has no attribute 'item'"):
            compile(lambda x: x.item())(1.0)
        assert not hasattr(Symbol.argument(0), "__len__")


# Conditions are joined by `&`, `|` and `^` as the booleans of a plain call are.


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: (x > 0.0) & (x < 1.0),
        lambda x: (x < 0.0) | (x > 1.0) | (x == 0.5),
        lambda x: (x > 0.0) ^ (x > 1.0),
        lambda x: True & (x > 0.0) & ((x < 0.75) | False),
        lambda x: (x > 0.0) & (captured > 1.0) & (x != 2.0),
    ],
)
def test_conditions_are_joined_in_a_trace(condition):
    def written(x):
        return chainrule.where(condition(x), x * x, -x)

    program = compile(written)
    for x in (-1.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0):
        assert program(x) == written(x)


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        (lambda x: chainrule.where(~(x > 0.0), x, -x), r"`~`, and ~True is -2 in Python.*1\.0 - \(condition\)"),
        (lambda x: x & 1, r"only conditions.*\(x > 0\) & \(y > 0\)"),
        (lambda x: (x > 0.0) | x, "only conditions"),
    ],
)
def test_what_cannot_be_joined_is_told_with_the_remedy(written, advice):
    with pytest.raises(TracingError, match=advice):
        compile(written)(1.0)


def reading_and_catching(x):
    try:
        return x * 2.0 if x.data > 1.0 else x
    except Exception:
        return x * 7.0


def rounding_and_catching(x):
    try:
        return x * float(x)
    except TypeError:
        return x * 7.0


@pytest.mark.parametrize("written", [reading_and_catching, rounding_and_catching])
def test_a_refusal_that_the_function_catches_is_told_all_the_same(written):
    with pytest.raises(TracingError, match=r"reads `\.data`|turns a traced number into a float"):
        compile(written)(2.0)
    assert compile(lambda x: x * 2.0)(2.0) == 4.0


@pytest.mark.parametrize(
    "written",
    [
        lambda x: x * 2.0 if x in {1.0, 2.0} else x * 7.0,
        lambda x: x * {2.0: 5.0}.get(x, 1.0),
        lambda x: x * len({x, 2.0}),
    ],
)
def test_a_traced_number_is_no_key(written):
    with pytest.raises(TracingError, match="looks a traced number up in a set, a dict or a cache"):
        compile(written)(2.0)


def test_an_op_that_is_defined_anew_is_the_new_one():
    def cell(k):  # of a notebook, run twice
        @chainrule.op(lambda out, x: k, name="scaled")
        def scaled(x):
            return k * x

    for k in (2.0, 3.0):
        cell(k)
        for options in ({}, {"strict": True}, {"backend": "interpreter"}):
            assert compile(lambda x: x.scaled(), **options)(1.0) == Value(1.0).scaled().data == k


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", ["MaskedArray", "matrix"])
def test_an_array_that_is_more_than_its_numbers_is_refused(kind):
    numbers = np.ma.masked_array([1.0, 2.0], [False, True]) if kind == "MaskedArray" else np.matrix([[1.0, 2.0]])
    program = compile(lambda x: x[0])
    program(np.array([1.0, 2.0]))
    for call in (program, program.batch):
        with pytest.raises(TypeError, match=f"must not be a numpy {kind}: give np.asarray"):
            call(numbers)


@pytest.mark.parametrize("number", [0.0, 3.0])
def test_a_rule_for_floats_alone_is_run_on_floats(number):
    @chainrule.op(lambda out, x: 0.0 if x == 0.0 else 2.0 * x)
    def bump(x):
        return 1.0 if x == 0.0 else x * x

    @chainrule.op(lambda out, x: math.exp(x) if x else 5.0)
    def grown(x):
        return math.exp(x)

    for op in (bump, grown):
        w, eager = Value(number), Value(number)
        expected = op(eager) * 2.0
        expected.backward()
        for options in ({}, {"strict": True}, {"backend": "interpreter"}):
            program = compile(op(w) * 2.0, wrt=[w], **options)
            result, gradient = program.value_and_grad()
            assert (result, gradient.tolist()) == (expected.data, [eager.grad])
            function = compile(partial(lambda op, w, x: op(w) * x, op, w), wrt=[w], **options)
            assert function.batch_value_and_grad([2.0, 2.0])[0] == expected.data
        assert "branches on its operands" in compile(op(w) * 2.0).stats["node by node"]

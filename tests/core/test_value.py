"""What a Value promises, on every engine."""

import contextlib
import copy
import gc
import math
import pickle
import subprocess
import sys
import weakref
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import chainrule
from chainrule import ops
from engines import ENGINES


class TestConstruction:
    def test_a_new_value_is_a_leaf_with_a_zero_gradient(self, Value):
        v = Value(2.0)
        assert (v.data, v.grad, v._prev, v._op, v.label) == (2.0, 0.0, frozenset(), "", "")

    @pytest.mark.parametrize("number", [3, True, Fraction(1, 4), np.float64(2.5), np.float32(0.5), np.int64(7)])
    def test_real_numbers_become_floats(self, Value, number):
        v = Value(number)
        assert type(v.data) is float
        assert v.data == float(number)

    def test_numpy_booleans_and_small_floats_become_floats(self, Value):
        assert [Value(x).data for x in (np.bool_(True), np.float16(0.5), np.uint8(255))] == [1.0, 0.5, 255.0]

    @pytest.mark.parametrize(
        ("thing", "advice"),
        [
            ("2.0", "float"),
            (None, "real number"),
            (1 + 2j, ".real"),
            ([1.0], "one number at a time"),
            (np.array([1.0]), ".item()"),
            (np.array(1.0), ".item()"),
            (np.complex128(1j), ".real"),
            (Decimal("1.5"), "real number"),
            (object(), "real number"),
        ],
    )
    def test_anything_else_is_a_type_error_that_says_what_to_do(self, Value, thing, advice):
        with pytest.raises(TypeError, match="`data` must be a real number, got") as error:
            Value(thing)
        assert advice in str(error.value)

    def test_a_value_is_not_data(self, Value):
        with pytest.raises(TypeError, match=r"node of a graph already.*\.data"):
            Value(Value(1.0))

    def test_a_number_beyond_floats_is_an_overflow_error(self, Value):
        with pytest.raises(OverflowError, match="`data` is too large"):
            Value(10**400)
        with pytest.raises(OverflowError, match="`operand` is too large"):
            Value(1.0) + 10**400

    def test_data_is_required(self, Value):
        with pytest.raises(TypeError, match="data"):
            Value()

    def test_the_four_arguments_of_the_sources(self, Value):
        a, b = Value(1.0), Value(2.0, label="b")
        v = Value(3.0, (a, b), "+", "sum")
        assert (v._prev, v._operands, v._op, v.label, b.label) == ({a, b}, (a, b), "+", "sum", "b")
        assert Value(1.0, _children=[a], _op="f")._operands == (a,)
        assert Value(1.0, {a, b}, "f")._prev == {a, b}
        assert Value(0.0, (a, b, a, b), "many")._operands == (a, b, a, b)

    def test_children_must_be_values_and_tags_strings(self, Value):
        with pytest.raises(TypeError, match="`_children` must be Values, got float"):
            Value(1.0, (2.0,))
        with pytest.raises(TypeError, match="`_op` must be a string, got int"):
            Value(1.0, (), 3)
        with pytest.raises(TypeError, match="`label` must be a string, got int"):
            Value(1.0, label=3)

    def test_a_second_init_starts_afresh(self, Value):
        a = Value(1.0)
        v = Value(2.0, (a,), "f", "v")
        v.__init__(5.0)
        assert (v.data, v._operands, v._op, v.label) == (5.0, (), "", "")


class TestAttributes:
    def test_data_and_grad_are_assignable_numbers(self, Value):
        v = Value(1.0)
        v.data -= 0.25
        v.grad = 3
        assert (v.data, v.grad) == (0.75, 3.0)
        assert type(v.grad) is float

    @pytest.mark.parametrize("name", ["data", "grad"])
    def test_nonsense_is_refused_and_nothing_changes(self, Value, name):
        v = Value(1.0)
        before = getattr(v, name)
        for nonsense in ("text", None, np.zeros(1), 1j):
            with pytest.raises(TypeError, match=f"`{name}` must be a real number"):
                setattr(v, name, nonsense)
        assert getattr(v, name) == before
        with pytest.raises(AttributeError):
            delattr(v, name)

    def test_label_and_tag_are_assignable_strings(self, Value):
        v = Value(1.0) + 2.0
        assert v._op == "+"
        v.label, v._op = "total", "plus"
        assert (v.label, v._op) == ("total", "plus")
        with pytest.raises(TypeError, match="`label` must be a string, got NoneType"):
            v.label = None

    def test_leaves_results_and_constants_take_attributes_like_any_object(self, Value):
        x = Value(2.0)
        for v in (x, x * 3.0, (x * 3.0)._operands[1], x.clip(0.0, 1.0), Value(6.0, (x,), "by hand", "label")):
            before = v.data, v._op, v.label, v._operands
            v.m = 0.0
            v.m += 0.5
            v._vis_color = "red"
            assert (v.m, vars(v)) == (0.5, {"m": 0.5, "_vis_color": "red"})
            del v.m
            assert not hasattr(v, "m")
            v.__dict__ = {"other": [v.data]}
            assert v.other == [v.data]
            with pytest.raises(AttributeError, match="no attribute 'nothing'"):
                v.nothing  # noqa: B018
            with pytest.raises(TypeError, match="__dict__ must be set to a dictionary"):
                v.__dict__ = 3
            assert before == (v.data, v._op, v.label, v._operands)

    def test_attributes_change_nothing_about_gradients_and_stay_after_a_second_init(self, Value):
        x = Value(2.0)
        y = x * x + x
        y.note, x.note = [y], {"x": x}
        y.backward()
        assert x.grad == 5.0
        x.__init__(1.0)
        assert x.note == {"x": x}

    def test_an_attribute_that_is_known_keeps_its_rules(self, Value):
        v = Value(1.0)
        for name, thing in (("data", [1]), ("grad", {}), ("label", ()), ("_backward", [])):
            with pytest.raises(TypeError):
                setattr(v, name, thing)
        for name in ("_operands", "_prev"):
            with contextlib.suppress(AttributeError):
                setattr(v, name, ())
        assert vars(v) == {}

    def test_weak_references(self, Value):
        x, gone = Value(2.0), []
        y = x * 3.0
        of_x, of_y = weakref.ref(x, lambda _: gone.append("x")), weakref.ref(y, lambda _: gone.append("y"))
        held = weakref.WeakKeyDictionary({x: "x", y: "y"})
        assert (of_x(), of_y(), held[y]) == (x, y, "y")
        z = y + 1.0
        del y
        assert of_y() is z._operands[0]
        del z
        assert (gone, of_y(), list(held.values())) == (["y"], None, ["x"])
        del x
        assert gone == ["y", "x"]

    @pytest.mark.skipif("native" not in ENGINES, reason="about the native engine")
    def test_a_node_takes_96_bytes_and_numbers_hung_on_it_are_no_work_for_the_collector(self):
        x = ENGINES["native"](2.0)
        y = x * 3.0
        assert sys.getsizeof(x) == sys.getsizeof(y) == 96
        x.m, x.name = 0.0, "x"
        assert not gc.is_tracked(x)
        x.history = []
        assert gc.is_tracked(x)

    @pytest.mark.slow
    def test_chains_of_attributes_are_no_deep_recursion(self, Value):
        x = Value(1.0)
        v, newest = x, Value(2.0)
        of_oldest = weakref.ref(newest)
        for _ in range(100_000):
            v = v + x
            v.note = (v.data,)
            older, newest = newest, Value(2.0)
            newest.older = older
        del v, older, newest
        assert of_oldest() is None

    def test_repr_shows_data_and_grad(self, Value):
        assert repr(Value(2)) == "Value(data=2.0, grad=0.0)"
        assert repr(Value(2, label="a")) == "Value(data=2.0, grad=0.0, label='a')"

    def test_format_reads_the_data(self, Value):
        assert f"{Value(math.pi):.4f}" == "3.1416"
        assert f"{Value(2.0)}" == str(Value(2.0)) == "Value(data=2.0, grad=0.0)"

    def test_tags_are_the_ops_symbols(self, Value):
        a, b = Value(2.0), Value(3.0)
        tags = [v._op for v in (a + b, a - b, a * b, a / b, a**b, -a, a.tanh(), a.relu())]
        assert tags == ["+", "-", "*", "/", "**", "neg", "tanh", "relu"]

    def test_operands_keep_order_and_repeats(self, Value):
        x, y = Value(1.0), Value(2.0)
        assert (x * x)._operands == (x, x)
        assert (x * x)._prev == {x}
        assert (y - x)._operands == (y, x)
        assert (1 - x)._operands[1] is x
        assert chainrule.where(x, y, 3.0)._operands[:2] == (x, y)

    def test_serials_count_creations(self, Value):
        a = Value(1.0)
        b = 2.0 * a
        assert a._serial < b._operands[0]._serial < b._serial

    def test_plain_numbers_become_constants(self, Value):
        a = Value(1.0)
        two, same = (2.0 * a)._operands
        assert two._constant
        assert not same._constant
        assert same is a


class TestArithmetic:
    def test_all_operators_and_their_reflected_forms(self, Value):
        a = Value(4.0)
        results = [a + 2, 2 + a, a - 2, 2 - a, a * 2, 2 * a, a / 2, 2 / a, a**2, 2**a, -a, +a, abs(-a)]
        assert [r.data for r in results] == [6, 6, 2, -2, 8, 8, 2, 0.5, 16, 16, -4, 4, 4]

    def test_pow_has_the_gradient_of_base_and_exponent(self, Value):
        base, exponent = Value(3.0), Value(2.0)
        (base**exponent).backward()
        assert base.grad == 6.0
        assert exponent.grad == 9.0 * math.log(3.0)

    def test_a_number_as_exponent_takes_no_gradient_and_makes_no_nan(self, Value):
        x = Value(-2.0)
        y = x**3
        y.backward()
        assert x.grad == 12.0
        assert y._operands[1].grad == 0.0

    def test_ieee_results_and_no_exceptions(self, Value):
        zero, one = Value(0.0), Value(1.0)
        assert (one / zero).data == math.inf
        assert (-one / zero).data == -math.inf
        assert math.isnan((zero / zero).data)
        assert zero.log().data == -math.inf
        assert math.isnan((-one).log().data)
        assert Value(1000.0).exp().data == math.inf
        assert math.isnan((Value(-8.0) ** 0.5).data)
        assert (Value(1e200) ** 3).data == math.inf
        assert (Value(-1e200) ** 3).data == -math.inf
        assert (zero**-1).data == math.inf
        assert (Value(-0.0) ** -1).data == -math.inf
        assert (Value(-0.0) ** -2).data == math.inf

    def test_sum_of_values(self, Value):
        values = [Value(float(k)) for k in range(5)]
        total = sum(values)
        total.backward()
        assert total.data == 10.0
        assert [v.grad for v in values] == [1.0] * 5

    @pytest.mark.parametrize("thing", ["a", None, [1.0], 1j, {}, object()])
    def test_arithmetic_with_something_else_is_a_type_error(self, Value, thing):
        for operation in (lambda v: v + thing, lambda v: thing - v, lambda v: v * thing, lambda v: v**thing):
            with pytest.raises(TypeError):
                operation(Value(1.0))

    def test_the_other_operand_may_know_how(self, Value):
        class Metres:
            def __radd__(self, other):
                return "metres"

        assert Value(1.0) + Metres() == "metres"

    def test_pow_with_a_modulus_is_a_type_error(self, Value):
        with pytest.raises(TypeError):
            pow(Value(2.0), 2, 3)

    def test_methods_take_operands_by_position_and_by_name(self, Value):
        v = Value(-2.0)
        assert v.leaky_relu().data == -0.02
        assert v.leaky_relu(0.5).data == v.leaky_relu(slope=0.5).data == -1.0
        assert v.clip(-1, 1).data == v.clip(low=-1, high=1).data == -1.0
        for call in (lambda: v.tanh(1), lambda: v.clip(1), lambda: v.clip(1, middle=2), lambda: v.exp(x=1)):
            with pytest.raises(TypeError, match="the call should look like"):
                call()

    def test_an_op_applied_to_the_wrong_number_of_operands_is_a_type_error(self, Value):
        for operands in ((), (Value(1.0), 2.0)):
            with pytest.raises(TypeError):
                Value._apply(ops.TABLE["tanh"], operands)

    def test_math_functions_refuse_a_value(self, Value):
        with pytest.raises(TypeError, match=r"chainrule\.exp\(v\).*v\.data"):
            math.exp(Value(1.0))
        with pytest.raises(TypeError, match=r"v\.data"):
            float(Value(1.0))


class TestComparison:
    def test_order_reads_the_data(self, Value):
        a, b = Value(1.0), Value(2.0)
        assert (a < b, a <= 1, b > a, b <= 3, a > b, a > 0.5) == (True, True, True, True, False, True)
        assert max([a, b]) is b
        assert not Value(math.nan) < 1
        with pytest.raises(TypeError):
            a < "x"  # noqa: B015

    def test_equality_and_hash_are_identity(self, Value):
        a, b = Value(1.0), Value(1.0)
        assert a == a
        assert a != b
        assert len({a, b, a}) == 2
        assert a in [b, a]
        assert a not in [b]

    def test_a_value_equals_the_plain_number_that_it_holds(self, Value):
        a = Value(2.0)
        assert (a == 2.0, a == 2, a == Fraction(2), a == 2.0, a == np.float32(2.0)) == (True,) * 5
        assert (a != 2.0, a == 2.5, a == 10**400, Value(math.nan) == math.nan) == (False,) * 4
        assert a != 10**400
        assert (a == "2", a == None, a == [2.0]) == (False,) * 3  # noqa: E711
        assert Value(1.0) == True  # noqa: E712
        assert [2.0, 3.0].index(a) == 0
        assert (np.array([a, Value(3.0)]) == 2.0).tolist() == [True, False]

    def test_truth_is_being_nonzero(self, Value):
        assert Value(0.5)
        assert not Value(0.0)


class TestBackward:
    def test_a_seed_scales_all_gradients(self, Value):
        a, b = Value(2.0), Value(3.0)
        (a * b).backward(10)
        assert (a.grad, b.grad) == (30.0, 20.0)
        (a * b).backward(seed=-10.0)
        assert (a.grad, b.grad) == (0.0, 0.0)
        with pytest.raises(TypeError, match="`seed` must be a real number"):
            (a * b).backward("1")

    def test_a_second_call_is_right(self, Value):
        x = Value(3.0)
        y = x * x
        z = y * y
        z.backward()
        assert (x.grad, y.grad, z.grad) == (108.0, 18.0, 1.0)
        z.backward()
        assert (x.grad, y.grad, z.grad) == (216.0, 18.0, 1.0)

    def test_a_part_can_go_first(self, Value):
        x = Value(3.0)
        y = x * x
        z = y * 2.0
        y.backward()
        z.backward()
        assert (x.grad, y.grad) == (18.0, 2.0)

    def test_backward_of_a_leaf_sets_its_gradient(self, Value):
        x = Value(3.0)
        x.backward()
        x.backward()
        assert x.grad == 1.0

    def test_what_no_gradient_reaches_is_left_alone(self, Value):
        """Behind a comparison the slope may be infinite, and 0 times infinity is NaN."""
        x = Value(0.0)
        ops.where(ops.gt(1 / x, 5.0), 2 * x, x).backward()
        assert x.grad == 2.0  # as PyTorch gives it
        for silent in (ops.rint, ops.sign, lambda v: ops.lt(v, 1.0), lambda v: ops.where(v, 1.0, 1.0)):
            x = Value(0.0)
            (silent(x.sqrt()) + 3.0 * x).backward()
            assert x.grad == 3.0

    def test_what_no_gradient_reaches_keeps_the_one_it_had(self, Value):
        x = Value(4.0)
        root = x.sqrt()
        (2.0 * root).backward()
        (ops.gt(root, 1.0) * x).backward()
        assert (root.grad, x.grad) == (2.0, 0.5 + 1.0)

    def test_a_users_op_may_have_operands_without_a_gradient(self, Value):
        row = ops.Op("second", lambda a, b: b, (None, lambda out, a, b: 1.0))
        x = Value(0.0)
        row(x.sqrt(), 3.0 * x).backward()
        assert x.grad == 3.0

    def test_a_backward_by_hand_reaches_all_operands(self, Value):
        x = Value(4.0)
        root, one = x.sqrt(), x * 1.0
        node = ops.gt(root, one)
        node._backward = lambda: setattr(root, "grad", root.grad + node.grad)
        node.backward()
        assert x.grad == 0.25

    def test_leaves_changed_after_building_are_read_at_backward(self, Value):
        a, b = Value(2.0), Value(3.0)
        c = a * b
        b.data = 5.0
        c.backward()
        assert (c.data, a.grad) == (6.0, 5.0)

    @pytest.mark.parametrize("gap", [10, 1_000, 400_000])
    def test_nodes_far_apart_in_age(self, Value, gap):
        x = Value(3.0)
        y = x * x
        for _ in range(gap):
            Value(0.0)
        z = (y + x) * y  # 2x³ ... (x² + x) x²
        z.backward()
        assert x.grad == 4 * 27 + 3 * 9

    def test_wide_sums(self, Value):
        x = Value(1.5)
        terms = [x * float(k) for k in range(1000)]
        sum(reversed(terms)).backward()
        assert x.grad == 499500.0

    @pytest.mark.slow
    def test_a_chain_of_a_million_nodes(self, Value):
        x = Value(1.0)
        v = x
        for _ in range(1_000_000):
            v = v + x
        v.backward()
        assert (v.data, x.grad) == (1_000_001.0, 1_000_001.0)
        del v

    def test_a_chain_too_deep_for_recursion(self, Value):
        x = Value(1.0)
        v = x
        for _ in range(50_000):
            v = v * x
        v.backward()
        assert x.grad == 50_001.0
        del v

    def test_comparisons_and_conditions_pass_no_gradient(self, Value):
        x = Value(2.0)
        chainrule.where(chainrule.gt(x, 1.0), 3.0 * x, x).backward()
        assert x.grad == 3.0


def cube_by_hand(Value, x):
    """An op in the manner of micrograd, written by hand."""
    out = Value(x.data**3, (x,), "cube")

    def _backward():
        x.grad += 3 * x.data**2 * out.grad

    out._backward = _backward
    return out


class TestHandWrittenBackward:
    def test_a_hand_written_op_takes_part(self, Value):
        x = Value(2.0)
        y = cube_by_hand(Value, x * 2) + x
        y.backward()
        assert (y.data, x.grad) == (66.0, 97.0)
        y.backward()
        assert x.grad == 194.0

    def test_backward_pieces_can_be_called_one_by_one(self, Value):
        # the lecture goes through the graph by hand like this
        a, b = Value(2.0), Value(-3.0)
        c = a * b
        d = c.tanh()
        d.grad = 1.0
        d._backward()
        c._backward()
        a._backward()  # a leaf's is a no-op
        t = math.tanh(-6.0)
        assert (c.grad, a.grad, b.grad) == (1 - t * t, -3.0 * (1 - t * t), 2.0 * (1 - t * t))

    def test_an_assigned_function_is_what_is_read_and_called(self, Value):
        calls = []
        v = Value(1.0) * 2.0
        v._backward = lambda: calls.append(v.grad)
        v._backward()
        v.backward()
        assert calls == [0.0, 1.0]
        with pytest.raises(TypeError, match="`_backward` must be callable"):
            v._backward = 3

    def test_a_closure_on_a_leaf_is_called(self, Value):
        calls = []
        leaf = Value(1.0)
        leaf._backward = lambda: calls.append(leaf.grad)
        (leaf * 5.0).backward()
        assert calls == [5.0]

    def test_a_node_made_by_hand_without_a_closure_stops_the_gradient(self, Value):
        x = Value(2.0)
        out = Value(4.0, (x,), "*")  # a tag never selects a rule
        (out * 3.0).backward()
        assert (out.grad, x.grad, out._rule) == (3.0, 0.0, None)

    def test_hand_written_ops_are_collected(self, Value):
        class Token:
            alive = 0

            def __init__(self):
                Token.alive += 1

            def __del__(self):
                Token.alive -= 1

        def build():
            token, x = Token(), Value(2.0)
            out = Value(4.0, (x,), "op")

            def _backward():
                x.grad += out.grad + 0 * id(token)

            out._backward = _backward
            total = out * 3.0 + x
            total.backward()
            return x.grad

        for _ in range(10):
            assert build() == 4.0
        gc.collect()
        assert Token.alive == 0

    @pytest.mark.slow
    @pytest.mark.skipif("native" not in ENGINES, reason="about the native engine")
    def test_large_graphs_in_small_cycles_do_not_pile_up(self):
        Value = ENGINES["native"]
        alive = set()

        class Token:
            def __init__(self):
                alive.add(id(self))

            def __del__(self):
                alive.discard(id(self))

        def build():
            token, x = Token(), Value(1.0)
            v = x
            for _ in range(20_000):
                v = v * x
            out = Value(v.data, (v,), "op")
            out._backward = lambda: (out, token)

        most = 0
        for _ in range(300):
            build()
            most = max(most, len(alive))
        assert most < 100

    def test_an_error_in_a_closure_comes_out_and_leaves_a_usable_graph(self, Value):
        x = Value(2.0)
        bad = Value(1.0, (x,), "bad")
        y = bad * x

        def _backward():
            raise RuntimeError("mine")

        bad._backward = _backward
        with pytest.raises(RuntimeError, match="mine"):
            y.backward()
        bad._backward = lambda: None
        x.grad = 0.0
        y.backward()
        assert x.grad == 1.0

    def test_a_closure_may_build_and_call_backward(self, Value):
        x, other = Value(2.0), Value(5.0)
        out = Value(8.0, (x,), "op")

        def _backward():
            (other * other).backward()
            x.grad += 12.0 * out.grad
            out._backward = lambda: None  # even this

        out._backward = _backward
        (out + 1.0).backward()
        assert (x.grad, other.grad) == (12.0, 10.0)

    def test_a_closure_may_rewrite_the_graph(self, Value):
        x = Value(2.0)
        inner = x * 3.0
        out = Value(6.0, (inner,), "op")
        holder = [out * 1.0]
        root = holder[0] * 1.0

        def _backward():
            holder.clear()
            inner.__init__(1.0)
            gc.collect()

        out._backward = _backward
        root.backward()
        assert x.grad == 0.0


class TestHostileUse:
    """What nobody should do, and what must not harm anything else."""

    def test_a_failed_init_leaves_the_node_as_it_was(self, Value):
        a = Value(1.0)
        z = chainrule.clip(a, Value(0.0), Value(2.0))
        for arguments in ((1.0, (), 5), (1.0, (3.0,)), ("x",), (1.0, (), "", 7)):
            with pytest.raises(TypeError):
                z.__init__(*arguments)
        z.backward()
        assert (z.data, a.grad) == (1.0, 1.0)

    def test_code_that_runs_while_operands_are_dropped(self, Value):
        class Noisy(Value):
            def __del__(self):
                z._push()

        z = Value(1.0) * Noisy(2.0)
        z.grad = 1e300
        bystanders = [Value(0.0) for _ in range(100)]
        z.__init__(5.0)
        assert all(v.grad == 0.0 for v in bystanders)
        assert z.data == 5.0

    def test_a_partial_that_rewrites_its_own_node(self, Value):
        def partial(out, x):
            y.__init__(0.0)
            y.grad = 1.0
            bystanders.extend(Value(0.0) for _ in range(100))
            return 1e300

        bystanders = []
        y = ops.Op("odd", lambda x: x, (partial,))(Value(2.0))
        y.backward()
        assert all(v.grad == 0.0 for v in bystanders)

    def test_a_changed_class(self, Value):
        class Plain(Value):
            __slots__ = ()

        class Collecting(Value):
            def __del__(self):
                gc.collect()

        a = Value(1.0)
        a.__class__ = Plain
        r = a * Collecting(2.0)
        del a, r

    def test_huge_numbers_of_operands(self, Value):
        leaves = [Value(1.0) for _ in range(1000)]
        node = Value(0.0, leaves, "many")
        node._backward = lambda: [setattr(v, "grad", 2.0) for v in leaves]
        (node * 1.0).backward()
        assert {v.grad for v in leaves} == {2.0}

    @pytest.mark.skipif("native" not in ENGINES, reason="about the native engine")
    def test_memory_running_out_in_backward_is_a_memory_error(self):
        testcapi = pytest.importorskip("_testcapi")
        Value = ENGINES["native"]
        for failing in range(12):
            x = Value(1.0)
            v = cube_by_hand(Value, x)
            for _ in range(2000):
                v = v * x
            v = cube_by_hand(Value, v)
            testcapi.set_nomemory(failing, failing + 1)
            try:
                v.backward()
            except MemoryError:
                pass
            finally:
                testcapi.remove_mem_hooks()
            x.grad = 0.0
            v.backward()
            assert x.grad == 6009.0


class TestCopies:
    def test_leaves_can_be_copied_and_pickled(self, Value):
        v = Value(2.0, label="v")
        v.grad = 3.0
        for copied in (copy.copy(v), copy.deepcopy(v)):
            assert (copied.data, copied.grad, copied.label) == (2.0, 3.0, "v")
            assert copied is not v
        if Value is chainrule.Value:
            assert repr(pickle.loads(pickle.dumps(v))) == repr(v)

    def test_a_computed_value_cannot_without_its_graph(self, Value):
        for way in (copy.copy, pickle.dumps):
            with pytest.raises(TypeError, match=r"cannot be pickled or copied by itself.*deepcopy.*\.data"):
                way(Value(1.0) * 2.0)

    def test_a_subclass_keeps_its_attributes(self, Value):
        class Named(Value):
            def __init__(self, name):
                super().__init__(1.5)
                self.name = name

        copied = copy.deepcopy(Named("w"))
        assert (type(copied), copied.name, copied.data) == (Named, "w", 1.5)

    def test_a_model_can_be_copied(self):
        model = chainrule.nn.MLP(2, [2, 1], rng=1)
        again = copy.deepcopy(model)
        assert again.state() == model.state()
        again.parameters()[0].data = 9.0
        assert again.state() != model.state()


class TestUserOps:
    @pytest.fixture
    def register(self, Value):
        def register(name, forward, *partials):
            row = ops.register(ops.Op(name, forward, partials))
            ops.attach(Value, row)
            return row

        return register

    def test_a_new_op_is_a_function_and_a_method(self, Value, register):
        cube = register("cube", lambda x: x * x * x, lambda out, x: 3.0 * x * x)
        x = Value(2.0)
        y = cube(x) + x.cube()
        y.backward()
        assert (cube(2), y.data, x.grad, y._operands[0]._op, y._operands[0]._rule) == (8.0, 16.0, 24.0, "cube", cube)

    def test_many_operands_defaults_and_missing_partials(self, Value, register):
        def forward(a, b, c, d, e=2.0):
            return a * b + c * d + e

        pick = [lambda out, a, b, c, d, e: b, None, lambda out, a, b, c, d, e: d, None, lambda out, *operands: 1.0]
        row = register("mix", forward, *pick)
        values = [Value(float(k)) for k in range(1, 5)]
        out = row(*values)
        out.backward()
        assert out.data == 16.0
        assert [v.grad for v in values] == [2.0, 0.0, 4.0, 0.0]

    def test_an_error_inside_a_rule_comes_out(self, Value, register):
        row = register("broken", lambda x: 1.0, lambda out, x: "text")
        x = Value(1.0)
        y = row(x)
        with pytest.raises(TypeError):
            y.backward()

    def test_an_error_inside_forward_comes_out(self, Value, register):
        def forward(x):
            raise LookupError("mine")

        row = register("failing", forward, None)
        with pytest.raises(LookupError, match="mine"):
            row(Value(1.0))


class TestSubclasses:
    def test_a_subclass_may_add_state_and_methods(self, Value):
        class Weight(Value):
            def __init__(self, data, name):
                super().__init__(data, label=name)
                self.history = []

            def nudge(self, amount):
                self.history.append(self.data)
                self.data += amount

        w = Weight(2.0, "w")
        w.nudge(1.0)
        y = w * w
        y.backward()
        assert (w.history, w.label, w.grad) == ([2.0], "w", 6.0)
        assert type(y) is Value
        assert isinstance(w, Value)

    def test_a_cycle_through_a_subclass_is_collected(self, Value):
        class Tagged(Value):
            alive = 0

            def __del__(self):
                Tagged.alive -= 1

        def build():
            v = Tagged(1.0)
            Tagged.alive += 1
            v.output = v * 2.0

        build()
        gc.collect()
        assert Tagged.alive == 0

    def test_a_subclass_may_define_backward_as_a_method(self, Value):
        class Square(Value):
            def __init__(self, x):
                super().__init__(x.data**2, (x,), "square")
                self.x = x

            def _backward(self):
                self.x.grad += 2 * self.x.data * self.grad

        x = Value(3.0)
        (Square(x) * 2).backward()
        assert x.grad == 12.0

    def test_methods_can_be_attached_to_the_class(self, Value):
        Value.double = lambda self: self + self
        try:
            x = Value(4.0)
            x.double().backward()
            assert x.grad == 2.0
        finally:
            del Value.double

    def test_a_method_of_the_class_can_be_replaced(self, Value):
        # as the lecture does with tanh, op by op
        original = Value.tanh

        def by_exp(self):
            e = (2 * self).exp()
            return (e - 1) / (e + 1)

        Value.tanh = by_exp
        try:
            x = Value(0.5)
            x.tanh().backward()
            assert x.grad == pytest.approx(1 - math.tanh(0.5) ** 2, rel=1e-14)
        finally:
            Value.tanh = original


class TestNumPy:
    def test_scalars_on_either_side(self, Value):
        v = Value(3.0)
        for scalar in (np.float64(2), np.int64(2), np.float32(2)):
            for result in (scalar * v, v * scalar):
                assert type(result) is Value
                assert result.data == 6.0
        assert type(np.float64(2) - v) is Value
        assert (np.float64(2) ** v).data == 8.0
        assert (np.int64(1) < v) is True or (np.int64(1) < v) == True  # noqa: E712

    def test_object_arrays(self, Value):
        a = np.array([Value(1.0), Value(2.0)])
        A = np.array([[Value(1.0), Value(2.0)], [Value(3.0), Value(4.0)]])
        assert a.dtype == object
        assert [v.data for v in np.exp(a)] == [math.exp(1.0), math.exp(2.0)]
        assert [v.data for v in A @ a] == [5.0, 11.0]
        assert [v.data for v in A @ np.array([1.0, 1.0])] == [3.0, 7.0]
        assert [v.data for v in a * 2 + 1] == [3.0, 5.0]
        assert [v.data for v in np.array([1.0, 2.0]) * Value(3.0)] == [3.0, 6.0]
        assert [v.data for v in Value(3.0) * np.array([1.0, 2.0])] == [3.0, 6.0]
        total = (A @ a).sum()
        total.backward()
        assert [v.grad for v in a] == [4.0, 6.0]

    @pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "cos", "tan", "arctan", "tanh", "log1p", "expm1"])
    def test_functions_of_object_arrays(self, Value, name):
        function = getattr(np, name)
        (result,) = function(np.array([Value(0.5)]))
        assert result.data == pytest.approx(function(0.5), rel=1e-15)

    def test_numpy_names_are_aliases(self, Value):
        half = np.array([Value(0.5)])
        assert np.arcsin(half)[0].data == math.asin(0.5)
        assert np.arccos(half)[0].data == math.acos(0.5)
        assert np.arctan2(half, half)[0].data == math.atan2(0.5, 0.5)
        assert np.absolute(-half)[0].data == np.fabs(-half)[0].data == 0.5
        assert np.power(half, 2)[0].data == 0.25
        assert np.arcsinh(half)[0].data == math.asinh(0.5)
        assert np.arctanh(half)[0].data == math.atanh(0.5)
        assert np.arccosh(half + 1.0)[0].data == math.acosh(1.5)
        assert np.hypot(half, half)[0].data == math.hypot(0.5, 0.5)
        assert np.degrees(half)[0].data == np.rad2deg(half)[0].data == math.degrees(0.5)
        assert np.radians(half)[0].data == np.deg2rad(half)[0].data == math.radians(0.5)
        assert np.fmod(-half, 0.3)[0].data == math.fmod(-0.5, 0.3)
        assert np.remainder(-half, 0.3)[0].data == (-half % 0.3)[0].data == -0.5 % 0.3

    def test_the_spread_of_an_object_array(self, Value):
        numbers = np.array([1.0, 4.0, 9.0, 2.5])
        for function, theirs in ((np.var, torch.var), (np.std, torch.std)):
            values, tensor = np.array([Value(x) for x in numbers]), torch.tensor(numbers, requires_grad=True)
            function(values).backward()
            theirs(tensor, correction=0).backward()
            assert function(values, axis=0).data == pytest.approx(function(numbers), rel=1e-15)
            assert [v.grad for v in values] == pytest.approx(tensor.grad.tolist(), rel=1e-12)

    def test_rounding_an_object_array(self, Value):
        values = np.array([Value(x) for x in (0.5, 1.5, -2.567, math.inf)])
        assert [v.data for v in np.round(values)] == [v.data for v in np.rint(values)] == [0.0, 2.0, -3.0, math.inf]
        assert [v.data for v in np.round(values, 2)] == [0.5, 1.5, -2.57, math.inf]
        assert np.round(Value(2.5)).data == Value(2.5).round().data == 2.0

    def test_angles_need_a_value_first(self, Value):
        # NumPy asks the first operand for its method, and a plain number has none
        values = np.array([Value(2.0), Value(3.0)])
        expected = [math.atan2(1.0, 2.0), math.atan2(1.0, 3.0)]
        assert [v.data for v in np.arctan2(Value(1.0), values)] == expected
        assert [v.data for v in np.arctan2(values * 0.0 + 1.0, values)] == expected
        assert [chainrule.atan2(1.0, v).data for v in values] == expected


class TestRemainder:
    @pytest.mark.parametrize(("a", "b"), [(5.0, 3.0), (-5.0, 3.0), (5.0, -3.0), (-5.0, -3.0), (6.0, -3.0), (0.7, 0.1)])
    def test_the_operator_on_either_side(self, Value, a, b):
        assert (Value(a) % Value(b)).data == (Value(a) % b).data == (a % Value(b)).data == a % b
        assert (np.float64(a) % Value(b)).data == a % b
        assert (Value(a) % Value(b))._op == "%"

    def test_by_0_it_is_nan(self, Value):
        assert math.isnan((Value(5.0) % 0).data)

    def test_in_place_and_with_what_is_no_number(self, Value):
        x = Value(7.0)
        x %= 4
        assert x.data == 3.0
        with pytest.raises(TypeError, match="unsupported operand"):
            x % "4"
        assert "%s" % x == repr(x)  # noqa: UP031

    def test_the_derivative_by_the_divisor_close_to_a_jump(self, Value):
        a, b = Value(math.nextafter(0.3, 0.0)), Value(0.1)  # the quotient rounds to 3, but b fits in only twice
        (a % b).backward()
        assert (a.grad, b.grad) == (1.0, -((a.data - math.fmod(a.data, b.data)) / b.data))
        assert b.grad == -2.0


def run(code, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


class TestEngineChoice:
    def test_the_environment_chooses(self):
        code = "import chainrule; print(chainrule.ENGINE, chainrule.Value.__module__)"
        assert run(code, CHAINRULE_ENGINE="python").stdout == "python chainrule.engine\n"
        if chainrule.ENGINE == "native":
            assert run(code, CHAINRULE_ENGINE="native").stdout == "native chainrule\n"
            assert run(code, CHAINRULE_ENGINE="").stdout == "native chainrule\n"

    def test_an_unknown_engine_is_an_error(self):
        assert "must be 'python' or 'native', got 'fast'" in run("import chainrule", CHAINRULE_ENGINE="fast").stderr

    HIDE_NATIVE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "chainrule._native":
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Hidden())
import chainrule
print(chainrule.ENGINE)
"""

    def test_without_the_native_engine_python_steps_in(self):
        assert run(self.HIDE_NATIVE, CHAINRULE_ENGINE="").stdout == "python\n"

    def test_asking_for_a_native_engine_that_is_not_built_is_an_error(self):
        error = run(self.HIDE_NATIVE, CHAINRULE_ENGINE="native").stderr
        assert "the native engine is not built" in error
        assert "pip install" in error

    @pytest.mark.skipif("native" not in ENGINES, reason="needs the native engine")
    def test_the_native_engine_works_when_the_python_one_is_chosen(self):
        code = "import chainrule._native as n; v = n.Value(1.0); print((v + v)._op, (-v).leaky_relu().data)"
        assert run(code, CHAINRULE_ENGINE="python").stdout == "+ -0.01\n"

    @pytest.mark.skipif(chainrule.ENGINE != "native", reason="needs the native engine")
    def test_a_native_engine_built_from_another_table_is_an_error(self):
        code = "import zlib\nzlib.crc32 = lambda data: 1\nimport chainrule"
        error = run(code, CHAINRULE_ENGINE="").stderr
        assert "built from another op table" in error
        assert "rebuild" in error

"""Frozen leaves, `no_grad()` and `detach`: on both engines, in threads, in compiled programs."""

import copy
import pickle
import re
import threading

import pytest

import chainrule
from chainrule import compiler, detach, engine, nn, no_grad, optim
from chainrule.core import node, recording


@pytest.fixture
def without_graph(Value):
    """`no_grad()` for whichever engine the test is run on."""

    class Without:
        def __enter__(self):
            self.before = self.record(False)

        def __exit__(self, *exception):
            self.record(self.before)

        record = staticmethod(node.record if Value is engine.Value else chainrule.core.value.record)

    return Without


class TestFrozenLeaves:
    def test_they_receive_no_gradient(self, Value):
        a, b = Value(2.0), Value(3.0)
        assert a.requires_grad
        a.requires_grad = False
        (a * b + a.exp() + a.maximum(b)).backward()
        assert (a.grad, b.grad) == (0.0, 3.0)
        a.requires_grad = True
        (a * b).backward()
        assert (a.grad, b.grad) == (3.0, 5.0)

    def test_nor_from_an_op_of_ones_own(self, Value):
        row = chainrule.ops.Op("scaled", lambda x, y: x * y, (lambda out, x, y: y, lambda out, x, y: x))
        a, b = Value(2.0), Value(3.0)
        a.requires_grad = False
        Value._apply(row, (a, b)).backward()
        assert (a.grad, b.grad) == (0.0, 2.0)

    def test_only_leaves_can_be_frozen(self, Value):
        out = Value(2.0) * 3.0
        with pytest.raises(ValueError, match=r"`requires_grad` is set on leaves, and Value\(data=6.0.* use detach\(\)"):
            out.requires_grad = False
        with pytest.raises(ValueError, match="`requires_grad` is set on leaves"):
            out._operands[1].requires_grad = True
        assert out.requires_grad
        assert not out._operands[1].requires_grad

    @pytest.mark.parametrize("wanted", ["x", 0, 1.0, None, []])
    def test_it_is_true_or_false(self, Value, wanted):
        a = Value(2.0)
        message = f"`requires_grad` must be True or False, got {wanted!r}: write one of them, or bool(...)"
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            a.requires_grad = wanted
        assert a.requires_grad

    def test_copies_and_pickles_stay_frozen(self, Value):
        a = Value(2.0, label="a")
        a.requires_grad = False
        for twin in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
            assert (twin.data, twin.label, twin.requires_grad) == (2.0, "a", False)
        assert copy.copy(Value(1.0)).requires_grad

    @pytest.mark.parametrize("compiled", [False, True])
    def test_an_optimizer_leaves_them_alone(self, compiled):
        points = chainrule.data.moons(n=10, seed=1)
        model = nn.MLP(2, [3, 1], activation="tanh", rng=1)
        for parameter in model.layers[0].parameters():
            parameter.requires_grad = False
        before = model.state()
        optimizer = optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
        chainrule.fit(
            model, chainrule.losses.hinge, points, optimizer=optimizer, epochs=3, compiled=compiled, progress=False
        )
        changed = {name.split(".")[1] for name, number in model.state().items() if number != before[name]}
        assert changed == {"1"}

    def test_compiled_and_eager_training_agree(self):
        states = []
        for compiled in (False, True):
            model = nn.MLP(2, [3, 1], activation="tanh", rng=1)
            model.layers[1].neurons[0].b.requires_grad = False
            optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            points = chainrule.data.moons(n=10, seed=1)
            chainrule.fit(
                model, chainrule.losses.hinge, points, optimizer=optimizer, epochs=5, compiled=compiled, progress=False
            )
            states.append([*model.state().values(), *optimizer.buffers["velocity"]])
        assert states[0] == pytest.approx(states[1], rel=1e-12)

    @pytest.mark.parametrize("strict", [False, True])
    def test_compiled_programs_pass_them_by(self, strict):
        a, b = chainrule.Value(2.0), chainrule.Value(3.0)
        a.requires_grad = False
        assert compiler.compile(a * a * b, strict=strict)() == 12.0
        assert compiler.compile(lambda x: a * a * b * x, wrt=[a, b], strict=strict)(1.0) == 12.0
        assert (a.grad, b.grad) == (0.0, 8.0)
        a.data = 3.0
        assert compiler.compile(a * b, strict=strict)() == 9.0


class TestNoGrad:
    def test_results_are_numbers_without_a_history(self, Value, without_graph):
        a, b = Value(2.0), Value(3.0)
        with without_graph():
            for out in (a * b, a + 1.0, -a, a.exp(), a.maximum(b), a.clip(0.0, 1.0), b**a):
                assert out._operands == ()
                assert out._op == ""
                assert not out.requires_grad
        assert (a * b)._operands == (a, b)

    def test_they_are_constants_to_what_follows(self, Value, without_graph):
        a = Value(2.0)
        with without_graph():
            b = a * a
        (a * b).backward()
        assert (a.grad, b.grad) == (4.0, 0.0)

    def test_nodes_made_by_hand(self, Value, without_graph):
        a = Value(2.0)
        with without_graph():
            out = Value(8.0, (a,), "cube")
            out._backward = lambda: pytest.fail("there is nothing to pass on")
        (out * a).backward()
        assert (out._prev, a.grad) == (frozenset(), 8.0)
        assert Value(1.0).requires_grad

    def test_it_nests_decorates_and_ends_with_an_error(self):
        w = chainrule.Value(3.0)

        @no_grad()
        def square():
            with no_grad():
                pass
            return w * w

        assert square()._operands == ()
        with pytest.raises(ZeroDivisionError), no_grad():
            1 / 0  # noqa: B018
        assert (w * w)._operands == (w, w)

    def test_other_threads_go_on(self):
        w, results = chainrule.Value(3.0), {}
        inside, done = threading.Event(), threading.Event()

        def work():
            inside.wait()
            results["there"] = (w * w)._operands
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        with no_grad():
            inside.set()
            done.wait()
            results["here"] = (w * w)._operands
        thread.join()
        assert results == {"there": (w, w), "here": ()}

    @pytest.mark.parametrize("strict", [False, True])
    def test_compiled_functions_can_be_called_in_it(self, strict):
        w = chainrule.Value(3.0)
        program = compiler.compile(lambda x: w * w * x + w, strict=strict)
        with no_grad():
            assert program(2.0) == 21.0
            assert compiler.compile(lambda x: (w * w).exp() * x, strict=True)(0.0) == 0.0
        w.data = 1.0
        assert program(2.0) == 3.0

    def test_not_in_a_traced_function(self):
        w = chainrule.Value(3.0)

        def loss(x):
            with no_grad():
                target = w * x
            return target * w

        with pytest.raises(compiler.TracingError, match=r"`with no_grad\(\):` enters `no_grad\(\)`.*chainrule.detach"):
            compiler.compile(loss)(2.0)

    def test_a_deep_graph_is_freed_at_once(self):
        with no_grad():
            x = chainrule.Value(1.0)
            for _ in range(100_000):
                x = x * 1.0
        assert x._operands == ()


class TestDetach:
    def test_values_and_numbers(self):
        x = chainrule.Value(3.0)
        (x * detach(x * x) + x.detach()).backward()
        assert x.grad == 9.0
        assert detach(2) == 2.0
        with pytest.raises(TypeError, match="`x` must be a real number, got str"):
            detach("2")

    @pytest.mark.parametrize("strict", [False, True])
    def test_compiled_it_is_computed_anew(self, strict):
        w = chainrule.Value(3.0)
        program = compiler.compile(lambda x: w * detach(w * x) + x.detach() + w.detach(), strict=strict)
        assert (program(2.0), w.grad) == (23.0, 6.0)
        w.data = 1.0
        assert program(2.0) == 5.0

    def test_in_a_transform(self):
        assert chainrule.grad(lambda x: x * detach(x))(3.0) == 3.0
        assert compiler.compile(chainrule.grad(lambda x: x * detach(x)))(3.0) == 3.0
        assert compiler.compile(chainrule.grad(chainrule.grad(lambda x: x * x * detach(x))))(3.0) == 6.0


def test_recording_can_be_turned_on_again_inside():
    w = chainrule.Value(3.0)
    with no_grad():
        assert not recording.is_recording()
        with recording.recording():
            assert (w * w)._operands == (w, w)
        assert (w * w)._operands == ()
    assert recording.is_recording()

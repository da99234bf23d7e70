"""A learner's own class, in any style, becomes a WebAssembly module that computes and differentiates as it does."""

import math

import pytest

from chainrule import closures
from chainrule.learn.own_module import gradient_of, graph_of, module_of
from wasm_host import Host


@pytest.fixture(scope="module")
def host():
    host = Host()
    yield host
    host.close()


class Number:
    """A class of another style: a list in place of a set, numbers that are not wrapped, other signs and names."""

    def __init__(self, data, parents=(), how=""):
        self.data, self.grad, self._prev, self._op = data, 0.0, list(parents), how
        self._backward = lambda: None

    def binary(self, other, data, how, left, right):
        parents = [self, other] if isinstance(other, Number) else [self]
        out = Number(data, parents, how)

        def push():
            self.grad += left * out.grad
            if isinstance(other, Number):
                other.grad += right * out.grad

        out._backward = push
        return out

    def number(self, other):
        return other.data if isinstance(other, Number) else other

    def __add__(self, other):
        return self.binary(other, self.data + self.number(other), "+", 1.0, 1.0)

    def __sub__(self, other):
        return self.binary(other, self.data - self.number(other), "-", 1.0, -1.0)

    def __mul__(self, other):
        return self.binary(other, self.data * self.number(other), "*", self.number(other), self.data)

    def __pow__(self, power):
        out = Number(self.data**power, [self], f"**{power}")  # as in micrograd

        def push():
            self.grad += power * self.data ** (power - 1) * out.grad

        out._backward = push
        return out

    def relu(self):
        out = Number(max(0.0, self.data), [self], "ReLU")

        def push():
            self.grad += (out.data > 0) * out.grad

        out._backward = push
        return out

    def backward(self):
        order, seen = [], []

        def visit(node):
            if node not in seen:
                seen.append(node)
                for parent in node._prev:
                    visit(parent)
                order.append(node)

        visit(self)
        self.grad = 1.0
        for node in reversed(order):
            node._backward()


def check(host, loss, inputs, parameters):
    """The module gives the class's own loss and gradient, and so do the op table's rules."""
    loss.backward()
    own = [parameter.grad for parameter in parameters]
    ran = host.run(module_of(loss, inputs=inputs, parameters=parameters))
    assert ran.mean == pytest.approx([loss.data], rel=1e-13)
    assert ran.gradient == pytest.approx(own, rel=1e-12, abs=1e-15)
    assert gradient_of(graph_of([loss], inputs, parameters)) == pytest.approx(own, rel=1e-12, abs=1e-15)


def test_the_class_of_the_lessons(host):
    w, b, x = closures.Value(0.5), closures.Value(-0.25), closures.Value(2.0)
    h = (w * x + b).tanh()
    check(host, (h / (h + 3.0)) ** 2 + h.exp().log() * h + (1.0 - w).relu(), [x], [w, b])


def test_a_class_of_another_style(host):
    a, b, x = Number(3.0), Number(3.0), Number(-2.0)
    assert (a - b).data == 0.0  # from its number alone one could not tell a - b from b - a
    check(host, (a - b) * x + (a * a + b * 2 - 1.5) ** 3 + (x * a).relu() + (b * b).relu(), [x], [a, b])


@pytest.mark.parametrize("exponent", [-1, 2, 0.5, 3])
def test_powers_of_one(exponent, host):
    x = closures.Value(1.0)  # any exponent gives 1
    check(host, x**exponent * 3.0, [], [x])


def test_a_long_chain_needs_no_recursion():
    x = total = closures.Value(1.0)
    for _ in range(5000):
        total = total + x
    assert gradient_of(graph_of([total], [], [x])) == [5001.0]


def test_rows_are_examples(host):
    w, x, y = closures.Value(2.0), closures.Value(0.0), closures.Value(0.0)
    module = module_of((w * x - y) ** 2, inputs=[x, y], parameters=[w])
    ran = host.run(module, [[1.0, 1.0], [2.0, 5.0]])
    assert (ran.results, ran.mean, ran.gradient) == ([1.0, 1.0], [1.0], [-1.0])


@pytest.mark.parametrize(("tag", "data"), [("tanh", 0.5), ("gamma", 1.0), ("", 3.0)])
def test_an_op_that_is_not_what_it_says(tag, data):
    x = closures.Value(0.3)
    node = closures.Value(data, (x,), tag)
    with pytest.raises(ValueError, match="that is no op that can be compiled"):
        graph_of([node * 1.0], [], [x])


def test_an_approximate_tanh_is_a_tanh(host):
    x = closures.Value(0.3)
    e = math.exp(0.6)
    node = closures.Value((e - 1) / (e + 1), (x,), "tanh")

    def push():
        x.grad += (1 - node.data**2) * node.grad

    node._backward = push
    check(host, node * 2.0, [], [x])


def test_numbers_in_a_closure_are_not_taken_for_operands(host):
    """A learner may keep what the closure needs in variables, and the exponent nowhere."""

    class Own(closures.Value):
        def __mul__(self, other):
            other = other if isinstance(other, closures.Value) else Own(other)
            a, b = self.data, other.data
            out = Own(a * b, (self, other), "*")

            def push():
                self.grad += b * out.grad
                other.grad += a * out.grad

            out._backward = push
            return out

        def __pow__(self, exponent):
            out, slope = Own(self.data**exponent, (self,), "**"), exponent * self.data ** (exponent - 1)

            def push():
                self.grad += slope * out.grad

            out._backward = push
            return out

    w, x = Own(3.0), Own(3.0)
    check(host, w * w * x + (x * x), [x], [w])
    ran = host.run(module_of(w * (x * x), inputs=[x], parameters=[w]), [[3.0], [5.0]])
    assert ran.results == [27.0, 75.0]
    for base, exponent in ((1.0, -1), (2.0, 3), (4.0, 0.5)):
        v = Own(base)
        check(host, v**exponent * 1.0, [], [v])

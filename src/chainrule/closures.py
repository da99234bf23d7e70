"""Value as a learner builds it: every op carries its own `_backward` closure.

This is the class at the end of the lessons, written in the manner of micrograd. It agrees with the engine on
every figure, and it is slower and shallower on purpose: each closure holds its node in a reference cycle, and
the recursive sort stops at Python's recursion limit. Read it to understand; use `chainrule.Value` to work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable


class Value:
    """A number that remembers how it was made.

    >>> x = Value(3.0)
    >>> (x * x).backward()
    >>> x.grad
    6.0
    """

    def __init__(self, data: float, _children: Iterable[Value] = (), _op: str = "", label: str = "") -> None:
        self.data = data
        self.grad = 0.0
        self._prev = set(_children)
        self._op = _op
        self._backward: Callable[[], None] = lambda: None
        self.label = label

    def __add__(self, other: Value | float) -> Value:
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data + other.data, (self, other), "+")

        def _backward() -> None:
            self.grad += out.grad
            other.grad += out.grad

        out._backward = _backward
        return out

    def __mul__(self, other: Value | float) -> Value:
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data * other.data, (self, other), "*")

        def _backward() -> None:
            self.grad += other.data * out.grad
            other.grad += self.data * out.grad

        out._backward = _backward
        return out

    def __pow__(self, other: Value | float) -> Value:
        exponent = other.data if isinstance(other, Value) else other
        children = (self, other) if isinstance(other, Value) else (self,)
        out = Value(self.data**exponent, children, "**")

        def _backward() -> None:
            self.grad += exponent * self.data ** (exponent - 1) * out.grad
            if isinstance(other, Value):
                other.grad += out.data * math.log(self.data) * out.grad

        out._backward = _backward
        return out

    def tanh(self) -> Value:
        t = math.tanh(self.data)
        out = Value(t, (self,), "tanh")

        def _backward() -> None:
            self.grad += (1 - t**2) * out.grad

        out._backward = _backward
        return out

    def exp(self) -> Value:
        out = Value(math.exp(self.data), (self,), "exp")

        def _backward() -> None:
            self.grad += out.data * out.grad

        out._backward = _backward
        return out

    def log(self) -> Value:
        out = Value(math.log(self.data), (self,), "log")

        def _backward() -> None:
            self.grad += 1 / self.data * out.grad

        out._backward = _backward
        return out

    def relu(self) -> Value:
        out = Value(self.data if self.data > 0 else 0.0, (self,), "relu")

        def _backward() -> None:
            self.grad += (out.data > 0) * out.grad

        out._backward = _backward
        return out

    def backward(self) -> None:
        """Set every grad below this node, each node passing on only when its own grad is complete."""
        order: list[Value] = []
        visited: set[Value] = set()

        def visit(node: Value) -> None:
            if node not in visited:
                visited.add(node)
                for child in node._prev:
                    visit(child)
                order.append(node)

        visit(self)
        self.grad = 1.0
        for node in reversed(order):
            node._backward()

    # Minus and divide are made of plus, times and power: their backward is free.

    def __neg__(self) -> Value:
        return self * -1

    def __sub__(self, other: Value | float) -> Value:
        return self + -other

    def __truediv__(self, other: Value | float) -> Value:
        return self * other**-1

    def __radd__(self, other: float) -> Value:  # other + self
        return self + other

    def __rsub__(self, other: float) -> Value:  # other - self
        return -self + other

    def __rmul__(self, other: float) -> Value:  # other * self
        return self * other

    def __rtruediv__(self, other: float) -> Value:  # other / self
        return self**-1 * other

    def __rpow__(self, other: float) -> Value:  # other ** self
        return Value(other) ** self

    def __repr__(self) -> str:
        return f"Value(data={self.data}, grad={self.grad})"

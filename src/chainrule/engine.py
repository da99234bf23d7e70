"""The whole idea, in plain Python: a number that remembers where it came from.

A `Value` holds a number, the operands that produced it and the row of the op table that did. Arithmetic on Values
builds a graph. `backward()` walks it from the result to the leaves and applies the chain rule once per edge:

    operand.grad += node.grad * partial(node.data, *operands' data)

What else a Value can do (be printed, compared, copied, watched) it has from `Node`, in `core/node.py`. The native
engine, `native/engine.c`, is this class again in C; one set of tests holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat

from chainrule import ops
from chainrule.core.node import FOLLOWS, Node, forgets, hooks, read, serial_numbers, text
from chainrule.ops import Op, as_float

if TYPE_CHECKING:
    from chainrule._signatures import OpMethods
else:
    OpMethods = ops.Carrier


class Value(Node, OpMethods):
    """A number with a gradient.

    >>> a, b = Value(2.0), Value(-3.0)
    >>> (a * b + 10).backward()
    >>> a.grad, b.grad
    (-3.0, 2.0)
    """

    __slots__ = (
        "_closure",  # a hand-written backward, or None
        "_constant",  # a plain number that met a Value: it takes no gradient
        "_data",
        "_grad",
        "_op",  # a short tag for people; never selects a rule
        "_operands",  # in order, with repeats: x*x has (x, x)
        "_rule",  # the row of the op table that made this node; None for a leaf or a hand-made node
        "_serial",  # counts creations: a node is always younger than its operands
        "_takes_gradient",  # False for constants and frozen leaves
    )

    __array_priority__ = -1.0  # NumPy scalars leave arithmetic to Value; NumPy arrays go element by element

    # Making nodes.

    def __init__(self, data: SupportsFloat, _children: Iterable[Value] = (), _op: str = "", label: str = "") -> None:
        children = tuple(_children)
        for child in children:
            if not isinstance(child, Value):
                raise TypeError(f"`_children` must be Values, got {type(child).__name__}: wrap numbers in Value(...)")
        number, tag, name = as_float(data), text(_op, "_op"), text(label, "label")
        kept = not (children and forgets())
        self._fill(number, tag, children if kept else (), None, takes_gradient=kept)
        self._label = name
        if children and hooks.node_observer:
            hooks.node_observer(self)

    @staticmethod
    def _apply(rule: Op, operands: tuple[Any, ...]) -> Value:
        """The node `rule(*operands)`; plain numbers among the operands become constants."""
        nodes = tuple([o if isinstance(o, Value) else _constant(o) for o in operands])
        data = rule.forward(*[node._data for node in nodes])
        if type(data) is not float:
            data = as_float(data, "the op's result")
        node = Value.__new__(Value)
        if hooks.threads_without_graph and forgets():
            for operand in nodes:
                read(operand)  # its number, which nothing will lead back to
            node._fill(data, "", (), None, takes_gradient=False)
            return node
        node._fill(data, rule.symbol, nodes, rule)
        if hooks.node_observer:
            hooks.node_observer(node)
        return node

    def _fill(
        self, data: float, tag: str, operands: tuple[Value, ...], rule: Op | None, takes_gradient: bool = True
    ) -> None:
        self._rule = rule
        self._data = data
        self._grad = 0.0
        self._operands = operands
        self._op = tag
        self._closure: Callable[[], object] | None = None
        self._constant = False
        self._takes_gradient = takes_gradient
        self._looks = None
        for operand in operands:
            if operand._looks is not None and (operand._looks.follows_read or operand._looks.read_at is not None):
                self._looks = FOLLOWS
        self._serial = next(serial_numbers)
        self._label = ""

    # The backward pass.

    def backward(self, seed: SupportsFloat = 1.0) -> None:
        """Set `grad` of every node that the gradient reaches to the derivative of this one, times `seed`.

        Leaves accumulate: the new gradient is added to what they hold, until someone sets it to zero. The nodes in
        between start again from zero, so a second call is right too. What no gradient reaches, such as the operands of
        a comparison, is left alone.

        >>> x = Value(3.0)
        >>> (x * x).backward()
        >>> x.grad
        6.0
        """
        seed = as_float(seed, "seed")
        if hooks.pass_observer and hooks.pass_observer(self, seed):
            return
        newest_first = sorted(self._interior(), key=lambda node: node._serial, reverse=True)
        for node in newest_first:
            node._grad = 0.0
        self._grad = seed
        for node in newest_first:
            node._backward()

    def _interior(self) -> set[Value]:
        """This node and every node that its gradient reaches, except those that pass nothing on."""
        found, pending = {self}, [self]
        while pending:
            for operand in pending.pop()._receivers:
                if operand not in found and (operand._operands or operand._closure is not None):
                    found.add(operand)
                    pending.append(operand)
        return found

    @property
    def _receivers(self) -> Sequence[Value]:
        """The operands that this node passes a gradient to: a comparison, for one, passes none."""
        if self._closure is not None or self._rule is None or None not in self._rule.partials:
            return self._operands
        return [operand for operand, partial in zip(self._operands, self._rule.partials, strict=True) if partial]

    @property
    def _backward(self) -> Callable[[], object]:
        """Pushes this node's gradient into its operands. Assign a function to write an op by hand."""
        return self._push if self._closure is None else self._closure

    @_backward.setter
    def _backward(self, closure: Callable[[], object]) -> None:
        if not callable(closure):
            raise TypeError(f"`_backward` must be callable without arguments, got {type(closure).__name__}")
        if self._takes_gradient:  # otherwise it was made inside `no_grad()`, and has nothing to pass on
            self._closure = closure

    def _push(self) -> None:
        if self._rule is None:
            return
        numbers = [operand._data for operand in self._operands]
        for operand, partial in zip(self._operands, self._rule.partials, strict=True):
            if partial and operand._takes_gradient:
                operand._grad += self._grad * partial(self._data, *numbers)

    @staticmethod
    def _operate(rule: Op, operands: tuple[Any, ...]) -> Value:
        """What the operators do, which are Carrier's. Every op of the table is a method too: see the last lines."""
        try:
            return Value._apply(rule, operands)
        except TypeError:  # not a number: let the other operand try
            return NotImplemented  # type: ignore[no-any-return]


def _constant(number: Any) -> Value:
    node = Value.__new__(Value)
    node._fill(as_float(number, "operand"), "", (), None, takes_gradient=False)
    node._constant = True
    return node


for _row in ops.TABLE.values():
    ops.attach(Value, _row)

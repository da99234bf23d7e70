"""The whole idea, in plain Python: a number that remembers where it came from.

A `Value` holds a number, the operands that produced it and the op-table row that did it. Arithmetic on
Values builds a graph; `backward()` walks it from the result to the leaves and applies the chain rule once
per edge:

    operand.grad += node.grad * partial(node.data, *operands' data)

The native engine (`native/engine.c`) is this class again, in C; one set of tests holds the two together.
"""

from __future__ import annotations

import copyreg
import math
import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from chainrule import ops
from chainrule.core.copies import attributes_of, deepcopy, hang
from chainrule.ops import Op, as_float

if TYPE_CHECKING:
    from chainrule._signatures import OpMethods
else:
    OpMethods = object

_serial_numbers = count()
_equality: Callable[[Any, Any], bool | None] | None = None  # while a function is transformed: says what `==` gives
_watcher: Callable[..., Any] | None = None  # while a function is traced: told of every look at a number
_node_observer: Callable[[Any], object] | None = None  # told of every node that is made
_pass_observer: Callable[[Any, float], object] | None = None  # told of every backward pass, which it may see to
_threads_without_graph = 0  # inside `no_grad()`; only if there are any, ops ask whether this thread is one


class _Thread(threading.local):
    records = True


_this_thread = _Thread()
_counting = threading.RLock()


class Value(OpMethods):
    """A number with a gradient.

    >>> a, b = Value(2.0), Value(-3.0)
    >>> (a * b + 10).backward()
    >>> a.grad, b.grad
    (-3.0, 2.0)
    """

    __slots__ = (
        "__dict__",  # attributes of the user's own
        "__weakref__",
        "_closure",  # a hand-written backward, or None
        "_compared",  # whether `<` or `if` has read it itself: it may have been chosen among others
        "_constant",  # a plain number that met a Value: it takes no gradient
        "_data",
        "_follows_read",  # made of operands that were read before, or of such nodes
        "_grad",
        "_label",
        "_op",  # a short tag for people; never selects a rule
        "_operands",  # in order, with repeats: x*x has (x, x)
        "_read_at",  # None, or the serial number from which on nodes follow a look at this number, or at one made of it
        "_rule",  # the row of the op table that made this node; None for a leaf or a hand-made node
        "_serial",  # counts creations: a node is always younger than its operands
        "_takes_gradient",  # False for constants, and for leaves whose `requires_grad` is
        "_written_at",  # None, or the serial number that was due when `.data` was last assigned
    )

    __array_priority__ = -1.0  # NumPy scalars leave arithmetic to Value; NumPy arrays go element by element

    def __init__(self, data: Any, _children: Iterable[Value] = (), _op: str = "", label: str = "") -> None:
        children = tuple(_children)
        for child in children:
            if not isinstance(child, Value):
                raise TypeError(f"`_children` must be Values, got {type(child).__name__}: wrap numbers in Value(...)")
        number, tag, name = as_float(data), _text(_op, "_op"), _text(label, "label")
        forgets = bool(children) and _threads_without_graph > 0 and not _this_thread.records
        self._rule: Op | None = None
        self._data = number
        self._grad = 0.0
        self._operands = () if forgets else children
        self._op = tag
        self._closure: Callable[[], object] | None = None
        self._constant = False
        self._takes_gradient = not forgets
        self._read_at: int | None = None
        self._written_at: int | None = None
        self._compared = False
        self._follows_read = _is_read(self._operands)
        self._serial = next(_serial_numbers)
        self._label = name
        if children and _node_observer:
            _node_observer(self)

    @staticmethod
    def _apply(rule: Op, operands: tuple[Any, ...]) -> Value:
        """The node `rule(*operands)`; plain numbers among the operands become constants."""
        nodes = tuple([o if isinstance(o, Value) else _constant(o) for o in operands])
        data = as_float(rule.forward(*[node._data for node in nodes]), "the op's result")
        if _threads_without_graph and not _this_thread.records:
            for operand in nodes:
                _read(operand)
            return _node(data, "", (), None, takes_gradient=False)
        node = _node(data, rule.symbol, nodes, rule)
        if _node_observer:
            _node_observer(node)
        return node

    # The backward pass.

    def backward(self, seed: float = 1.0) -> None:
        """Set `grad` of every node below to the derivative of this one, times `seed`.

        Leaves accumulate: their new gradient is added to what they hold, until someone sets it to zero. The
        nodes in between start again from zero, so a second call is right too.

        >>> x = Value(3.0)
        >>> (x * x).backward()
        >>> x.grad
        6.0
        """
        seed = as_float(seed, "seed")
        if _pass_observer and _pass_observer(self, seed):
            return
        newest_first = sorted(self._interior(), key=lambda node: node._serial, reverse=True)
        for node in newest_first:
            node._grad = 0.0
        self._grad = seed
        for node in newest_first:
            node._backward()

    def _interior(self) -> set[Value]:
        """This node and every node it depends on, less those that pass nothing on."""
        found, pending = {self}, [self]
        while pending:
            for operand in pending.pop()._operands:
                if operand not in found and (operand._operands or operand._closure is not None):
                    found.add(operand)
                    pending.append(operand)
        return found

    @property
    def _backward(self) -> Callable[[], object]:
        """Pushes this node's gradient into its operands. Assign a function to write an op by hand."""
        return self._push if self._closure is None else self._closure

    @_backward.setter
    def _backward(self, closure: Callable[[], object]) -> None:
        if not callable(closure):
            raise TypeError(f"`_backward` must be callable without arguments, got {type(closure).__name__}")
        if self._takes_gradient:  # else it was made inside `no_grad()`, and has nothing to pass on
            self._closure = closure

    def _push(self) -> None:
        if self._rule is None:
            return
        numbers = [operand._data for operand in self._operands]
        for operand, partial in zip(self._operands, self._rule.partials, strict=True):
            if partial and operand._takes_gradient:
                operand._grad += self._grad * partial(self._data, *numbers)

    # What a Value shows.

    @property
    def data(self) -> float:
        """The number."""
        if _watcher and not self._constant:
            _watcher("reads `.data` of a Value")
        _read(self)
        return self._data

    @data.setter
    def data(self, number: Any) -> None:
        self._data = as_float(number, "data")
        self._read_at, self._written_at = None, next(_serial_numbers)  # nobody has read this one yet

    @property
    def _read(self) -> bool:
        """Whether somebody has read this number, or one made of it."""
        return self._read_at is not None

    @property
    def grad(self) -> float:
        """The derivative of whatever `backward()` was called on, with respect to this number."""
        if _watcher:
            _watcher("reads `.grad` of a Value")
        return self._grad

    @grad.setter
    def grad(self, number: Any) -> None:
        self._grad = as_float(number, "grad")

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are collected here. Set it to False on a leaf to freeze it: `backward()` passes it by."""
        return self._takes_gradient

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if self._operands or self._closure is not None or self._constant:
            raise ValueError(f"`requires_grad` is set on leaves, and {self!r} is none: use detach() to cut it off")
        self._takes_gradient = bool(wanted)

    @property
    def label(self) -> str:
        """A name for people, shown in `repr` and in drawings."""
        return self._label

    @label.setter
    def label(self, text: str) -> None:
        self._label = _text(text, "label")

    @property
    def _prev(self) -> frozenset[Value]:
        """The operands as a set."""
        return frozenset(self._operands)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._operands or self._closure is not None:
            raise TypeError(
                "a Value that was computed cannot be pickled or copied by itself, because it stands for its graph: "
                "use copy.deepcopy, or take its .data"
            )
        if _watcher:
            _watcher("copies a Value")
        state = self._data, self._grad, self._label, attributes_of(self), self._takes_gradient
        return copyreg.__newobj__, (type(self),), state  # type: ignore[attr-defined]

    def __setstate__(self, state: tuple[float, float, str, Any, bool]) -> None:
        """Of a copy, made without its `__init__`, which in a subclass may want other arguments."""
        data, grad, label, attributes, takes_gradient = state
        Value.__init__(self, data, label=label)
        self.grad, self._takes_gradient = grad, bool(takes_gradient)
        hang(self, attributes)

    __deepcopy__ = deepcopy

    def _copy_to(self, twin: Value, operands: tuple[Value, ...]) -> None:
        """Make `twin` what this node is, with other operands."""
        if _watcher:
            _watcher("copies a Value")
        if self._closure is not None:
            raise TypeError(
                "a Value with a `_backward` of its own cannot be copied, because that function would go on with the "
                "Values it knows: build the graph again from copied leaves"
            )
        for name in _COPIED:
            setattr(twin, name, getattr(self, name))
        twin._operands, twin._serial = operands, next(_serial_numbers)
        twin._read_at, twin._written_at, twin._compared = None, None, False  # nobody has read the copy

    def __repr__(self) -> str:
        label = f", label={self._label!r}" if self._label else ""
        return f"Value(data={self._data!r}, grad={self._grad!r}{label})"

    def __format__(self, spec: str) -> str:
        return format(self._data, spec) if spec else repr(self)

    def __float__(self) -> float:
        if _watcher:
            _watcher("turns a Value into a float")
        raise TypeError(
            "a Value does not turn into a float by itself, because its gradient would be lost: "
            "use chainrule's functions (chainrule.exp(v) for math.exp(v)), or v.data for the bare number"
        )

    def __bool__(self) -> bool:
        if _watcher:
            _watcher("branches on a Value")
        self._compared = True
        _read(self)
        return self._data != 0.0

    # Comparisons read the data. But two Values are equal if they are the same node, since people keep them in lists.

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Value):
            return _compare(ops.eq, self, other)
        equal = _equality(self, other) if _equality else None
        return NotImplemented if equal is None else equal

    def __ne__(self, other: Any) -> bool:
        if not isinstance(other, Value):
            return _compare(ops.ne, self, other)
        equal = _equality(self, other) if _equality else None
        return NotImplemented if equal is None else not equal

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> bool:
        return _compare(ops.lt, self, other)

    def __le__(self, other: Any) -> bool:
        return _compare(ops.le, self, other)

    def __gt__(self, other: Any) -> bool:
        return _compare(ops.gt, self, other)

    def __ge__(self, other: Any) -> bool:
        return _compare(ops.ge, self, other)

    # Arithmetic.

    def __add__(self, other: Any) -> Value:
        return _binary(ops.add, self, other)

    def __radd__(self, other: Any) -> Value:  # other + self
        return _binary(ops.add, other, self)

    def __sub__(self, other: Any) -> Value:
        return _binary(ops.sub, self, other)

    def __rsub__(self, other: Any) -> Value:  # other - self
        return _binary(ops.sub, other, self)

    def __mul__(self, other: Any) -> Value:
        return _binary(ops.mul, self, other)

    def __rmul__(self, other: Any) -> Value:  # other * self
        return _binary(ops.mul, other, self)

    def __truediv__(self, other: Any) -> Value:
        return _binary(ops.div, self, other)

    def __rtruediv__(self, other: Any) -> Value:  # other / self
        return _binary(ops.div, other, self)

    def __mod__(self, other: Any) -> Value:
        return _binary(ops.mod, self, other)

    def __rmod__(self, other: Any) -> Value:  # other % self
        return _binary(ops.mod, other, self)

    def __pow__(self, other: Any) -> Value:
        return _binary(ops.pow_, self, other)

    def __rpow__(self, other: Any) -> Value:  # other ** self
        return _binary(ops.pow_, other, self)

    def __neg__(self) -> Value:
        return self._apply(ops.neg, (self,))

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return self._apply(ops.abs_, (self,))

    def conjugate(self) -> Value:
        """This Value itself, as of every real number: NumPy's `var` and `std` ask for it."""
        return self


_COPIED = [name for name in Value.__slots__ if name[:2] != "__" and name not in ("_operands", "_serial")]


def _node(data: float, tag: str, operands: tuple[Value, ...], rule: Op | None, takes_gradient: bool = True) -> Value:
    node = Value.__new__(Value)
    node._data = data
    node._grad = 0.0
    node._operands = operands
    node._op = tag
    node._rule = rule
    node._closure = None
    node._constant = False
    node._takes_gradient = takes_gradient
    node._read_at = node._written_at = None
    node._compared = False
    node._follows_read = _is_read(operands)
    node._serial = next(_serial_numbers)
    node._label = ""
    return node


def _constant(number: Any) -> Value:
    node = _node(as_float(number, "operand"), "", (), None, takes_gradient=False)
    node._constant = True
    return node


def _binary(rule: Op, left: Any, right: Any) -> Value:
    try:
        return Value._apply(rule, (left, right))
    except TypeError:  # not a number: let the other operand try
        return NotImplemented  # type: ignore[no-any-return]


def _compare(rule: Op, left: Value, right: Any) -> bool:
    if _watcher and (condition := _watcher(rule, left, right)) is not None:
        return condition  # type: ignore[no-any-return]
    try:
        number = right._data if isinstance(right, Value) else as_float(right)
    except TypeError:
        return NotImplemented  # type: ignore[no-any-return]
    except OverflowError:  # an int that no float equals
        if rule not in (ops.eq, ops.ne):
            raise
        number = math.nan
    for node in (left, right):
        if isinstance(node, Value):
            node._compared = True
            _read(node)
    return bool(rule.forward(left._data, number))


def _read(number: Value) -> None:
    """Note that somebody reads this number, and so learns of all that it was made of.

    What a program does next may depend on it: for other numbers it might make other nodes from the same leaves. So a
    graph of nodes that `_follows_read` stands for these numbers only, and is not to be computed again for others. A
    leaf that was assigned since the number was computed has another one by now, of which nothing was learnt.
    """
    if number._read_at is not None:
        return
    now = next(_serial_numbers)
    computed = number._serial if number._operands and number._written_at is None else now
    pending = [number]
    while pending:
        node = pending.pop()
        is_newer = not node._operands and node._written_at is not None and node._written_at > computed
        if node._read_at is None and not (node._constant or is_newer):
            node._read_at = now
            pending += node._operands


def _is_read(operands: tuple[Value, ...]) -> bool:
    for operand in operands:  # noqa: SIM110  # faster than any(): every node made comes through here
        if operand._follows_read or operand._read_at is not None:
            return True
    return False


def watch(watcher: Callable[..., Any] | None) -> None:
    """Have `watcher` told of every look at a number: what is done, or the row and the operands of a comparison.

    It may raise, or answer a comparison in the Values' place; None lets it go on. `watch(None)` ends it.
    """
    global _watcher
    _watcher = watcher


def decide_equality(equality: Callable[[Any, Any], bool | None] | None) -> None:
    """Have `equality` asked whether two Values are equal; None, of it or in its place, leaves it to identity."""
    global _equality
    _equality = equality


def record(wanted: bool) -> bool:
    """Whether ops in this thread remember their operands from here on; gives back whether they did until here."""
    global _threads_without_graph
    before, _this_thread.records = _this_thread.records, wanted
    with _counting:
        _threads_without_graph += before - wanted
    return before


def observe(nodes: Callable[[Any], object] | None, passes: Callable[[Any, float], object] | None) -> None:
    """Have `nodes` told of every node as it is made, constants and leaves apart, and `passes` of every backward pass.

    Both may raise. `passes` gets the root and the seed before the pass, and answers whether it saw to the pass itself.
    None ends it.
    """
    global _node_observer, _pass_observer
    _node_observer, _pass_observer = nodes, passes


def _text(text: Any, argument: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"`{argument}` must be a string, got {type(text).__name__}")
    return text


for _row in ops.TABLE.values():
    ops.attach(Value, _row)

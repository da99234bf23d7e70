"""What a Value of the Python engine is besides a node that is differentiated: it is read, compared, shown and copied.

`engine.py` has the idea; this is what surrounds it. Whoever wants to know of every look at a number, every node or
every backward pass registers here, and a node remembers whether somebody has read its number.
"""

from __future__ import annotations

import copyreg
import math
import threading
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

from chainrule import ops
from chainrule.core.walk import attributes_of, deepcopy, hang
from chainrule.ops import Op, as_float

if TYPE_CHECKING:
    from chainrule.engine import Value

serial_numbers = count()


def due() -> int:
    """The serial number that the next node gets."""
    return int(repr(serial_numbers)[len("count(") : -1])  # no other way to ask leaves it where it is


class Hooks:
    """Who is asked or told of what; None if nobody is. Set by `watch`, `observe` and `decide_equality`."""

    watcher: Callable[..., Any] | None = None
    equality: Callable[[Any, Any], bool | None] | None = None
    node_observer: Callable[[Any], object] | None = None
    pass_observer: Callable[[Any, float], object] | None = None
    threads_without_graph = 0  # inside `no_grad()`; only if there are any, ops ask whether this thread is one


class _Thread(threading.local):
    records = True


hooks = Hooks()
_this_thread = _Thread()
_counting = threading.RLock()


def watch(watcher: Callable[..., Any] | None) -> None:
    """Tell `watcher` of every look at a number: what is done, or the row and the operands of a comparison.

    It may raise, or answer a comparison in place of the Values; None lets the comparison go on. `watch(None)` ends it.
    """
    hooks.watcher = watcher


def observe(nodes: Callable[[Any], object] | None, passes: Callable[[Any, float], object] | None) -> None:
    """Tell `nodes` of every node as it is made, except constants and leaves, and `passes` of every backward pass.

    Both may raise. `passes` gets root and seed before the pass, and returns True if it ran it itself. None ends it.
    """
    hooks.node_observer, hooks.pass_observer = nodes, passes


def decide_equality(equality: Callable[[Any, Any], bool | None] | None) -> None:
    """Ask `equality` whether two Values are equal. Without it, or if it returns None, they are compared by identity."""
    hooks.equality = equality


def record(wanted: bool) -> bool:
    """Whether ops in this thread remember their operands from here on; returns whether they did so far."""
    before, _this_thread.records = _this_thread.records, wanted
    with _counting:
        hooks.threads_without_graph += before - wanted
    return before


def forgets() -> bool:
    """Whether this thread is inside `no_grad()`."""
    return hooks.threads_without_graph > 0 and not _this_thread.records


class Looks(NamedTuple):
    """Who has read a node's number, and when. Most nodes have none of this, and many share one.

    What a program does after reading a number may depend on it: with other numbers it might build another graph from
    the same leaves. So a graph of nodes that follow a look is valid for these numbers only, and must not be compiled.
    """

    follows_read: bool = False  # made of operands that had been read, or of such nodes
    compared: bool = False  # read by `<` or `if`: it may have been chosen among others
    read_at: int | None = None  # the serial number that was due when it, or something made of it, was read
    written_at: int | None = None  # the serial number that was due when `.data` was last assigned
    earlier: tuple[tuple[int, int], ...] = ()  # from being read to being written: serial numbers due then, two at most

    def written(self) -> Looks:
        """After a new number: nobody has read it yet. Nodes that were made while the old one was known stay suspect."""
        now, earlier = due(), self.earlier
        if self.read_at is not None and self.read_at < now:
            if earlier and earlier[-1][1] == self.read_at:  # nothing was made in between
                earlier = (*earlier[:-1], (earlier[-1][0], now))
            else:
                earlier = (*earlier, (self.read_at, now))
        if len(earlier) > 2:
            earlier = ((earlier[0][0], earlier[1][1]), earlier[2])  # with what lies between
        return Looks(self.follows_read, self.compared, None, now, earlier)


FOLLOWS = Looks(follows_read=True)
NOBODY = Looks()


def _compare(rule: Op, left: Node, right: Any) -> bool:
    if hooks.watcher and (condition := hooks.watcher(rule, left, right)) is not None:
        return condition  # type: ignore[no-any-return]
    try:
        number = right._data if isinstance(right, Node) else as_float(right)
    except TypeError:
        return NotImplemented  # type: ignore[no-any-return]
    except OverflowError:  # an int that no float equals
        if rule not in (ops.eq, ops.ne):
            raise
        number = math.nan
    for node in (left, right):
        if isinstance(node, Node):
            read(node, compared=True)
    return bool(rule.forward(left._data, number))


def _comparison(rule: Op) -> Callable[[Any, Node | SupportsFloat], bool]:
    return lambda self, other: _compare(rule, self, other)


class Node:
    """The base of the Python engine's Value."""

    __slots__ = ("__dict__", "__weakref__", "_label", "_looks")  # __dict__ has the user's own attributes

    if TYPE_CHECKING:
        _data: float
        _grad: float
        _operands: tuple[Value, ...]
        _closure: Callable[[], object] | None
        _constant: bool
        _takes_gradient: bool
        _serial: int
        _fill: Callable[..., None]
        _label: str
        _looks: Looks | None  # who has read the number

    # Reading and writing the number.

    @property
    def data(self) -> float:
        """The number."""
        if hooks.watcher and not self._constant:
            hooks.watcher("reads `.data` of a Value")
        read(self)
        return self._data

    @data.setter
    def data(self, number: SupportsFloat) -> None:
        if hooks.watcher:
            hooks.watcher("sets `.data` of a Value")
        self._data = as_float(number, "data")
        self._looks = (self._looks or NOBODY).written()

    @property
    def grad(self) -> float:
        """The derivative of whatever `backward()` was called on, with respect to this number."""
        if hooks.watcher:
            hooks.watcher("reads `.grad` of a Value")
        return self._grad

    @grad.setter
    def grad(self, number: SupportsFloat) -> None:
        if hooks.watcher:
            hooks.watcher("sets `.grad` of a Value")
        self._grad = as_float(number, "grad")

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are collected here. Set it to False on a leaf to freeze it: `backward()` skips it."""
        return self._takes_gradient

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if not isinstance(wanted, bool):
            raise TypeError(f"`requires_grad` must be True or False, got {wanted!r}: write one of them, or bool(...)")
        if self._operands or self._closure is not None or self._constant:
            raise ValueError(f"`requires_grad` is set on leaves, and {self!r} is none: use detach() to cut it off")
        self._takes_gradient = wanted

    @property
    def label(self) -> str:
        """A name for people, shown in `repr` and in drawings."""
        return self._label

    @label.setter
    def label(self, name: str) -> None:
        self._label = text(name, "label")

    @property
    def _prev(self) -> frozenset[Value]:
        """The operands as a set."""
        return frozenset(self._operands)

    _follows_read = property(lambda self: (self._looks or NOBODY).follows_read)
    _compared = property(lambda self: (self._looks or NOBODY).compared)
    _written_at = property(lambda self: (self._looks or NOBODY).written_at)
    _read = property(lambda self: (self._looks or NOBODY).read_at is not None)  # this number, or one made of it

    @property
    def _read_during(self) -> tuple[tuple[int, int], ...]:
        """Of a leaf: serial numbers, from and to, of nodes that were made while its number had been read."""
        looks = self._looks or NOBODY
        return looks.earlier if looks.read_at is None else (*looks.earlier, (looks.read_at, due()))

    # Showing it.

    def __repr__(self) -> str:
        label = f", label={self._label!r}" if self._label else ""
        return f"Value(data={self._data!r}, grad={self._grad!r}{label})"

    def __format__(self, spec: str) -> str:
        return format(self._data, spec) if spec else repr(self)

    if not TYPE_CHECKING:  # a type checker then says what this error says

        def __float__(self) -> float:
            if hooks.watcher:
                hooks.watcher("turns a Value into a float")
            raise TypeError(
                "a Value does not turn into a float by itself, because its gradient would be lost: "
                "use chainrule's functions (chainrule.exp(v) for math.exp(v)), or v.data for the bare number"
            )

    def conjugate(self) -> Any:
        """This Value itself, as for every real number: NumPy's `var` and `std` ask for it."""
        return self

    # Comparing it: by number. But two Values are equal if they are the same node, since people keep them in lists.

    def __bool__(self) -> bool:
        return bool(_compare(ops.ne, self, 0.0))

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Node):
            return _compare(ops.eq, self, other)
        equal = hooks.equality(self, other) if hooks.equality else None
        return NotImplemented if equal is None else equal

    def __ne__(self, other: Any) -> bool:
        if not isinstance(other, Node):
            return _compare(ops.ne, self, other)
        equal = hooks.equality(self, other) if hooks.equality else None
        return NotImplemented if equal is None else not equal

    __hash__ = object.__hash__

    __lt__, __le__ = _comparison(ops.lt), _comparison(ops.le)
    __gt__, __ge__ = _comparison(ops.gt), _comparison(ops.ge)

    # Copying it.

    def __reduce__(self) -> tuple[Any, ...]:
        if self._operands or self._closure is not None:
            raise TypeError(
                "a Value that was computed cannot be pickled or copied by itself, because it stands for its graph: "
                "use copy.deepcopy, or take its .data"
            )
        if hooks.watcher:
            hooks.watcher("copies a Value")
        state = self._data, self._grad, self._label, attributes_of(self), self._takes_gradient
        return copyreg.__newobj__, (type(self),), state  # type: ignore[attr-defined]

    def __setstate__(self, state: tuple[float, float, str, Any, bool]) -> None:
        """For a copy, which is made without its `__init__`: that of a subclass may want other arguments."""
        data, grad, label, attributes, takes_gradient = state
        self._fill(as_float(data), "", (), None)
        self.label, self._grad, self._takes_gradient = label, as_float(grad, "grad"), bool(takes_gradient)
        hang(self, attributes)

    __deepcopy__ = deepcopy

    def _copy_to(self, twin: Value, operands: tuple[Value, ...]) -> None:
        """Make `twin` what this node is, with other operands."""
        if hooks.watcher:
            hooks.watcher("copies a Value")
        if self._closure is not None:
            raise TypeError(
                "a Value with a `_backward` of its own cannot be copied, because that function would go on with the "
                "Values it knows: build the graph again from copied leaves"
            )
        for name in ("_data", "_grad", "_op", "_rule", "_closure", "_constant", "_takes_gradient", "_label"):
            setattr(twin, name, getattr(self, name))
        twin._operands, twin._serial = operands, next(serial_numbers)
        twin._looks = FOLLOWS if self._follows_read else None  # nobody has read the copy


def read(number: Node, compared: bool = False) -> None:
    """Note that somebody reads this number, and so learns of everything that it was made of.

    A leaf that was assigned after the number was computed has another number by now, of which nothing was learnt.
    """
    if compared and not number._compared:
        number._looks = (number._looks or NOBODY)._replace(compared=True)
    if number._read:
        return
    now = due()
    computed = number._serial if number._operands and number._written_at is None else now
    looks_of_most, looks_of_followers = Looks(read_at=now), Looks(follows_read=True, read_at=now)
    pending = [number]
    while pending:
        node = pending.pop()
        looks = node._looks
        if node._constant:
            continue
        if looks is None:
            node._looks = looks_of_most
        elif looks is FOLLOWS:
            node._looks = looks_of_followers
        elif looks.read_at is not None or (not node._operands and (looks.written_at or 0) > computed):
            continue
        else:
            node._looks = looks._replace(read_at=now)
        pending += node._operands


def text(given: Any, argument: str) -> str:
    """`given`, if it is a string."""
    if not isinstance(given, str):
        raise TypeError(f"`{argument}` must be a string, got {type(given).__name__}")
    return given

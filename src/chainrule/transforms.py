"""Transforms: a function in, a function for its derivatives out; to any order.

All of it is two sweeps over the nodes between inputs and outputs. The partials of the op table run on any kind of
number, so a sweep over floats gives numbers, and a sweep over the nodes themselves records the derivative as one more
graph, which can be differentiated again, drawn or compiled.

    pull (reverse):   adjoint(operand) += adjoint(node) * partial      newest node first
    push (forward):   tangent(node)     = Σ partial * tangent(operand)  oldest node first

The result is a number if numbers went in. If Values did, or the function captures some that take gradients, it is a
Value that knows where it came from, so that no gradient is lost on the way.
"""

from __future__ import annotations

import operator
import os
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property, partial, wraps
from types import MappingProxyType
from typing import Any

from chainrule.core.graph import lay_flat, number_of
from chainrule.core.recording import constant, detach, frozen, is_recording, recording
from chainrule.core.structure import (
    NUMBER,
    Structure,
    batch_of,
    build,
    difference,
    flatten,
    is_one_number,
    nest,
    words,
)
from chainrule.core.tracing import is_tracing
from chainrule.core.value import ENGINE, decide_equality
from chainrule.ops import as_float

if ENGINE == "native":
    from chainrule import _native

__all__ = ["elementwise_grad", "grad", "grad_of", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp", "vmap"]

Function = Callable[..., Any]
Argnums = int | Sequence[int]

BY_HAND = (
    "has a `_backward` written by hand, which gives numbers and no graph to differentiate again: register the op with "
    "chainrule.op, or ask for numbers alone, inside chainrule.no_grad()"
)


def grad(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function for the gradient of `function` by its argument number `argnums`, in the structure of that argument.

    The function returns one number. Several `argnums` give a tuple of gradients. With `has_aux` the function returns a
    pair, a number and whatever else is of interest, and the result is a pair too: the gradient, and what else.

    >>> grad(lambda x: x**3)(2.0)
    12.0
    >>> grad(grad(lambda x: x**3))(2.0)
    12.0
    >>> grad(lambda model, x: model["w"] * x + model["b"])({"w": 2.0, "b": 1.0}, 3.0)
    {'w': 3.0, 'b': 1.0}
    >>> grad(lambda x: (x * x, {"inside": 3.0 * x}), has_aux=True)(2.0)
    (4.0, {'inside': 6.0})
    """
    both = value_and_grad(function, argnums, has_aux)

    @wraps(function)
    def gradient(*arguments: Any, **named: Any) -> Any:
        value, result = both(*arguments, **named)
        return (result, value[1]) if has_aux else result

    return gradient


def value_and_grad(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """As `grad`, but the result is a pair: what `function` returns, and the gradient.

    >>> value_and_grad(lambda x, y: x * y)(2.0, 5.0)
    (10.0, 5.0)
    """

    @wraps(function)
    def both(*arguments: Any, **named: Any) -> tuple[Any, Any]:
        call = _Call(function, arguments, named, argnums, has_aux)
        (output,) = call.one_output()
        value = call.build(call.result, [output])
        return call.with_aux(value), call.build(call.structure, call.pull([(output, 1.0)]))

    return both


def elementwise_grad(function: Function, argnums: int = 0) -> Function:
    """A function for the derivative of `function`, a function of numbers, at every number of a list or an array.

    Arguments are numbers, and lists or arrays that are all arranged in one way, as the result is then. A number stands
    for as many equal ones. The derivative is by argument `argnums`.

    >>> elementwise_grad(lambda x: x**3)([1.0, 2.0])
    [3.0, 12.0]
    """
    derivative = grad(function, argnums)

    @wraps(function)
    def derivatives(*arguments: Any, **named: Any) -> Any:
        columns, structure = [], NUMBER
        for k, argument in enumerate(arguments):
            columns.append(list[Any]())
            found = flatten(argument, columns[-1], partial(_number, k))
            if NUMBER not in (found, structure) and found != structure:
                change = difference(structure, found, "an argument")
                raise ValueError(f"the arguments of an elementwise function must be arranged in one way: {change}")
            structure = found if structure == NUMBER else structure
        count = max(map(len, columns), default=0)
        rows = zip(*[column * count if len(column) < count else column for column in columns], strict=True)
        return _built(structure, [derivative(*row, **named) for row in rows])

    return derivatives


def vmap(function: Function, in_axes: int | Sequence[int | None] | None = 0) -> Function:
    """A function of many examples: each argument is a list or an array with an example in each entry.

    The result is that of `function`, with an array of all examples in place of each number, as `batch` of a compiled
    function gives it with `reduce=None`. `in_axes` has an entry for each argument: 0, or None for one that is the same
    for all examples.

    >>> vmap(grad(lambda x: x[0] * x[1]))([[1.0, 2.0], [3.0, 4.0]])
    [array([2., 4.]), array([1., 3.])]
    """

    @wraps(function)
    def mapped(*arguments: Any, **named: Any) -> Any:
        axes = [in_axes] * len(arguments) if in_axes is None or isinstance(in_axes, int) else list(in_axes)
        if len(axes) != len(arguments) or any(axis not in (0, None) for axis in axes):
            raise ValueError(
                f"`in_axes` must be 0 or None, or have one of these for each of {len(arguments)} arguments; "
                f"got {in_axes!r}"
            )
        counts = [None if axis is None else _examples_in(a) for a, axis in zip(arguments, axes, strict=True)]
        found = {count for count in counts if count is not None}
        if len(found) != 1 or found == {0}:
            raise ValueError(
                "the arguments must have the same number of examples, at least one; they have "
                + (", ".join(str(count) for count in counts if count is not None) or "none, for `in_axes` is None")
            )
        results = [
            function(*[a if count is None else a[k] for a, count in zip(arguments, counts, strict=True)], **named)
            for k in range(found.pop())
        ]
        return _stacked(results)

    return mapped


def jacobian(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function for the derivatives of all results of `function` by all numbers of its argument `argnums`.

    The structure of the result, with the structure of the argument in place of each number. `has_aux` as in `grad`.

    >>> jacobian(lambda x: [x[0] * x[1], x[0] + x[1]])([2.0, 3.0])
    [[3.0, 2.0], [1.0, 1.0]]
    """

    @wraps(function)
    def derivatives(*arguments: Any, **named: Any) -> Any:
        call = _Call(function, arguments, named, argnums, has_aux)
        if len(call.inputs) < len(call.outputs):  # the fewer sweeps
            columns = [call.push([(x, 1.0)]) for x in call.inputs]
            numbers = [column[k] for k in range(len(call.outputs)) for column in columns]
        else:
            numbers = [number for output in call.outputs for number in call.pull([(output, 1.0)])]
        return call.with_aux(call.build(nest(call.result, call.structure), numbers))

    return derivatives


def hessian(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function for the second derivatives of `function`, which returns one number: the Jacobian of its gradient.

    `has_aux` as in `grad`.

    >>> hessian(lambda x: x[0] ** 2 * x[1])([3.0, 5.0])
    [[10.0, 6.0], [6.0, 0.0]]
    """
    return jacobian(grad(function, argnums, has_aux), argnums, has_aux)


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, ...]:
    """What `function(*primals)` returns, and how it changes as the arguments move along `tangents`: forward mode.

    With `has_aux` the function returns a pair, and what is second in it comes third here.

    >>> jvp(lambda x: [x * x, 3.0 * x], (2.0,), (1.0,))
    ([4.0, 6.0], [4.0, 3.0])
    """
    primals, tangents = _sequence(primals, "primals"), _sequence(tangents, "tangents")
    call = _Call(function, primals, {}, range(len(primals)), has_aux)
    seeds = _like(call.structure, tuple(tangents), "tangents", "`primals`")
    moved = call.joined_by(seeds)
    changes = moved.push(zip(call.inputs, seeds, strict=True))
    return call.build(call.result, call.outputs), moved.build(call.result, changes), *call.aux


def vjp(function: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """What `function(*primals)` returns, and a function that pulls cotangents of the result back to the arguments.

    With `has_aux` the function returns a pair, and what is second in it comes third here.

    >>> y, pull = vjp(lambda x, w: [x * w, x + w], 2.0, 5.0)
    >>> y, pull([1.0, 10.0])
    ([10.0, 7.0], (15.0, 12.0))
    """
    call = _Call(function, primals, {}, range(len(primals)), has_aux)

    def pull(cotangents: Any) -> tuple[Any, ...]:
        seeds = _like(call.result, cotangents, "cotangents", "the result")
        pulled = call.joined_by(seeds)
        gradients = pulled.pull(zip(call.outputs, seeds, strict=True))
        return pulled.build(call.structure, gradients)  # type: ignore[no-any-return]

    return call.build(call.result, call.outputs), pull, *call.aux


def hvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of `function` at `primals`, times the vector `tangents`, in about the time of a gradient.

    For one primal, in its structure; for several, a tuple.

    >>> hvp(lambda x: x[0] ** 2 * x[1], ([3.0, 5.0],), ([1.0, 0.0],))
    [10.0, 6.0]
    """
    count = len(_sequence(primals, "primals"))
    return jvp(grad(function, 0 if count == 1 else range(count)), primals, tangents)[1]


def grad_of(output: Any, inputs: Any, create_graph: bool = False) -> Any:
    """The derivatives of a Value by others that it was computed from, in the structure of `inputs`.

    They are numbers, or with `create_graph` Values, which can be differentiated again. No `grad` is touched.

    >>> from chainrule import Value
    >>> x = Value(2.0)
    >>> first = grad_of(x**4, x, create_graph=True)
    >>> first.data, grad_of(first, x)
    (32.0, 48.0)
    """
    if not _is_node(output):
        raise TypeError(f"`output` must be a Value, got {type(output).__name__}: compute it from Values")
    nodes: list[Any] = []
    structure = flatten(inputs, nodes, _input)
    path = _Path([output], nodes)
    as_graph = create_graph or is_tracing()
    if not as_graph:
        _ = output.data  # its derivatives are about to be known too
    results = path.pull([(output, 1.0)], as_graph)
    if as_graph:
        results = [_as_node(result) for result in results]
    if not create_graph and is_tracing():
        results = [detach(result) for result in results]
    return build(structure, iter(results), object if as_graph else float)


class _Call:
    """A call of a function on fresh nodes in place of the numbers that it is to be differentiated by."""

    def __init__(
        self,
        function: Function,
        arguments: Sequence[Any],
        named: dict[str, Any],
        argnums: Argnums,
        has_aux: bool = False,
    ) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        places = _places(argnums, len(arguments), self.name)
        given, structures, are_nodes = list(arguments), [], False
        numbers_given: list[Any] = []
        self.recorded = is_recording()
        with recording():
            for k in places:
                numbers: list[Any] = []
                structures.append(flatten(arguments[k], numbers, partial(_number, k)))
                fresh = [_fresh(number) for number in numbers]
                given[k] = build(structures[-1], iter(fresh))
                self.inputs += fresh
                numbers_given += numbers
                are_nodes = are_nodes or any(map(_is_node, numbers))
            with _standing_in(self.inputs, numbers_given):
                returned = function(*given, **named)
            result, *aux = self._pair(returned) if has_aux else [returned]
            self.result = flatten(result, self.outputs, self._output)
        self.structure: Structure = (tuple, tuple(structures)) if isinstance(argnums, Iterable) else structures[0]
        others: list[Any] = []
        flatten(aux, others, lambda leaf: leaf)
        self.path = _Path([*self.outputs, *filter(_is_node, others)], self.inputs)
        self.gives_values = are_nodes or self.path.meets_others() or is_tracing()
        self.aux = [self._shown(thing) for thing in aux]  # none, or one thing

    def joined_by(self, numbers: Sequence[Any]) -> _Call:
        """The call, as one that gives Values if these numbers are."""
        if not any(map(_is_node, numbers)):
            return self
        call = copy(self)
        call.gives_values = True
        return call

    def one_output(self) -> list[Any]:
        """The outputs, if there is one."""
        if not is_one_number(self.result):
            raise TypeError(
                f"`{self.name}` returned {words(self.result)}, and a gradient is that of one number: "
                "use chainrule.jacobian, or return one number"
            )
        return self.outputs

    def pull(self, seeds: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The derivatives of Σ seed · output by the inputs."""
        with recording():
            return self.path.pull(self._seeds(seeds), self.as_graph)

    def push(self, seeds: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The changes of the outputs as the inputs change by `seeds`."""
        with recording():
            return self.path.push(self._seeds(seeds), self.as_graph)[: len(self.outputs)]

    def _seeds(self, seeds: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for node, seed in seeds:
            yield node, seed if self.as_graph or not _is_node(seed) else seed.data

    @property
    def as_graph(self) -> bool:
        """Whether the derivative is to be differentiated again."""
        return self.gives_values and (self.recorded or is_tracing())

    def build(self, structure: Structure, numbers: list[Any]) -> Any:
        """The numbers in a structure, as the caller is to see them."""
        return build(structure, map(self.kind, numbers), object if self.gives_values else float)

    def kind(self, number: Any) -> Any:
        """A number or node as the caller is to see it."""
        if self.as_graph:
            return _as_node(number)
        if self.gives_values:
            return frozen(number.data if _is_node(number) else number)
        return number_of(number) if _is_node(number) else float(number)

    def with_aux(self, result: Any) -> Any:
        """The result, in a pair with what else the function returned if there is such a thing."""
        return (result, *self.aux) if self.aux else result

    def _pair(self, returned: Any) -> tuple[Any, Any]:
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(
                f"`{self.name}` returned {type(returned).__name__}, and with `has_aux` it must return a pair: "
                "the result, and whatever else is of interest"
            )
        return returned

    def _shown(self, thing: Any) -> Any:
        """Anything, with its nodes as the caller is to see them."""
        leaves: list[Any] = []
        structure = flatten(thing, leaves, lambda leaf: leaf)
        if not any(map(_is_node, leaves)):
            return thing
        return _built(structure, [self.kind(leaf) if _is_node(leaf) else leaf for leaf in leaves])

    def _output(self, leaf: Any) -> Any:
        try:
            return leaf if _is_node(leaf) else as_float(leaf)
        except TypeError:
            raise TypeError(
                f"`{self.name}` returned {type(leaf).__name__} {leaf!r:.40}: "
                "return a number, or lists, tuples, dicts or arrays of them"
            ) from None


class _Thread(threading.local):
    given: Mapping[Any, Any] = MappingProxyType({})  # a node -> what it stands in for


_this_thread = _Thread()
_lock = threading.RLock()  # a signal handler or a finalizer may call a transform in the middle of counting
_calls = 0  # under way, in all threads
if hasattr(os, "register_at_fork"):  # or another thread might hold it in the child for ever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@contextmanager
def _standing_in(inputs: Sequence[Any], given: Sequence[Any]) -> Iterator[None]:
    """While a function runs on `inputs` in place of what was `given`, `==` answers as it would for that."""
    before = _this_thread.given
    _this_thread.given = {**before, **dict(zip(inputs, given, strict=True))}
    _count(+1)
    try:
        yield
    finally:
        _count(-1)
        _this_thread.given = before


def _count(change: int) -> None:
    global _calls
    with _lock:
        _calls += change
        decide_equality(_equal if _calls else None)


def _equal(left: Any, right: Any) -> bool | None:
    """Whether two Values are equal; None if both would be Values when the function is called on plain numbers too."""
    if _this_thread.given and (_is_number(left) or _is_number(right)):
        return bool(left.data == right.data)
    return None


def _is_number(node: Any) -> bool:
    """Whether it would be a plain number if the function had been called on the plain numbers that were given."""
    seen, pending = {node}, [node]
    while pending:
        node = pending.pop()
        operands = (_this_thread.given[node],) if node in _this_thread.given else node._operands
        if not (operands or node._constant):
            return False
        fresh = [operand for operand in operands if _is_node(operand) and operand not in seen]
        seen.update(fresh)
        pending += fresh
    return True


class _Path:
    """What lies between outputs, which are nodes or numbers, and inputs, which are nodes.

    The nodes have places, oldest first; a sweep is a list with an entry for each.
    """

    def __init__(self, outputs: list[Any], inputs: list[Any]) -> None:
        self.outputs = outputs
        self.inputs = inputs

    @cached_property
    def _flat(self) -> tuple[list[Any], list[Any], list[tuple[int, ...]]]:
        oldest = min((node._serial for node in self.inputs), default=0)  # what is older cannot depend on an input
        return lay_flat(*filter(_is_node, self.outputs), since=oldest)

    @cached_property
    def _place(self) -> dict[Any, int]:
        return {node: k for k, node in enumerate(self._flat[0])}

    @cached_property
    def _dependent(self) -> tuple[list[bool], list[int]]:
        """Which places hold inputs or what depends on them; and the places of the latter, oldest first."""
        reached, places = [False] * len(self._place), []
        for node in self.inputs:
            if node in self._place:
                reached[self._place[node]] = True
        for k, operands in enumerate(self._flat[2]):
            for operand in operands:
                if reached[operand]:
                    reached[k] = True
                    places.append(k)
                    break
        return reached, places

    def meets_others(self) -> bool:
        """Whether the outputs depend on leaves that take gradients besides the inputs."""
        outputs = [output for output in self.outputs if _is_node(output)]
        if ENGINE == "native" and (answer := _native.meets_others(outputs, self.inputs)) is not None:
            return answer
        nodes, _, operands = self._flat
        leaves = (
            node for node, few, reached in zip(nodes, operands, self._dependent[0], strict=True) if not (few or reached)
        )
        return any(not node._constant and node.requires_grad for node in leaves)

    def pull(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> list[Any]:
        """The derivatives of Σ seed · output by the inputs."""
        given = [(output, seed) for output, seed in seeds if _is_node(output)]
        if not as_graph and (numbers := self._pulled_natively(given)) is not None:
            return numbers
        adjoints: list[Any] = [None] * len(self._place)
        for output, seed in given:
            _add(adjoints, self._place[output], seed)
        numbers = self._numbers(as_graph)
        nodes, rules, operands_of = self._flat
        reached, places = self._dependent
        for k in reversed(places):
            adjoint, node, rule, operands = adjoints[k], nodes[k], rules[k], operands_of[k]
            if adjoint is None:
                continue
            if rule is None:
                for operand, contribution in _called(node, operands, adjoint, as_graph):
                    _add(adjoints, operand, contribution)
                continue
            arguments = [node if as_graph else numbers[k], *[numbers[operand] for operand in operands]]
            for operand, derivative in zip(operands, rule.partials, strict=True):
                if derivative is not None and reached[operand]:
                    _add(adjoints, operand, _times(adjoint, derivative(*arguments)))
        return self._at(self.inputs, adjoints)

    def push(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> list[Any]:
        """The changes of the outputs as the inputs change by `seeds`."""
        tangents: list[Any] = [None] * len(self._place)
        for node, seed in seeds:
            if node in self._place:
                tangents[self._place[node]] = seed
        numbers = self._numbers(as_graph)
        nodes, rules, operands_of = self._flat
        for k in self._dependent[1]:
            node, rule, operands = nodes[k], rules[k], operands_of[k]
            if rule is None:
                for operand, slope in _called(node, operands, 1.0, as_graph):
                    if tangents[operand] is not None:
                        _add(tangents, k, _times(tangents[operand], slope))
                continue
            arguments = [node if as_graph else numbers[k], *[numbers[operand] for operand in operands]]
            for operand, derivative in zip(operands, rule.partials, strict=True):
                if derivative is not None and tangents[operand] is not None:
                    _add(tangents, k, _times(tangents[operand], derivative(*arguments)))
        return self._at(self.outputs, tangents)

    def _pulled_natively(self, seeds: list[tuple[Any, Any]]) -> list[Any] | None:
        """The derivatives by the inputs, from the native engine; None if another is running, or a node needs Python."""
        if ENGINE != "native":
            return None
        results = array("d", bytes(8 * len(self.inputs)))
        outputs, numbers = [output for output, _ in seeds], array("d", [seed for _, seed in seeds])
        return results.tolist() if _native.pull(outputs, numbers, self.inputs, results) else None

    def _numbers(self, as_graph: bool) -> list[Any]:
        """What rules get for each node: itself, if they are to give nodes and it is no constant; else its number."""
        return [node if as_graph and not node._constant else number_of(node) for node in self._flat[0]]

    def _at(self, nodes: list[Any], sweep: list[Any]) -> list[Any]:
        places = [self._place.get(node) if _is_node(node) else None for node in nodes]
        found = [None if place is None else sweep[place] for place in places]
        return [0.0 if number is None else number for number in found]


def _add(totals: list[Any], place: int, term: Any) -> None:
    total = totals[place]
    totals[place] = term if total is None else total + term


def _times(a: Any, b: Any) -> Any:
    """The product, without nodes for factors 1 and -1."""
    if type(b) is float:
        a, b = b, a
    if type(a) is float:
        if a == 1.0:
            return b
        if a == -1.0:
            return -b
    return a * b


def _is_node(number: Any) -> bool:
    return hasattr(number, "_apply")


def _called(node: Any, places: Sequence[int], adjoint: float, as_graph: bool) -> list[tuple[int, float]]:
    """What a hand-written `_backward` adds to each operand, by place; all gradients are put back as they were."""
    if as_graph:
        raise TypeError(f"{node!r} (`_op` {node._op!r}) {BY_HAND}")
    operands = list(dict.fromkeys(node._operands))
    before = [(other, other.grad) for other in (node, *operands)]
    try:
        for operand in operands:
            operand.grad = 0.0
        node.grad = adjoint
        node._backward()
        return [(place, operand.grad) for place, operand in zip(dict.fromkeys(places), operands, strict=True)]
    finally:
        for other, gradient in before:
            other.grad = gradient


def _as_node(number: Any) -> Any:
    return number if _is_node(number) else constant(number)


def _fresh(number: Any) -> Any:
    """A new node with the same number: the derivative is by this one, and not by other uses of the argument."""
    return _as_node(number) * 1.0


def _number(k: int, given: Any) -> Any:
    return given if _is_node(given) else as_float(given, f"argument {k}")


def _input(given: Any) -> Any:
    if not _is_node(given):
        raise TypeError(
            f"`inputs` must be Values, got {type(given).__name__}: give those that `output` was computed from"
        )
    return given


def _built(structure: Structure, leaves: list[Any]) -> Any:
    """A structure of these; its arrays are of floats if all of them are."""
    return build(structure, iter(leaves), float if set(map(type, leaves)) <= {float} else object)


def _examples_in(argument: Any) -> int:
    if not hasattr(argument, "__len__") or isinstance(argument, (str, dict)):
        raise TypeError(
            f"an argument must be a list or an array with an example in each entry, got {type(argument).__name__}: "
            "say None in `in_axes` for one that is the same for all"
        )
    return len(argument)


def _stacked(results: list[Any]) -> Any:
    """The structure of the results, with an array of all in place of each number."""
    import numpy as np

    rows: list[list[Any]] = [[] for _ in results]
    structures = [flatten(result, row, _entry) for result, row in zip(results, rows, strict=True)]
    for k, structure in enumerate(structures):
        if structure != structures[0]:
            change = difference(structures[0], structure, "the result")
            raise ValueError(f"the results must be arranged in one way for all examples: for example {k} {change}")
    dtype = float if {type(entry) for row in rows for entry in row} <= {float} else object
    columns = np.empty((len(rows[0]), len(rows)), dtype=dtype)
    for k, row in enumerate(rows):
        columns[:, k] = row
    return batch_of(structures[0], iter(columns))


def _entry(leaf: Any) -> Any:
    return leaf if _is_node(leaf) else as_float(leaf, "a result")


def _like(structure: Structure, given: Any, argument: str, model: str) -> list[Any]:
    """The numbers in `given`, which must have this structure."""
    numbers: list[Any] = []
    found = flatten(given, numbers, lambda n: n if _is_node(n) else as_float(n, argument))
    if found != structure:
        change = difference(structure, found, model).replace(" was ", " is ", 1).replace(" and is ", ", here ")
        raise ValueError(f"`{argument}` must have the structure of {model}: {change}")
    return numbers


def _sequence(given: Any, argument: str) -> Sequence[Any]:
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"`{argument}` must be a tuple with an entry for each argument, got {type(given).__name__}")
    return tuple(given)


def _places(argnums: Argnums, count: int, name: str) -> list[int]:
    wanted = list(argnums) if isinstance(argnums, Iterable) else [argnums]
    for k in wanted:
        if not hasattr(k, "__index__") or not -count <= k < count:
            raise ValueError(
                f"`argnums` must be places among the arguments, and {k!r} is none: "
                f"`{name}` was given {count} by their places"
            )
    places = [operator.index(k) % count for k in wanted]
    if len(set(places)) < len(places):
        raise ValueError(f"`argnums` must name each argument once, got {argnums!r}")
    return places

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

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial, wraps
from itertools import chain
from operator import attrgetter
from typing import Any

from chainrule._tracing import is_tracing
from chainrule._value import ENGINE
from chainrule.ops import as_float
from chainrule.recorded import is_hand_written
from chainrule.recording import constant, detach, frozen, is_recording, recording
from chainrule.structure import NUMBER, Structure, build, difference, flatten, nest, words

if ENGINE == "native":
    from chainrule import _native

__all__ = ["grad", "grad_of", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp"]

Function = Callable[..., Any]
Argnums = int | Sequence[int]

BY_HAND = (
    "has a `_backward` written by hand, which gives numbers and no graph to differentiate again: register the op with "
    "chainrule.op, or ask for numbers alone, inside chainrule.no_grad()"
)


def grad(function: Function, argnums: Argnums = 0) -> Function:
    """A function for the gradient of `function` by its argument number `argnums`, in the structure of that argument.

    The function returns one number. Several `argnums` give a tuple of gradients.

    >>> grad(lambda x: x**3)(2.0)
    12.0
    >>> grad(grad(lambda x: x**3))(2.0)
    12.0
    >>> grad(lambda model, x: model["w"] * x + model["b"])({"w": 2.0, "b": 1.0}, 3.0)
    {'w': 3.0, 'b': 1.0}
    """
    both = value_and_grad(function, argnums)

    @wraps(function)
    def gradient(*arguments: Any, **named: Any) -> Any:
        return both(*arguments, **named)[1]

    return gradient


def value_and_grad(function: Function, argnums: Argnums = 0) -> Function:
    """As `grad`, but the result is a pair: what `function` returns, and the gradient.

    >>> value_and_grad(lambda x, y: x * y)(2.0, 5.0)
    (10.0, 5.0)
    """

    @wraps(function)
    def both(*arguments: Any, **named: Any) -> tuple[Any, Any]:
        call = _Call(function, arguments, named, argnums)
        (output,) = call.one_output()
        return call.kind(output), call.build(call.structure, call.pull([(output, 1.0)]))

    return both


def jacobian(function: Function, argnums: Argnums = 0) -> Function:
    """A function for the derivatives of all results of `function` by all numbers of its argument `argnums`.

    The structure of the result, with the structure of the argument in place of each number.

    >>> jacobian(lambda x: [x[0] * x[1], x[0] + x[1]])([2.0, 3.0])
    [[3.0, 2.0], [1.0, 1.0]]
    """

    @wraps(function)
    def derivatives(*arguments: Any, **named: Any) -> Any:
        call = _Call(function, arguments, named, argnums)
        if len(call.inputs) < len(call.outputs):  # the fewer sweeps
            columns = [call.push([(x, 1.0)]) for x in call.inputs]
            numbers = [column[k] for k in range(len(call.outputs)) for column in columns]
        else:
            numbers = [number for output in call.outputs for number in call.pull([(output, 1.0)])]
        return call.build(nest(call.result, call.structure), numbers)

    return derivatives


def hessian(function: Function, argnums: Argnums = 0) -> Function:
    """A function for the second derivatives of `function`, which returns one number: the Jacobian of its gradient.

    >>> hessian(lambda x: x[0] ** 2 * x[1])([3.0, 5.0])
    [[10.0, 6.0], [6.0, 0.0]]
    """
    return jacobian(grad(function, argnums), argnums)


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """What `function(*primals)` returns, and how it changes as the arguments move along `tangents`: forward mode.

    >>> jvp(lambda x: [x * x, 3.0 * x], (2.0,), (1.0,))
    ([4.0, 6.0], [4.0, 3.0])
    """
    primals, tangents = _sequence(primals, "primals"), _sequence(tangents, "tangents")
    call = _Call(function, primals, {}, range(len(primals)))
    seeds = _like(call.structure, tuple(tangents), "tangents", "`primals`")
    moved = call.joined_by(seeds)
    changes = moved.push(zip(call.inputs, seeds, strict=True))
    return call.build(call.result, call.outputs), moved.build(call.result, changes)


def vjp(function: Function, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """What `function(*primals)` returns, and a function that pulls cotangents of the result back to the arguments.

    >>> y, pull = vjp(lambda x, w: [x * w, x + w], 2.0, 5.0)
    >>> y, pull([1.0, 10.0])
    ([10.0, 7.0], (15.0, 12.0))
    """
    call = _Call(function, primals, {}, range(len(primals)))

    def pull(cotangents: Any) -> tuple[Any, ...]:
        seeds = _like(call.result, cotangents, "cotangents", "the result")
        pulled = call.joined_by(seeds)
        gradients = pulled.pull(zip(call.outputs, seeds, strict=True))
        return pulled.build(call.structure, gradients)  # type: ignore[no-any-return]

    return call.build(call.result, call.outputs), pull


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
    adjoints = path.pull([(output, 1.0)], as_graph)
    results = [adjoints.get(node, 0.0) for node in nodes]
    if as_graph:
        results = [_as_node(result) for result in results]
    if not create_graph and is_tracing():
        results = [detach(result) for result in results]
    return build(structure, iter(results), object if as_graph else float)


class _Call:
    """A call of a function on fresh nodes in place of the numbers that it is to be differentiated by."""

    def __init__(self, function: Function, arguments: Sequence[Any], named: dict[str, Any], argnums: Argnums) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        places = _places(argnums, len(arguments), self.name)
        given, structures, are_nodes = list(arguments), [], False
        self.recorded = is_recording()
        with recording():
            for k in places:
                numbers: list[Any] = []
                structures.append(flatten(arguments[k], numbers, partial(_number, k)))
                fresh = [_fresh(number) for number in numbers]
                given[k] = build(structures[-1], iter(fresh))
                self.inputs += fresh
                are_nodes = are_nodes or any(map(_is_node, numbers))
            self.result = flatten(function(*given, **named), self.outputs, self._output)
        self.structure: Structure = structures[0] if isinstance(argnums, int) else (tuple, tuple(structures))
        self.path = _Path([output for output in self.outputs if _is_node(output)], self.inputs)
        self.gives_values = are_nodes or self.path.meets_others() or is_tracing()

    def joined_by(self, numbers: Sequence[Any]) -> _Call:
        """The call, as one that gives Values if these numbers are."""
        if not any(map(_is_node, numbers)):
            return self
        call = copy(self)
        call.gives_values = True
        return call

    def one_output(self) -> list[Any]:
        """The outputs, if there is one and it is a bare number."""
        if self.result != NUMBER:
            raise TypeError(
                f"`{self.name}` returned {words(self.result)}, and a gradient is that of one number: "
                "use chainrule.jacobian, or return one number"
            )
        return self.outputs

    def pull(self, seeds: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The derivatives of Σ seed · output by the inputs."""
        with recording():
            adjoints = self.path.pull(self._seeds(seeds), self.as_graph)
        return [adjoints.get(x, 0.0) for x in self.inputs]

    def push(self, seeds: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The changes of the outputs as the inputs change by `seeds`."""
        with recording():
            tangents = self.path.push(self._seeds(seeds), self.as_graph)
        return [tangents.get(y, 0.0) if _is_node(y) else 0.0 for y in self.outputs]

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
        plain = number.data if _is_node(number) else float(number)
        return frozen(plain) if self.gives_values else plain

    def _output(self, leaf: Any) -> Any:
        try:
            return leaf if _is_node(leaf) else as_float(leaf)
        except TypeError:
            raise TypeError(
                f"`{self.name}` returned {type(leaf).__name__} {leaf!r:.40}: "
                "return a number, or lists, tuples, dicts or arrays of them"
            ) from None


class _Path:
    """What lies between outputs and inputs, all of them nodes."""

    def __init__(self, outputs: list[Any], inputs: list[Any]) -> None:
        self.outputs = outputs
        self.inputs = inputs

    @cached_property
    def found(self) -> dict[Any, tuple[Any, ...]]:
        """The nodes below the outputs, each with its operands, as far as they can depend on the inputs."""
        oldest = min((node._serial for node in self.inputs), default=0)
        found = {node: node._operands for node in self.outputs}
        pending = list(found.values())
        while pending:
            for operand in pending.pop():
                if operand not in found and operand._serial > oldest:
                    found[operand] = operand._operands
                    pending.append(found[operand])
        return found

    @cached_property
    def nodes(self) -> list[Any]:
        """The nodes that depend on the inputs, oldest first."""
        nodes, reached = [], set(self.inputs)
        for node in sorted(self.found, key=attrgetter("_serial")):
            if not reached.isdisjoint(self.found[node]):
                nodes.append(node)
                reached.add(node)
        return nodes

    @cached_property
    def reached(self) -> set[Any]:
        """The inputs and the nodes that depend on them."""
        return {*self.inputs, *self.nodes}

    def meets_others(self) -> bool:
        """Whether the outputs depend on leaves that take gradients besides the inputs."""
        if ENGINE == "native" and (answer := _native.meets_others(self.outputs, self.inputs)) is not None:
            return answer
        used = (node for node in chain(self.outputs, *self.found.values()) if node not in self.reached)
        return any(not node._constant and node.requires_grad and not self.found.get(node) for node in used)

    def pull(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> dict[Any, Any]:
        """The derivative of Σ seed · output by each node; of those that are not there it is 0."""
        adjoints: dict[Any, Any] = {}
        for output, seed in seeds:
            if _is_node(output):
                _add(adjoints, output, seed)
        if not as_graph and (numbers := self._pulled_natively(adjoints)) is not None:
            return numbers
        for node in reversed(self.nodes):
            if (adjoint := adjoints.get(node)) is None:
                continue
            if _is_written_by_hand(node):
                for operand, contribution in _called(node, adjoint, as_graph):
                    _add(adjoints, operand, contribution)
                continue
            for operand, derivative in self._partials(node, as_graph):
                _add(adjoints, operand, _times(adjoint, derivative))
        return adjoints

    def push(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> dict[Any, Any]:
        """The change of each node as inputs change by `seeds`; of those that are not there it is 0."""
        tangents: dict[Any, Any] = dict(seeds)
        for node in self.nodes:
            by_hand = _is_written_by_hand(node)
            for operand, derivative in _called(node, 1.0, as_graph) if by_hand else self._partials(node, as_graph):
                if operand in tangents:
                    _add(tangents, node, _times(tangents[operand], derivative))
        return tangents

    def _pulled_natively(self, seeds: dict[Any, Any]) -> dict[Any, Any] | None:
        """The derivatives by the inputs, from the native engine; None if another is running, or a node needs Python."""
        if ENGINE != "native":
            return None
        results = array("d", bytes(8 * len(self.inputs)))
        done = _native.pull(list(seeds), array("d", seeds.values()), self.inputs, results)
        return dict(zip(self.inputs, results, strict=True)) if done else None

    def _partials(self, node: Any, as_graph: bool) -> Iterator[tuple[Any, Any]]:
        """The operands that depend on the inputs, each with the derivative of `node` by it: a number or a node."""
        operands = node._operands
        if as_graph:
            arguments = [node, *[operand.data if operand._constant else operand for operand in operands]]
        else:
            arguments = [node.data, *[operand.data for operand in operands]]
        for operand, rule in zip(operands, node._rule.partials, strict=True):
            if rule is not None and operand in self.reached:
                yield operand, rule(*arguments)


def _add(totals: dict[Any, Any], node: Any, term: Any) -> None:
    totals[node] = totals[node] + term if node in totals else term


def _times(a: Any, b: Any) -> Any:
    """The product, without nodes for factors 1 and -1."""
    for factor, other in ((a, b), (b, a)):
        if type(factor) is float:
            if factor == 1.0:
                return other
            if factor == -1.0:
                return -other
    return a * b


def _is_node(number: Any) -> bool:
    return hasattr(number, "_apply")


def _is_written_by_hand(node: Any) -> bool:
    return node._rule is None or is_hand_written(node)


def _called(node: Any, adjoint: float, as_graph: bool) -> list[tuple[Any, float]]:
    """What a hand-written `_backward` adds to each operand; all gradients are put back as they were."""
    if as_graph:
        raise TypeError(f"{node!r} (`_op` {node._op!r}) {BY_HAND}")
    operands = list(dict.fromkeys(node._operands))
    before = [(other, other.grad) for other in (node, *operands)]
    try:
        for operand in operands:
            operand.grad = 0.0
        node.grad = adjoint
        node._backward()
        return [(operand, operand.grad) for operand in operands]
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
    wanted = [argnums] if isinstance(argnums, int) else list(argnums)
    for k in wanted:
        if not isinstance(k, int) or not -count <= k < count:
            raise ValueError(
                f"`argnums` must be places among the arguments, and {k!r} is none: `{name}` was given {count}"
            )
    return [k % count for k in wanted]

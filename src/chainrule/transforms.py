"""Transforms: a function in, a function for its derivatives out; to any order.

All of it is two sweeps over the nodes between inputs and outputs (`core/sweeps.py`). The result is a number if numbers
went in. If Values went in, or the function captures Values that take gradients, it is a Value that knows where it came
from, so that no gradient is lost on the way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import wraps
from typing import Any

from chainrule.core.deferred import input_like, path_between
from chainrule.core.graph import is_node, number_of
from chainrule.core.recording import constant, detach, frozen, is_recording, is_tracing, recording, standing_in
from chainrule.core.structure import NUMBER, Structure, batch_of, build, difference, flatten, is_one_number, nest, words
from chainrule.ops import as_float

__all__ = ["elementwise_grad", "grad", "grad_of", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp", "vmap"]


def __dir__() -> list[str]:
    return __all__


Function = Callable[..., Any]
Argnums = int | Sequence[int]


def grad(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function that returns the gradient of `function` with respect to argument `argnums`, structured like it.

    `function` must return one number. With several `argnums` the result is a tuple of gradients. With `has_aux` it
    must return a pair (number, anything), and the result is the pair (gradient, anything).

    >>> grad(lambda x: x**3)(2.0), grad(grad(lambda x: x**3))(2.0)
    (12.0, 12.0)
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
    """Like `grad`, but returns a pair: what `function` returns, and the gradient.

    >>> value_and_grad(lambda x, y: x * y)(2.0, 5.0)
    (10.0, 5.0)
    """

    @wraps(function)
    def both(*arguments: Any, **named: Any) -> tuple[Any, Any]:
        call = _Call(function, arguments, named, argnums, has_aux)
        if not is_one_number(call.result):
            problem = f"`{call.name}` returned {words(call.result)}, and a gradient is that of one number"
            raise TypeError(f"{problem}: use chainrule.jacobian, or return one number")
        (output,) = call.outputs
        value = call.build(call.result, [output])
        return call.with_aux(value), call.build(call.structure, call.pull([(output, 1.0)]))

    return both


def elementwise_grad(function: Function, argnums: int = 0) -> Function:
    """A function that returns the derivative of a scalar `function` at every number of a list or an array.

    Arguments are numbers, or lists or arrays of the same structure, which the result has too; numbers are broadcast.
    The derivative is with respect to argument `argnums`.

    >>> elementwise_grad(lambda x: x**3)([1.0, 2.0])
    [3.0, 12.0]
    """
    derivative = grad(function, argnums)

    @wraps(function)
    def derivatives(*arguments: Any, **named: Any) -> Any:
        columns, structure = [], NUMBER
        for k, argument in enumerate(arguments):
            columns.append(list[Any]())
            found = flatten(argument, columns[-1], _number_called(f"argument {k}"))
            if NUMBER not in (found, structure) and found != structure:
                change = difference(structure, found, "an argument")
                raise ValueError(f"the arguments of an elementwise function must be arranged in one way: {change}")
            structure = found if structure == NUMBER else structure
        count = max(map(len, columns), default=0)
        rows = zip(*[column * count if len(column) < count else column for column in columns], strict=True)
        return _built(structure, [derivative(*row, **named) for row in rows])

    return derivatives


def vmap(function: Function, in_axes: int | Sequence[int | None] | None = 0) -> Function:
    """A function of many examples: each argument is a list or an array with one example per entry.

    The result is structured like that of `function`, with an array over the examples in place of each number, as
    `batch` of a compiled function returns it with `reduce=None`. `in_axes` is 0, or None for an argument that all
    examples share; or one of these per argument.

    >>> vmap(grad(lambda x: x[0] * x[1]))([[1.0, 2.0], [3.0, 4.0]])
    [array([2., 4.]), array([1., 3.])]
    """

    @wraps(function)
    def mapped(*arguments: Any, **named: Any) -> Any:
        pairs = list(zip(arguments, _axes(in_axes, len(arguments)), strict=True))
        counts = [_examples_in(argument) for argument, axis in pairs if axis is not None]
        if len(set(counts)) != 1 or counts[0] == 0:
            found = ", ".join(map(str, counts)) or "none, for `in_axes` is None"
            raise ValueError(f"the arguments must have the same number of examples, at least one; they have {found}")
        examples = [[a if axis is None else a[k] for a, axis in pairs] for k in range(counts[0])]
        return _stacked([function(*example, **named) for example in examples])

    return mapped


def jacobian(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function that returns the derivatives of all results of `function` with respect to argument `argnums`.

    It has the structure of the result, with that of the argument in place of each number. `has_aux` as in `grad`.

    >>> jacobian(lambda x: [x[0] * x[1], x[0] + x[1]])([2.0, 3.0])
    [[3.0, 2.0], [1.0, 1.0]]
    """

    @wraps(function)
    def derivatives(*arguments: Any, **named: Any) -> Any:
        call = _Call(function, arguments, named, argnums, has_aux)
        return call.with_aux(call.build(nest(call.result, call.structure), call.jacobian()))

    return derivatives


def hessian(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function that returns the second derivatives of `function`, a function that returns one number.

    It is the Jacobian of the gradient. `has_aux` as in `grad`.

    >>> hessian(lambda x: x[0] ** 2 * x[1])([3.0, 5.0])
    [[10.0, 6.0], [6.0, 0.0]]
    """
    return jacobian(grad(function, argnums, has_aux), argnums, has_aux)


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, ...]:
    """Forward mode: what `function(*primals)` returns, and its derivative in the direction `tangents`.

    With `has_aux`, `function` returns a pair (result, anything), and the second part comes third here.

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
    """Reverse mode: what `function(*primals)` returns, and a function that maps cotangents of the result to gradients.

    With `has_aux`, `function` returns a pair (result, anything), and the second part comes third here.

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
    """The Hessian of `function` at `primals` times the vector `tangents`, in about the time of a gradient.

    Structured like the primal; a tuple if there are several.

    >>> hvp(lambda x: x[0] ** 2 * x[1], ([3.0, 5.0],), ([1.0, 0.0],))
    [10.0, 6.0]
    """
    count = len(_sequence(primals, "primals"))
    return jvp(grad(function, 0 if count == 1 else range(count)), primals, tangents)[1]


def grad_of(output: Any, inputs: Any, create_graph: bool = False) -> Any:
    """The derivatives of a Value with respect to Values it was computed from, structured like `inputs`.

    They are numbers, or with `create_graph` Values that can be differentiated again. No `grad` is touched.

    >>> from chainrule import Value
    >>> x = Value(2.0)
    >>> first = grad_of(x**4, x, create_graph=True)
    >>> first.data, grad_of(first, x)
    (32.0, 48.0)
    """
    if not is_node(output):
        raise TypeError(f"`output` must be a Value, got {type(output).__name__}: compute it from Values")
    nodes: list[Any] = []
    structure = flatten(inputs, nodes, _input)
    path = path_between([output], nodes)
    as_graph = create_graph or is_tracing()
    if not as_graph:
        _ = output.data  # its derivatives are about to be known too
    results = path.pull([(output, 1.0)], as_graph)
    if as_graph:
        results = [_as_node(result) if create_graph else detach(_as_node(result)) for result in results]
    return build(structure, iter(results), object if as_graph else float)


class _Call:
    """A call of a function with fresh nodes in place of the numbers to differentiate with respect to."""

    def __init__(
        self, function: Function, arguments: Sequence[Any], named: dict[str, Any], argnums: Argnums, has_aux: bool
    ) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        places = _places(argnums, len(arguments), self.name)
        given, structures, numbers_given = list(arguments), [], list[Any]()
        self.recorded = is_recording()
        with recording():
            for k in places:
                numbers: list[Any] = []
                structures.append(flatten(arguments[k], numbers, _number_called(f"argument {k}")))
                fresh = [input_like(_as_node(number)) for number in numbers]
                given[k] = build(structures[-1], iter(fresh))
                self.inputs += fresh
                numbers_given += numbers
            with standing_in(self.inputs, numbers_given):
                returned = function(*given, **named)
            result, *aux = self._pair(returned) if has_aux else [returned]
            self.result = flatten(result, self.outputs, self._output)
        self.structure: Structure = (tuple, tuple(structures)) if isinstance(argnums, Iterable) else structures[0]
        others: list[Any] = []
        flatten(aux, others, lambda leaf: leaf)
        self.path = path_between([*self.outputs, *filter(is_node, others)], self.inputs)
        self.gives_values = any(map(is_node, numbers_given)) or self.path.meets_others() or is_tracing()
        self.aux = [self._shown(thing) for thing in aux]  # none, or one thing

    def joined_by(self, numbers: Sequence[Any]) -> _Call:
        """This call, returning Values if any of these numbers is one."""
        if not any(map(is_node, numbers)):
            return self
        call = copy(self)
        call.gives_values = True
        return call

    def pull(self, seeds: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The derivatives of Σ seed · output with respect to the inputs."""
        with recording():
            return self.path.pull(self._seeds(seeds), self.as_graph)

    def push(self, seeds: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The changes of the outputs as the inputs change by `seeds`."""
        with recording():
            return self.path.push(self._seeds(seeds), self.as_graph)[: len(self.outputs)]

    def jacobian(self) -> list[Any]:
        """The derivatives of all outputs with respect to all inputs, output by output."""
        with recording():
            return self.path.jacobian(len(self.outputs), self.as_graph)

    def _seeds(self, seeds: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for node, seed in seeds:
            yield node, seed if self.as_graph or not is_node(seed) else seed.data

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
            return frozen(number.data if is_node(number) else number)
        return number_of(number) if is_node(number) else float(number)

    def with_aux(self, result: Any) -> Any:
        """The result, in a pair with what else the function returned if there is such a thing."""
        return (result, *self.aux) if self.aux else result

    def _pair(self, returned: Any) -> tuple[Any, Any]:
        if not isinstance(returned, tuple) or len(returned) != 2:
            problem = f"`{self.name}` returned {type(returned).__name__}, and with `has_aux` it must return a pair"
            raise TypeError(f"{problem}: the result, and whatever else is of interest")
        return returned

    def _shown(self, thing: Any) -> Any:
        """Anything, with its nodes as the caller is to see them."""
        leaves: list[Any] = []
        structure = flatten(thing, leaves, lambda leaf: leaf)
        if not any(map(is_node, leaves)):
            return thing
        return _built(structure, [self.kind(leaf) if is_node(leaf) else leaf for leaf in leaves])

    def _output(self, leaf: Any) -> Any:
        try:
            return leaf if is_node(leaf) else as_float(leaf)
        except TypeError:
            problem = f"`{self.name}` returned {type(leaf).__name__} {leaf!r:.40}"
            raise TypeError(f"{problem}: return a number, or lists, tuples, dicts or arrays of them") from None


def _as_node(number: Any) -> Any:
    return number if is_node(number) else constant(number)


def _number_called(name: str) -> Callable[[Any], Any]:
    """What is taken for a number: a node, or a real number; an error about anything else has this name."""
    return lambda given: given if is_node(given) else as_float(given, name)


def _input(given: Any) -> Any:
    if is_node(given):
        return given
    raise TypeError(f"`inputs` must be Values, got {type(given).__name__}: give those that `output` was computed from")


def _built(structure: Structure, leaves: list[Any]) -> Any:
    """A structure of these; its arrays are of floats if all of them are."""
    return build(structure, iter(leaves), float if set(map(type, leaves)) <= {float} else object)


def _axes(in_axes: Any, count: int) -> list[int | None]:
    """An axis, or None, for each of `count` arguments."""
    axes = [in_axes] * count if in_axes is None or isinstance(in_axes, int) else list(in_axes)
    if len(axes) != count or any(axis not in (0, None) for axis in axes):
        wanted = f"0 or None, or have one of these for each of {count} arguments"
        raise ValueError(f"`in_axes` must be {wanted}; got {in_axes!r}")
    return axes


def _examples_in(argument: Any) -> int:
    if not hasattr(argument, "__len__") or isinstance(argument, (str, dict)):
        wanted = "a list or an array with an example in each entry"
        remedy = "say None in `in_axes` for one that is the same for all"
        raise TypeError(f"an argument must be {wanted}, got {type(argument).__name__}: {remedy}")
    return len(argument)


def _stacked(results: list[Any]) -> Any:
    """The structure of the results, with an array of all in place of each number."""
    import numpy as np

    rows: list[list[Any]] = [[] for _ in results]
    structures = [flatten(result, row, _number_called("a result")) for result, row in zip(results, rows, strict=True)]
    for k, structure in enumerate(structures):
        if structure != structures[0]:
            change = difference(structures[0], structure, "the result")
            raise ValueError(f"the results must be arranged in one way for all examples: for example {k} {change}")
    dtype = float if {type(entry) for row in rows for entry in row} <= {float} else object
    matrix = np.empty((len(rows), len(rows[0])), dtype=dtype)
    for k, row in enumerate(rows):
        matrix[k] = row
    return batch_of(structures[0], matrix)


def _like(structure: Structure, given: Any, argument: str, model: str) -> list[Any]:
    """The numbers in `given`, which must have this structure."""
    numbers: list[Any] = []
    found = flatten(given, numbers, _number_called(argument))
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
            problem = f"`argnums` must be places among the arguments, and {k!r} is none"
            raise ValueError(f"{problem}: `{name}` was given {count} by their places")
    places = [operator.index(k) % count for k in wanted]
    if len(set(places)) < len(places):
        raise ValueError(f"`argnums` must name each argument once, got {argnums!r}")
    return places

"""Names for array elements: `parameter[48+17j+k]` is `layers.1.neurons[j].w[k]` to the network's author.

An access to an array whose elements have names is shown as the name at its base, with a loop's letter in place of the
number that the loop changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.core.structure import ARRAY, NUMBER, Keys, Named, Structure

if TYPE_CHECKING:
    from chainrule.compiler.passes.program import Array, ArrayProgram
    from chainrule.core.value import Value
    from chainrule.nn import Module


def names_of_parameters(
    program: ArrayProgram, leaves: Sequence[tuple[str, list[Value]]], model: Module | None
) -> dict[Array, Sequence[str]]:
    """The model's names for the elements of the leaves and of the gradient, by array; none without a model."""
    if model is None:
        return {}
    known = {parameter: name for name, parameter in model.named_parameters()}
    found: dict[Array, Sequence[str]] = {}
    for kind, nodes in leaves:
        names = [known.get(node, f"{kind}.{k}") for k, node in enumerate(nodes)]
        if kind in program.leaves:
            found[program.leaves[kind]] = names
        if kind == "parameter" and program.gradient is not None:
            found[program.gradient] = [f"∂{name}" for name in names]
    return found


class ArgumentNames(Sequence[str]):
    """The names of the numbers in a function's arguments; in a batch, of all examples' numbers.

    `used` selects the numbers that are named, in order. In a batch, each stands for one number per example.

    >>> list(ArgumentNames(lambda a, rows: a, (NUMBER, (list, ((list, (NUMBER, NUMBER)),))), [0, 2]))
    ['a', 'rows.0.1']
    >>> list(ArgumentNames(lambda x: x, (NUMBER,), [0], examples=3))
    ['x.0', 'x.1', 'x.2']
    """

    def __init__(self, function: Callable[..., Any], structure: Structure, used: Any, examples: int = 0) -> None:
        every = [(argument, path) for argument, part in _arguments(function, structure) for path in _paths(part)]
        self.used = [every[k] for k in used]
        self.examples = examples

    def __len__(self) -> int:
        return len(self.used) * max(1, self.examples)

    def __getitem__(self, position: Any) -> Any:
        place, example = divmod(position, max(1, self.examples))
        argument, path = self.used[place]
        return f"{argument}.{example}{path}" if self.examples else f"{argument}{path}"


def argument_spans(function: Callable[..., Any], structure: Structure) -> str:
    """Which of the numbers in a function's arguments belong to which argument.

    >>> argument_spans(lambda x, rows: x, (NUMBER, (list, (NUMBER, NUMBER))))
    '0: x, 1 to 2: rows'
    """
    spans, start = [], 0
    for name, part in _arguments(function, structure):
        count = sum(1 for _ in _paths(part))
        if count:
            spans.append(f"{start}: {name}" if count == 1 else f"{start} to {start + count - 1}: {name}")
        start += count
    return ", ".join(spans)


def _arguments(function: Callable[..., Any], structure: Structure) -> list[tuple[str, Structure]]:
    """Each argument's name and structure, those that were given by name at the end.

    >>> _arguments(lambda x, scale: x, (NUMBER, (Keys(("scale",), Named), (NUMBER,))))
    [('x', 'number'), ('scale', 'number')]
    """
    *others, last = structure or [NUMBER]
    if last == NUMBER or getattr(last[0], "kind", None) is not Named:
        return list(zip(_parameters(function, len(structure)), structure, strict=True))
    kind, parts = last
    return [*_arguments(function, tuple(others)), *zip(kind.keys, parts, strict=True)]


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes an argument by this name, as far as its signature is known.

    >>> takes(lambda x, scale: x, "scale"), takes(lambda x, scale: x, "skale"), takes(lambda **others: 0.0, "any")
    (True, False, True)
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """The names of a function's first arguments; `input.0` and so on if its signature is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    more = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "input")
    return [names[k] if k < len(names) else f"{more}.{k - len(names)}" for k in range(count)]


def _paths(structure: Structure) -> Iterator[str]:
    """The path to each number, as in `.0.1`."""
    if structure == NUMBER:
        yield ""
        return
    kind, parts = structure
    if kind is ARRAY:
        yield from ("".join(f".{i}" for i in index) for index in np.ndindex(*parts))
        return
    for k, part in zip(kind.keys if isinstance(kind, Keys) else range(len(parts)), parts, strict=True):
        yield from (f".{k}{path}" for path in _paths(part))


def name_of(names: Sequence[str], base: int, moves: Sequence[tuple[int, int, str]]) -> str | None:
    """The name of the element at base + Σ stride·index, for loops of (stride, extent, letter); None if no name fits.

    >>> names = [f"neurons.{j}.{p}" for j in range(4) for p in ("w.0", "w.1", "b")]
    >>> name_of(names, 0, [(3, 4, "j"), (1, 2, "k")])
    'neurons[j].w[k]'
    >>> name_of(names, 5, [])
    'neurons[1].b'
    >>> name_of(names, 0, [(1, 3, "k")]) is None
    True
    """
    parts = names[base].split(".")
    indices: dict[int, list[str]] = {k: [] for k, part in enumerate(parts) if part.isdigit()}
    for stride, extent, letter in moves:
        if stride == 0 or extent == 1:
            continue
        place = _moving_part(names, base, stride, extent)
        if place is None:
            return None
        indices[place].append(letter)
    text = ""
    for k, part in enumerate(parts):
        if k in indices:
            offset = [part] if part != "0" or not indices[k] else []
            text += f"[{'+'.join(offset + indices[k])}]"
        else:
            text += f".{part}" if text else part
    return text


def _moving_part(names: Sequence[str], base: int, stride: int, extent: int) -> int | None:
    """Which part of the name grows by one each time the element moves by `stride`; None if none always does."""
    if not 0 <= base + stride * (extent - 1) < len(names):
        return None
    parts = names[base].split(".")

    def name_at(turn: int, place: int) -> str:
        return ".".join([*parts[:place], str(int(parts[place]) + turn), *parts[place + 1 :]])

    for place, part in enumerate(parts):
        if part.isdigit() and all(names[base + stride * t] == name_at(t, place) for t in range(1, extent)):
            return place
    return None

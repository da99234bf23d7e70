"""Names for array elements: `parameter[48+17j+k]` is `layers.1.neurons[j].w[k]` to whoever wrote the network.

An array whose elements have names is read like this: the name at the base, with a loop's letter in place of the number
that changes as the loop goes on.
"""

from __future__ import annotations

from collections.abc import Sequence


def name_of(names: Sequence[str], base: int, moves: Sequence[tuple[int, int, str]]) -> str | None:
    """The name of the element at base + Σ stride·index, for loops of (stride, extent, letter); None if there is none.

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
    """Which part of the name counts up by one as the element moves by `stride`, all the way; None if none does."""
    start = names[base].split(".")
    place = None
    for turn in range(1, extent):
        position = base + stride * turn
        if not 0 <= position < len(names):
            return None
        here = names[position].split(".")
        differing = [k for k, (a, b) in enumerate(zip(start, here, strict=False)) if a != b]
        if len(here) != len(start) or len(differing) != 1 or place not in (None, differing[0]):
            return None
        place = differing[0]
        if not (here[place].isdigit() and start[place].isdigit()) or int(here[place]) - int(start[place]) != turn:
            return None
    return place

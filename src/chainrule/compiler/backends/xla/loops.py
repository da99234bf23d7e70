"""An array program on JAX arrays: statements in order, and a Repeat as a `scan`.

At one time a Repeat touches a few rows of an array that it writes, and next time the rows after them. Of these rows,
its *window*, a scan hands over what the next time touches too. What leaves the window is kept if somebody reads it
later. So each time costs what its rows cost, and not what the arrays of all times would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from chainrule.compiler.backends.xla.pieces import Pieces
from chainrule.compiler.backends.xla.statements import Block, Factor, Memory
from chainrule.compiler.passes.distribute import distribute
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Shape, Statement, span
from chainrule.compiler.passes.time_first import time_first

WIDE = 256  # numbers that a window may hand over, or eight rows if that is more
Span = tuple[int, int]  # where a part of an array begins and ends


def computation(program: ArrayProgram, wanted: Sequence[Array]) -> Callable[[Mapping[Array, Any]], list[Any]]:
    """A pure function from the leaves to the `wanted` arrays; it computes in the type of the leaves."""
    program = distribute(time_first(program))
    later = _read_later(program, wanted)

    def run(leaves: Mapping[Array, Any]) -> list[Any]:
        dtype = jnp.result_type(*leaves.values(), jnp.float32) if leaves else jnp.result_type(float)
        memory: Memory = {}
        for array in program.arrays():
            numbers = leaves.get(array, array.numbers)
            vector = None if numbers is None else jnp.asarray(numbers, dtype)
            memory[array] = Pieces(array.size, dtype, vector)
        whole = Block(memory, dtype)
        for step, needed in zip(program.steps, later, strict=True):
            _repeat(step, whole, needed) if isinstance(step, Repeat) else whole.statement(step)
        return [memory[array].whole() for array in wanted]

    return run


def _read_later(program: ArrayProgram, wanted: Sequence[Array]) -> list[dict[Array, Span]]:
    """For each step, what is read after it."""
    needed: dict[Array, Span] = {array: (0, array.size) for array in wanted}
    found = []
    for step in reversed(program.steps):
        found.append(dict(needed))
        for statement in step.body:
            for access, loops in _reads(statement):
                low, high = span(access, loops, step.count)
                first, last = needed.get(access.array, (low, high))
                needed[access.array] = min(low, first), max(high, last)
    return found[::-1]


def _reads(statement: Statement) -> Iterator[tuple[Access, Shape]]:
    (target, loops), *others = statement.accesses_in_loops()
    yield from others
    if statement.accumulate:
        yield target, loops


class Window:
    """The part of an array that a Repeat touches at one time: `width` numbers, from `low` on at time 0.

    It moves by `repeat` per time; what it touches at all times together is the `region`.
    """

    def __init__(self, array: Array, part: Span, repeat: int, step: Repeat) -> None:
        self.array = array
        self.repeat = repeat
        self.row = abs(repeat)
        self.width = max(part[1] - part[0], self.row)
        way = repeat * (step.count - 1)
        start = part[0] + min(way, 0)
        start -= max(0, start + abs(way) + self.width - array.size)
        self.region = start, start + abs(way) + self.width
        self.low = start - min(way, 0)
        self.upward = (repeat > 0) != step.backward
        self.inside = Array(array.name, self.width, array.kind)

    @property
    def fits(self) -> bool:
        """Whether the region lies in the array, and little enough is handed over from one time to the next."""
        return self.region[0] >= 0 and self.width - self.row <= max(WIDE, 8 * self.row)

    def moved(self, access: Access) -> Access:
        """The same element as one of the window."""
        table = access.table
        base = access.base - self.low if table is None else access.base
        shifted = None if table is None else table - self.low
        return Access(self.inside, base, access.strides, shifted, access.repeat - self.repeat)

    # What is handed over lies at one end of the window, and a row at the other: the one that enters at the start of a
    # time, and the one that leaves at its end. Of the region, all rows that enter are one part, all that leave another.

    def begin(self, pieces: Pieces) -> tuple[Any, Any]:
        """What is handed to the first time, and the rows that enter; None if these are zeros."""
        start, stop = self.region
        shared = self.width - self.row
        if self.upward:
            first, rows = (start, start + shared), (start + shared, stop)
        else:
            first, rows = (stop - shared, stop), (start, stop - shared)
        entering = None if not self.row or pieces.is_zero(*rows) else self._rows(pieces.read(*rows))
        return pieces.read(*first), entering

    def _rows(self, numbers: Any) -> Any:
        rows = numbers.reshape(-1, self.row)
        return rows if self.repeat > 0 else rows[::-1]

    def enter(self, shared: Any, row: Any, dtype: Any) -> Pieces:
        pieces = Pieces(self.width, dtype)
        pieces.write(0 if self.upward else self.row, shared)
        if row is not None:
            pieces.write(self.width - self.row if self.upward else 0, row)
        return pieces

    def leave(self, pieces: Pieces) -> tuple[Any, Any]:
        """What is handed over, and the row that leaves."""
        if self.upward:
            return pieces.read(self.row, self.width), pieces.read(0, self.row)
        return pieces.read(0, self.width - self.row), pieces.read(self.width - self.row, self.width)

    def end(self, pieces: Pieces, shared: Any, rows: Any) -> None:
        """Store what the last time handed over, and the rows that left: all of them, only the last, or none."""
        start, stop = self.region
        numbers = shared[:0] if rows is None else jnp.ravel(rows if self.repeat > 0 or rows.ndim == 1 else rows[::-1])
        if self.upward:
            pieces.write(stop - len(shared) - len(numbers), numbers)
            pieces.write(stop - len(shared), shared)
        else:
            pieces.write(start, shared)
            pieces.write(start + len(shared), numbers)

    def kept(self, needed: Mapping[Array, Span]) -> str:
        """Which of the rows that leave are read later: "all", the "last" or "none"."""
        if not self.row or self.array not in needed:
            return "none"
        start, stop = self.region
        low, high = max(needed[self.array][0], start), min(needed[self.array][1], stop)
        if low >= high:
            return "none"
        first, end = (stop - self.width, stop) if self.upward else (start, start + self.width)
        return "last" if first <= low and high <= end else "all"


def _windows(step: Repeat) -> dict[Access, Window]:
    """For each access to an array that the Repeat writes, the window that it touches.

    An array that moves is one window, and one that stands still has a window for each part that is touched. One that
    moves in several ways, or too far, is handed over as a whole.
    """
    touched: dict[Array, dict[Access, Span]] = {statement.target.array: {} for statement in step.body}
    for statement in step.body:
        for access, loops in statement.accesses_in_loops():
            if access.array in touched:
                touched[access.array][access] = span(access, loops)
    found: dict[Access, Window] = {}
    for array, spans in touched.items():
        windows = _windows_of(array, spans, step)
        for access, (low, _) in spans.items():
            found[access] = next(window for window in reversed(windows) if window.low <= low or window is windows[0])
    return found


def _windows_of(array: Array, spans: Mapping[Access, Span], step: Repeat) -> list[Window]:
    """The windows of one array, in order, if accesses touch these parts at time 0."""
    parts = _apart(spans.values())
    repeats = {access.repeat for access in spans}
    if repeats == {0}:
        return [Window(array, part, 0, step) for part in parts]
    moving = Window(array, (parts[0][0], parts[-1][1]), repeats.pop(), step)
    return [moving if not repeats and moving.fits else Window(array, (0, array.size), 0, step)]


def _apart(spans: Iterable[Span]) -> list[Span]:
    """The same places as spans in order, with gaps between them."""
    found: list[Span] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            low, high = found[-1][0], max(high, found.pop()[1])
        found.append((low, high))
    return found


def _repeat(step: Repeat, outer: Block, needed: Mapping[Array, Span]) -> None:
    """Run a Repeat after what `outer` has run. Of what it writes, `needed` is read later."""
    memory, dtype = outer.memory, outer.dtype
    windows, body = _on_windows(step)
    known = _known(body, outer)
    begun = [window.begin(memory[window.array]) for window in windows]
    kept = [window.kept(needed) for window in windows]

    def chosen(which: str, rows: Iterable[Any]) -> list[Any]:
        return [row if keep == which else None for row, keep in zip(rows, kept, strict=True)]

    def turn(state: Any, given: Any) -> Any:
        (shared, _), (time, rows) = state, given
        inner = {w.inside: w.enter(part, row, dtype) for w, part, row in zip(windows, shared, rows, strict=True)}
        block = Block(memory | inner, dtype, time, step.count, known)
        for statement in body:
            block.statement(statement)
        left = [window.leave(inner[window.inside]) for window in windows]
        rows = [row for _, row in left]
        return ([part for part, _ in left], chosen("last", rows)), chosen("all", rows)

    start = [part for part, _ in begun], chosen("last", [jnp.zeros(window.row, dtype) for window in windows])
    times = np.arange(step.count, dtype=np.int32)
    (shared, last), every = lax.scan(turn, start, (times, [rows for _, rows in begun]), reverse=step.backward)
    for window, part, row, rows in zip(windows, shared, last, every, strict=True):
        window.end(memory[window.array], part, row if rows is None else rows)


def _on_windows(step: Repeat) -> tuple[list[Window], list[Statement]]:
    """The windows of a Repeat, and its body with accesses to them."""
    window_of = _windows(step)
    body = [statement.map(lambda a: window_of[a].moved(a) if a in window_of else a) for statement in step.body]
    return list(dict.fromkeys(window_of.values())), body


def _known(body: Sequence[Statement], outer: Block) -> dict[tuple[Access, Shape], Factor]:
    """What the body of a Repeat reads at the same place each time, and does not write: read before it starts.

    Of what it reads at other places and does not write, the pieces are put together before it starts.
    """
    found = {}
    for statement in body:
        for access, loops in _reads(statement):
            if access.array in outer.memory:
                if access.repeat:
                    outer.memory[access.array].join()
                else:
                    found[access, loops] = outer.read(access, loops)
    return found

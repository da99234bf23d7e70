"""Arguments of a compiled function: the traces for their structure, and the numbers in them as machines take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.backends.protocol import Columns, Wiring
from chainrule.compiler.passes.layout import padded
from chainrule.compiler.run.machine import Machine
from chainrule.compiler.run.paths import Paths
from chainrule.compiler.run.rows import Rows, alike, by_structure, first_row, number, on_host
from chainrule.compiler.run.traced import Source, Traced
from chainrule.compiler.run.turns import compiling
from chainrule.compiler.trace.symbols import refuse_numbers
from chainrule.core.bulk import fill, refrozen
from chainrule.core.recording import is_tracing
from chainrule.core.structure import NUMBER, Keys, Named, Static, Structure, flatten

READABLE = [{np.dtype(np.float64)}, {np.dtype(np.float32)}]  # the types that all matrices must have
REDUCED = ("mean", "sum")  # what may become of the results of a batch
MOST_ASIDE = 16  # structures whose traces are out of date
MOST_RECENT = 4  # structures that arguments are compared with before theirs is found, and batches likewise


class Recent(NamedTuple):
    """A recent batch, all of whose arrays lie on the GPU. It does not keep them alive."""

    arrays: Any  # device_arrays.Seen
    paths: Paths
    examples: Examples
    as_of: int  # what `refrozen()` was when the traces were up to date


class Ready(NamedTuple):
    """What a call needs if its arguments are like those of an earlier one, and go into memory as they are."""

    structure: Structure  # of the tuple of arguments
    traced: Traced
    run: Any  # as `Source.ran` is told of it
    code: Any
    as_of: int  # what `refrozen()` was when the trace was up to date


class Group(NamedTuple):
    """Examples of one structure, the traces for it, and the examples' numbers among all if there are others."""

    paths: Paths
    examples: Examples
    numbers: np.ndarray | None = None

    @property
    def places(self) -> np.ndarray:
        """The examples' numbers."""
        return np.arange(self.examples.count) if self.numbers is None else self.numbers

    def between(self, start: int, stop: int) -> Group | None:
        """The examples whose numbers are in this range; None if there are none."""
        first, last = np.searchsorted(self.numbers, [start, stop]) if self.numbers is not None else (start, stop)
        if first == last:
            return None
        if start == 0 and (first, last) == (0, self.examples.count):
            return self
        numbers = None if self.numbers is None else self.numbers[first:last] - start
        return Group(self.paths, self.examples.chosen(range(first, last)), numbers)


class Traces:
    """The traces of a function, by the structure of the arguments."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.by_structure: dict[Structure, Paths] = {}
        self._recent: tuple[tuple[Structure, Paths, int], ...] = ()  # the last is what `_as_of` was
        self._recent_batches: tuple[Recent, ...] = ()
        self._ready: tuple[Ready, ...] = ()
        self._aside: list[tuple[Structure, Paths]] = []
        self._as_of = refrozen()

    def on_numbers(self, inputs: Sequence[Any]) -> tuple[Traced, np.ndarray, np.ndarray | None]:
        """The trace for these arguments, the numbers in them, and the captured data that it is for (see `Paths.of`)."""
        self.bring_up_to_date()
        paths, numbers = self._as_before(tuple(inputs)) or self._flattened(inputs)
        traced, moment = paths.of(numbers)
        if traced.classes:
            traced.check_classes(numbers[None, sorted(traced.classes)])
        return traced, numbers, moment

    def ready(self, inputs: tuple[Any, ...]) -> tuple[Ready, Machine] | None:
        """What a call like an earlier one needs, and a machine with the arguments' numbers; None if there was none."""
        if not self._ready or is_tracing():
            return None
        now = refrozen()
        for ready in self._ready:
            if ready.as_of != now:
                continue
            machine: Machine = ready.code.take()
            if fill(ready.structure, inputs, machine.inputs, np.ndarray, Static):
                return ready, machine
            ready.code.give_back(machine)
        return None

    def get_ready(self, traced: Traced) -> None:
        """Let the next call with such arguments begin at once, if there is nothing to check before it."""
        now = refrozen()  # before a look at what is frozen: if another thread changes that later, this is out of date
        if traced.guards is not None or traced.classes or not traced.uses_all or traced.result != NUMBER:
            return
        if any(ready.traced is traced and ready.as_of == now for ready in self._ready):
            return
        run = traced.run_of_one()
        machine = run[2].first
        if isinstance(machine, Machine) and machine.inputs.size == traced.count > 0 and traced.is_current():
            others = [other for other in self._ready if other.traced is not traced]
            self._ready = (Ready((tuple, traced.structure), traced, run, run[2], now), *others)[:MOST_RECENT]

    def bring_up_to_date(self) -> None:
        """Put traces aside that were made when other Values were frozen, which then had other gradients.

        They are kept for when the same are frozen again, as where two networks are trained in turn.
        """
        now = refrozen()
        if self._as_of == now:
            return
        with compiling(self.source):
            active, every = len(self.by_structure), [*self.by_structure.items(), *self._aside]
            current = [paths.is_current() for _, paths in every]
            self.by_structure = {key: paths for (key, paths), is_it in zip(every, current, strict=True) if is_it}
            self._aside = [entry for entry, is_it in zip(every, current, strict=True) if not is_it][:MOST_ASIDE]
            self._recent, self._ready, kept = (), (), [*self.by_structure.values()]
            self._recent_batches = tuple(
                [recent._replace(as_of=now) for recent in self._recent_batches if recent.paths in kept]
            )
            if not all(current[:active]):
                self.source.forget_latest()
            self._as_of = now

    def _as_before(self, inputs: tuple[Any, ...]) -> tuple[Paths, np.ndarray] | None:
        """The numbers, if they are arranged as in a recent call: then their structure need not be found again."""
        for structure, paths, as_of in self._recent:
            numbers = np.empty(paths.count)
            if as_of == self._as_of and fill((tuple, structure), inputs, numbers, np.ndarray, Static):
                return paths, numbers
        return None

    def _flattened(self, inputs: Sequence[Any]) -> tuple[Paths, np.ndarray]:
        numbers: list[float] = []
        as_of = self._as_of  # before the traces are looked up, which another thread may then put aside
        accepts = [partial(number, f"argument {k}") for k in range(len(inputs))]
        structure = tuple([structure_of(given, numbers, accept) for given, accept in zip(inputs, accepts, strict=True)])
        paths = self.by_structure.get(structure) or self._begin(structure, numbers)
        others = [recent for recent in self._recent if recent[1] is not paths]
        self._recent = ((structure, paths, as_of), *others)[:MOST_RECENT]
        return paths, np.array(numbers, dtype=np.float64)

    def on_examples(self, arrays: Sequence[Any], names: Sequence[str] = ()) -> tuple[Paths, Examples]:
        """The traces for examples of these arguments, which have a leading axis, and all of their examples."""
        refuse_numbers("calls a batch of a compiled function")
        self.bring_up_to_date()
        if not names and (recent := self._seen(arrays)) is not None:
            return recent.paths, recent.examples.lent_by(arrays)
        return self._even(arrays, alike(arrays, names), names)

    def by_structures(self, arrays: Sequence[Any]) -> list[Group]:
        """As `on_examples`, for examples whose structures may differ: a group for each, in the order of the first."""
        refuse_numbers("calls a batch of a compiled function")
        self.bring_up_to_date()
        if (recent := self._seen(arrays)) is not None:
            return [Group(recent.paths, recent.examples.lent_by(arrays))]
        parts = by_structure(arrays)
        if len(parts) == 1:
            return [Group(*self._even(arrays, parts[0]))]
        self.source.expect([part.structure for part in parts])
        return [Group(*self._group(part), part.numbers) for part in parts]

    def _even(self, arrays: Sequence[Any], rows: Rows, names: Sequence[str] = ()) -> tuple[Paths, Examples]:
        """The traces and all examples of a batch that has one structure."""
        as_of = self._as_of  # before the traces are looked up, which another thread may then put aside
        paths, examples = self._group(rows)
        if not names and examples.are_all_on_device:
            self._remember(arrays, paths, examples, as_of)
        return paths, examples

    def _group(self, rows: Rows) -> tuple[Paths, Examples]:
        """The traces for examples of one structure, and these."""
        paths = self.by_structure.get(rows.structure)
        if paths is None:
            first_numbers = [number for matrix in rows.matrices for number in first_row(matrix).tolist()]
            paths = self._begin(rows.structure, first_numbers)
        first = paths.known.paths[0]
        examples = Examples(rows.matrices, first)
        if paths.only is not None and not (self.source.backend == "cuda" and examples.are_on_device):
            examples.check_classes(first)  # on a device, the program does
        return paths, examples

    def recent(self, arrays: Sequence[Any], known: str) -> Recent | None:
        """A recent batch of the same arrays, all on the GPU, of which that is known (see `Examples.resident`).

        None also if anything else must be seen to first.
        """
        if not self._recent_batches or is_tracing() or self._as_of != refrozen():
            return None
        return self._seen(arrays, known)

    def _seen(self, arrays: Sequence[Any], known: str = "") -> Recent | None:
        """A recent batch of the same arrays, if its traces are up to date, and of which that is known."""
        for recent in self._recent_batches:
            is_known = recent.as_of == self._as_of and (not known or known in recent.examples.resident)
            if is_known and recent.arrays.are(arrays):
                return recent
        return None

    def _remember(self, arrays: Sequence[Any], paths: Paths, examples: Examples, as_of: int) -> None:
        """Let the next call with the same arrays begin at once."""
        from chainrule.compiler.backends.cuda.device_arrays import Seen

        if (seen := Seen.of(arrays)) is not None:
            others = [recent for recent in self._recent_batches if recent.arrays.are_alive]
            self._recent_batches = (Recent(seen, paths, examples.unowned(), as_of), *others)[:MOST_RECENT]

    def to_reduce(self, arrays: Sequence[Any], reduce: str) -> tuple[Paths, Examples, int]:
        """As `on_examples`, and what to divide the sum of all results by."""
        check_reduction(reduce)
        paths, examples = self.on_examples(arrays)
        return paths, examples, examples.count if reduce == "mean" else 1

    def _begin(self, structure: Structure, numbers: list[float]) -> Paths:
        with compiling(self.source):
            if structure not in self.by_structure:
                self.by_structure[structure] = Paths(self.source, structure, numbers)
            return self.by_structure[structure]


def check_reduction(reduce: str) -> None:
    """Refuse what is neither a mean nor a sum."""
    if reduce not in REDUCED:
        raise ValueError(f"`reduce` must be 'mean', 'sum' or None, got {reduce!r}")


def structure_of(argument: Any, numbers: list[Any], accept: Callable[[Any], Any]) -> Structure:
    """The structure of an argument; appends its numbers. None, a string and a bool are part of the structure.

    Inside of lists they are not: there a bool is a number, as data has them, and None and a string are mistakes.
    """
    if argument is None or type(argument) in (bool, str):
        return Static(argument), ()
    if type(argument) is Named:
        parts = [structure_of(entry, numbers, accept) for entry in argument.values()]
        return Keys(tuple(argument), Named), tuple(parts)
    return flatten(argument, numbers, accept, floats=True)


class Examples:
    """The arguments of a batch: matrices with one row per example."""

    def __init__(self, matrices: Sequence[np.ndarray], traced: Traced) -> None:
        self.count, self.used = matrices[0].shape[0], traced.used
        self.resident: dict[Any, Any] = {}  # where the numbers are on a device, once they are there
        self.lenders: Sequence[Any] = ()  # arrays of others that matrices without an owner lie in
        if traced.spans is None:
            widths = [matrix.shape[1] for matrix in matrices]
            traced.class_spans = _spans(widths, np.array(sorted(traced.classes), dtype=np.int64))
            traced.wiring = Wiring(widths, traced.used)
            traced.spans = _spans(widths, traced.used)  # last: another thread that sees them goes on
        self.wiring: Wiring = traced.wiring
        self.pieces = [(matrix, *span) for matrix, span in zip(matrices, traced.spans, strict=True)]

    @property
    def are_on_device(self) -> bool:
        """Whether some of their numbers lie on a GPU."""
        return not all(isinstance(matrix, np.ndarray) for matrix, *_ in self.pieces)

    @property
    def are_all_on_device(self) -> bool:
        """Whether all of their numbers lie on a GPU, and are read there."""
        return not any(isinstance(matrix, np.ndarray) for matrix, *_ in self.pieces)

    def unowned(self) -> Examples:
        """The same, without what keeps the arrays alive: to be kept, and used when they are lent again."""
        other = copy(self)
        matrices: list[Any] = [matrix for matrix, *_ in self.pieces]
        spans = [span for _, *span in self.pieces]
        other.pieces = [(replace(matrix, owner=None), *span) for matrix, span in zip(matrices, spans, strict=True)]
        other.resident = {}
        return other

    def lent_by(self, arrays: Sequence[Any]) -> Examples:
        """The same, of these arrays, which are as they were."""
        other = Examples.__new__(Examples)
        other.__dict__.update(self.__dict__)
        other.lenders = arrays
        return other

    def keep_while_busy(self) -> None:
        """Keep the arrays until the GPU is idle, after a call that ended before its work."""
        if self.lenders:
            matrix: Any = self.pieces[0][0]
            matrix.device.keep(self.lenders)

    def chosen(self, numbers: Sequence[int]) -> Examples:
        """The examples with these numbers; a view of the same memory if they are consecutive."""
        other, which = copy(self), _span(np.array(numbers))
        if isinstance(which, slice) and (which.start, which.stop) == (0, self.count):
            return self
        other.pieces = [(on_host(matrix)[which], *span) for matrix, *span in self.pieces]
        other.count, other.resident = len(other.pieces[0][0]), {}
        return other

    def on(self, traced: Traced, numbers: np.ndarray) -> Examples:
        """The examples with these numbers, all of which take this path."""
        which = _span(numbers)
        examples = Examples([on_host(matrix)[which] for matrix, *_ in self.pieces], traced)
        examples.check_classes(traced)
        return examples

    def filled(self, count: int) -> Examples:
        """So many examples: these, and then copies of the last one."""
        if count == self.count:
            return self
        which = np.minimum(np.arange(count), self.count - 1)
        other = copy(self)
        other.pieces = [(on_host(matrix)[which], *span) for matrix, *span in self.pieces]
        other.count, other.resident = len(which), {}
        return other

    def arguments(self) -> np.ndarray:
        """One row per example, of all numbers in the arguments."""
        return np.concatenate([on_host(matrix) for matrix, *_ in self.pieces], axis=1, dtype=np.float64)

    def check_classes(self, traced: Traced) -> None:
        """Refuse examples that have no class index where this path needs one."""
        if traced.classes:
            pieces = zip(self.pieces, traced.class_spans, strict=True)
            traced.check_classes(np.hstack([on_host(matrix)[:, own] for (matrix, *_), (own, _) in pieces]))

    def matrix(self) -> np.ndarray:
        """One row per example, of the numbers that the program uses."""
        return self.arguments()[:, self.used]

    def inputs(self, firsts: range, machine: Machine) -> np.ndarray | Columns:
        """The inputs of many runs, which begin at `firsts`: as they are, if the machine reads them so, or as rows."""
        matrices = [matrix for matrix, *_ in self.pieces]
        readable = len(self.used) > 0 and machine.reads_columns and _are_readable(matrices)
        if machine.reads_rows and not readable:
            matrices = [np.ascontiguousarray(on_host(matrix), dtype=np.float64) for matrix in matrices]
        if readable or machine.reads_rows:
            return Columns(matrices, self.wiring, firsts, padded(firsts.step))
        return self.rows(firsts, machine)

    def inputs_of_one(self, firsts: range, machine: Machine) -> np.ndarray | Columns:
        """The inputs of one run, likewise; as a row, if that can be, which is the fastest for few of them."""
        return self.inputs(firsts, machine) if machine.reads_rows else self.rows(firsts, machine)[0]

    def rows(self, firsts: range, machine: Machine) -> np.ndarray:
        """One row per run, which begins at one of `firsts`: each used number for all its examples, padded."""
        runs, step = len(firsts), firsts.step
        rows = machine.room(runs, len(self.used) * padded(step))
        by_number = rows.reshape(runs, len(self.used), padded(step))
        with np.errstate(over="ignore"):
            for matrix, columns, targets in self.pieces:
                by_run = on_host(matrix)[firsts.start : firsts.stop].reshape(runs, step, matrix.shape[1])
                by_number[:, targets, :step] = by_run[:, :, columns].transpose(0, 2, 1)
        return rows


def _are_readable(matrices: Sequence[Any]) -> bool:
    """Whether all are in the host's memory, of doubles or all of floats, and numbers of a row side by side."""
    kinds = {matrix.dtype if isinstance(matrix, np.ndarray) else None for matrix in matrices}
    is_known = kinds in READABLE
    return is_known and all(matrix.strides[1] == matrix.itemsize for matrix in matrices if matrix.shape[1] > 1)


def _spans(widths: list[int], used: np.ndarray) -> list[tuple[Any, Any]]:
    """For each matrix, of these widths: which of its columns are used, and where they go."""
    spans, start = [], 0
    for width in widths:
        targets = np.flatnonzero((start <= used) & (used < start + width))
        spans.append((_span(used[targets] - start), _span(targets)))
        start += width
    return spans


def _span(indices: np.ndarray) -> Any:
    """The indices as a slice if they are consecutive, which NumPy copies faster."""
    if len(indices) and (np.diff(indices) == 1).all():
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices

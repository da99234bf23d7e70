"""What the threads of a block do, in order, and where they wait for each other.

A *segment* is what a thread does between two barriers: functions of LLVM text, some of them in loops over time. Whoever
prints the segments decides what a barrier is: an instruction on a GPU, the end of a loop over threads elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from chainrule.compiler.backends.cuda.dealing import (
    Block,
    Deal,
    SumDeal,
    Touch,
    deal,
    deal_sum,
    touches,
    touches_of_sum,
)
from chainrule.compiler.backends.cuda.parts import Step, is_kept, is_sum
from chainrule.compiler.backends.cuda.storage import OWN, Place, Storage, pitch
from chainrule.compiler.backends.cuda.threads import Flush, Share, SumShare, ThreadRegisters
from chainrule.compiler.backends.llvm.fusion import Group, groups
from chainrule.compiler.backends.llvm.library import functions
from chainrule.compiler.backends.llvm.text import Element, Text
from chainrule.compiler.passes.program import Access, Array, Repeat, Statement, Term, row_major

# What every function is given. `own` has the thread's own numbers; `first` is the first example of the run.
ARGUMENTS = (
    *("ptr %shared", "ptr %scratch", "ptr %memory", "ptr %partials", "ptr %inputs", "ptr %results", "ptr %own"),
    *("i64 %first", "i64 %count", "i64 %time", "i64 %thread"),
)


MOST_TURNS = 32  # of a thread, in a statement on numbers that it has in registers: they are written out


@dataclass
class Call:
    """A function that every thread calls, and what it writes and reads; `waits`: not before all have come here."""

    name: str
    writes: list[Touch] = field(default_factory=list)
    reads: list[Touch] = field(default_factory=list)
    waits: bool = False


@dataclass
class Times:
    """Calls in a loop over time."""

    times: range
    body: list[Call]


Schedule = list[Call | Times]
Touched = dict[Array, dict[tuple[object, ...], Touch]]  # by array, each way to touch it once


class Functions:
    """The functions of a module so far, and the declarations that they need."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self.texts: list[str] = []
        self.declarations: set[str] = set()

    def add(self, storage: Storage, write: Callable[[ThreadRegisters], object]) -> str:
        """The name of a new function, whose text `write` writes to registers."""
        name = f"@f{len(self.texts)}"
        text = Text(self.element, self.declarations, functions)
        write(ThreadRegisters(text, storage.places))
        self.texts.append(text.function(f"define internal void {name}({', '.join(ARGUMENTS)}) #1"))
        return name


class Writer:
    """Writes steps as calls of functions, dealt to the threads of a block."""

    def __init__(self, functions: Functions, storage: Storage, block: Block) -> None:
        self.functions, self.storage, self.block = functions, storage, block
        self.size = functions.element.bytes
        self.accumulators = storage.sizes.get(OWN, 0)  # comes after the numbers that a thread has for itself
        self.sums: list[tuple[Statement, SumDeal, int]] = []
        self._by_array: dict[Array, int] = {}

    def schedule(self, steps: Sequence[Step], whole_sums: bool = False) -> Schedule:
        """The calls of some steps, in order."""
        found: Schedule = []
        for part in in_groups(steps):
            if isinstance(part, Repeat):
                inside = [group for group in in_groups(part.body) if not isinstance(group, Repeat)]
                found.append(Times(part.times, [self._call(group, whole_sums) for group in inside]))
            else:
                found.append(self._call(part, whole_sums))
        return found

    def _call(self, group: Group, whole_sums: bool) -> Call:
        if is_kept(group[0]):
            return self._sum(group[0], whole_sums)
        given = deal(group[0], self.block, self.size)
        threads = self.block.threads
        name = self.functions.add(self.storage, lambda registers: Share(registers, group, given, threads))
        call = Call(name)
        for statement in group:
            target, *others = touches(statement, given, threads)
            call.writes += [target] if target.access.array in self.storage.places else []
            call.reads += [t for t in others if t.access.array in self.storage.places]
            call.reads += [target] if statement.accumulate else []
        return call

    def _sum(self, statement: Statement, whole: bool) -> Call:
        given, threads = deal_sum(statement, self.block, self.size, whole), self.block.threads
        first = self._accumulators_of(statement.target.array, given) if given.whole else self.accumulators
        if not given.whole:
            self.accumulators += given.accumulators
            self.sums.append((statement, given, first))
        name = self.functions.add(self.storage, lambda registers: SumShare(registers, statement, given, threads, first))
        return Call(name, [], touches_of_sum(statement, given, threads))

    def _accumulators_of(self, array: Array, given: SumDeal) -> int:
        """The first of a thread's accumulators for all elements of an array."""
        if array not in self._by_array:
            self._by_array[array] = self.accumulators
            self.accumulators += array.size
            every = Statement(Access(array, 0, (1,)), (array.size,), [])
            outputs = Deal(every.loops, every.loops, ())
            self.sums.append((every, replace(given, outputs=outputs), self._by_array[array]))
        return self._by_array[array]

    def flush(self) -> Schedule:
        """The calls that add the accumulators of all threads to the sums, statement by statement."""
        found: Schedule = []
        for sum_ in self.sums:
            found += self._flush(*sum_)
        return found

    def _flush(self, statement: Statement, given: SumDeal, first: int) -> list[Call]:
        """The calls for one of them: every group of threads has a row, and then the rows are added up."""
        threads, (room, through) = self.block.threads, exchange(statement, given)
        places = Storage({**self.storage.places, room: self.storage.places[_EXCHANGE]})
        rows = Access(room, 0, (prod(statement.loops), *row_major(statement.loops)))
        dealt = deal(through, Block(threads, 0), self.size)
        names = [
            self.functions.add(places, lambda to: Flush(to, statement, given, threads, first, rows)),
            self.functions.add(places, lambda to: Share(to, (through,), dealt, threads)),
        ]
        return [Call(name, waits=True) for name in names]


_EXCHANGE = Array("exchange", 0, "value")  # the place of all rows of accumulators, one statement after another


def place_for_exchange(storage: Storage, sums: Iterable[tuple[Statement, SumDeal, int]], room: int) -> None:
    """Find room for the accumulators of all threads, once the examples are done with."""
    largest = max((exchange(statement, given)[0].size for statement, given, _ in sums), default=0)
    space = "shared" if largest <= room else "scratch"
    storage.places[_EXCHANGE] = Place(space, 0)
    storage.sizes[space] = max(storage.sizes.get(space, 0), largest)


def exchange(statement: Statement, given: SumDeal) -> tuple[Array, Statement]:
    """An array with a row for each group, and the statement that adds its rows up to the sums."""
    steps = row_major(statement.loops)
    outputs = prod(statement.loops)
    room = Array("exchange", given.groups * outputs, "value")
    term = Term(Access(room, 0, (*steps, outputs)), (given.groups,))
    return room, Statement(statement.target, statement.loops, [term], accumulate=True)


def in_groups(steps: Sequence[Step]) -> list[Group | Repeat]:
    """The steps in groups that go through memory once; a sum over examples by itself."""
    found: list[Group | Repeat] = []
    waiting: list[Step] = []
    for step in steps:
        if isinstance(step, Statement) and is_sum(step):
            found += [*groups(waiting, columns=False), (step,)]
            waiting = []
        else:
            waiting.append(step)
    return found + groups(waiting, columns=False)


def stored(steps: Sequence[Step]) -> set[Array]:
    """The arrays that must be in memory: those that are read from anywhere but a register."""
    found: set[Array] = set()
    for group in in_groups(steps):
        if isinstance(group, Repeat):
            found |= stored(group.body)
            continue
        written: set[Array] = set()
        for statement in group:
            found |= {access.array for access in statement.accesses()} - written
            found |= {statement.target.array} if statement.accumulate else set()
            written.add(statement.target.array)
    return found


def numbers_of_a_thread(steps: Sequence[Step], block: Block, size: int, whole_sums: bool) -> set[Array]:
    """The arrays of which a thread touches the numbers of its own example alone, at places that are known.

    A thread has them for itself, in registers if there are enough.
    """
    if not block.owns or block.abreast > 1:
        return set()
    found: dict[Array, bool] = {}
    for group in in_groups(steps):
        inside = in_groups(group.body) if isinstance(group, Repeat) else [group]
        for part in inside:
            for touch in _touches(part, block, size, whole_sums):
                array = touch.access.array
                own = _is_by_owner(touch, block) and _is_in_known_places(touch, block)
                found[array] = found.get(array, bool(array.examples)) and own
    return {array for array, is_own in found.items() if is_own}


def _touches(group: Group | Repeat, block: Block, size: int, whole_sums: bool) -> list[Touch]:
    assert not isinstance(group, Repeat)
    if is_kept(group[0]):
        return touches_of_sum(group[0], deal_sum(group[0], block, size, whole_sums), block.threads)
    given = deal(group[0], block, size)
    return [touch for statement in group for touch in touches(statement, given, block.threads)]


def _is_by_owner(touch: Touch, block: Block) -> bool:
    """Whether each thread touches numbers of its own example alone."""
    return touch.owner == (block.examples, 1) and touch.stride == 1


def _is_in_known_places(touch: Touch, block: Block) -> bool:
    """Whether a thread touches few numbers, and always the same."""
    turns = prod(n for d, n in enumerate(touch.loops) if d != touch.fast)
    places = (touch.access.base, *touch.steps)
    still = not touch.access.repeat and touch.access.table is None
    return still and turns <= MOST_TURNS and not any(place % pitch(block.examples) for place in places)


def with_barriers(schedule: Schedule, storage: Storage) -> Schedule:
    """The schedule, in which calls wait where a thread touches what another one has touched."""
    hazards = _Hazards(storage)
    for item in schedule:
        if isinstance(item, Call):
            hazards.take(item)
            continue
        for _ in range(2):  # the second time finds what one turn leaves to the next
            for call in item.body:
                hazards.take(call)
    return schedule


class _Hazards:
    """What has been written and read since the last barrier, by array."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.writes: Touched = {}
        self.reads: Touched = {}
        self._overlapping: dict[Array, list[Array]] = {}

    def take(self, call: Call) -> None:
        """Make a call wait, if it must, and note what it touches."""
        if call.waits or self._conflict(call):
            call.waits = True
            self.writes, self.reads = {}, {}
        for known, noted in ((self.writes, call.writes), (self.reads, call.reads)):
            for touch in noted:
                known.setdefault(touch.access.array, {}).setdefault(touch.key, touch)

    def _conflict(self, call: Call) -> bool:
        return any(self._clash(new, self.writes) for new in (*call.writes, *call.reads)) or any(
            self._clash(new, self.reads) for new in call.writes
        )

    def _clash(self, new: Touch, known: Touched) -> bool:
        """Whether another thread may have touched the same place."""
        array = new.access.array
        if any(not old.is_by_same_thread(new) for old in known.get(array, {}).values()):
            return True
        return any(other in known for other in self._overlaps(array))

    def _overlaps(self, array: Array) -> list[Array]:
        """Other arrays that have elements in the same place."""
        if array not in self._overlapping:
            others = [other for other in self.storage.places if other is not array]
            self._overlapping[array] = [other for other in others if self.storage.overlap(array, other)]
        return self._overlapping[array]

"""Dealing: which thread of a block computes which turns of a statement's loops.

A thread takes *tiles*: several turns of some loops, computed side by side, which share what they load. Where the
threads' numbers go along the examples, and every thread always has the same examples, it reads what it wrote itself,
and need not wait for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import gcd, prod

import numpy as np

from chainrule.compiler.passes.differentiate import is_injective
from chainrule.compiler.passes.program import Access, Shape, Statement

BUSY = 0.7  # share of the threads that should have something to do
TALLEST = 8  # turns of a second loop in a tile
PRICE = 8  # of an accumulator, in multiplications: it takes a register from everything else


@dataclass(frozen=True)
class Block:
    """Threads of a block, and how many examples each takes side by side where it has examples of its own."""

    threads: int
    examples: int
    abreast: int = 1

    @property
    def owns(self) -> bool:
        """Whether every thread has examples of its own."""
        return self.examples == self.threads * self.abreast


@dataclass(frozen=True)
class Deal:
    """Tiles of `loops`. The loops in `order` are dealt, the last of them fastest; others a thread goes through itself.

    A tile has neighbouring turns of the `fast` loop, so that they are loaded at once, and of others turns far apart.
    """

    loops: Shape
    tile: Shape
    order: Shape

    @property
    def fast(self) -> int | None:
        return self.order[-1] if self.order else None

    @property
    def parts(self) -> Shape:
        """Tiles along each loop."""
        return tuple(n // t for n, t in zip(self.loops, self.tile, strict=True))

    @property
    def count(self) -> int:
        """Tiles that are dealt."""
        return prod(self.parts[d] for d in self.order)

    def owner(self, threads: int) -> tuple[int, int] | None:
        """How the turns of the fast loop belong to threads, if each belongs to one: extent and turns of a tile."""
        if self.fast is None or self.parts[self.fast] % threads:
            return None
        return self.loops[self.fast], self.tile[self.fast]


def deal(statement: Statement, block: Block, size: int) -> Deal:
    """How the turns of a statement, of numbers of `size` bytes, are dealt."""
    loops = statement.loops
    tile = [1] * len(loops)
    order = sorted(_dealt(statement), key=lambda d: (-abs(statement.target.strides[d]), d))
    if not order:
        return Deal(loops, tuple(tile), ())
    if block.owns:
        own = next((d for d in order if loops[d] == block.examples and _is_along_examples(statement, d)), None)
        if own is not None:
            others = [d for d in order if d != own] if block.abreast > 1 else []  # one example: a thread does all of it
            order = [*others, own]
            tile[own] = block.abreast
    elif loops[order[-1]] % (16 // size) == 0:
        tile[order[-1]] = 16 // size
    other = _sharing(statement, order)
    if other is not None:
        tile[other] = max(_divisors(loops[other], TALLEST))
    if not block.owns:
        _make_smaller(tile, [d for d in (other, order[-1]) if d is not None], loops, order, block)
    return Deal(loops, tuple(tile), tuple(order))


def _make_smaller(tile: list[int], chosen: list[int], loops: Shape, order: list[int], block: Block) -> None:
    """Have fewer turns of the chosen loops in a tile, one loop after the other, as long as many threads have none."""
    for d in chosen:
        while tile[d] > 1 and BUSY * block.threads > Deal(loops, tuple(tile), tuple(order)).count:
            tile[d] = max(_divisors(loops[d], tile[d] - 1))


def _divisors(extent: int, most: int) -> list[int]:
    return [t for t in range(1, most + 1) if extent % t == 0]


def _is_along_examples(statement: Statement, d: int) -> bool:
    """Whether a loop goes through the examples, which lie side by side, in all that it moves."""
    moved = [a for a in (statement.target, *statement.accesses()) if a.strides[d]]
    return all(access.strides[d] == 1 and access.table is None and access.array.examples for access in moved)


def _sharing(statement: Statement, order: Sequence[int]) -> int | None:
    """A dealt loop other than the fast one along which a sum has an operand that stays, so that turns share it."""
    sums = [list(term.expression.accesses()) for term in statement.terms if term.loops]
    for d in reversed(order[:-1]):
        if any(a.strides[d] == 0 and a.strides[order[-1]] for accesses in sums for a in accesses):
            return d
    return None


def _dealt(statement: Statement) -> Sequence[int]:
    """The loops that can be dealt: no two threads may write the same element."""
    loops = [d for d, extent in enumerate(statement.loops) if extent > 1]
    if is_injective(statement):
        return loops
    places = statement.target.positions(statement.loops).reshape(-1)
    by_place = np.argsort(places, kind="stable")
    same = places[by_place][1:] == places[by_place][:-1]
    index = np.indices(statement.loops).reshape(len(statement.loops), -1)[:, by_place]
    for count in range(len(loops), 0, -1):
        for chosen in combinations(loops, count):
            if not (same & (index[list(chosen), 1:] != index[list(chosen), :-1]).any(axis=0)).any():
                return chosen
    return ()


@dataclass(frozen=True)
class SumDeal:
    """Tiles of sums, dealt to teams of `groups` threads, which share the turns of one loop of the reduction.

    Thread t has tile t % count, and of the reduction's parts those that are t // count more than a multiple of
    `groups`. A part is `chunk` turns of loop `along` of each term. Several `passes` have more tiles than threads.
    """

    outputs: Deal
    groups: int
    chunk: int
    along: int
    passes: int
    whole: bool = False  # every thread has an accumulator for each element of the target, whatever adds to it

    @property
    def accumulators(self) -> int:
        return self.passes * prod(self.outputs.tile)


def deal_sum(statement: Statement, block: Block, size: int, whole: bool) -> SumDeal:
    """How a sum over examples is dealt. If `whole`, every thread has all sums, of its own examples."""
    loops = statement.loops
    along, chunk = _along(statement, block, size)
    if whole and chunk and statement.target.table is None:
        groups = _groups(statement, along, chunk, block.threads)
        return SumDeal(Deal(loops, loops, ()), groups, chunk, along, 1, groups == block.threads)
    order = tuple(d for d, n in enumerate(loops) if n > 1)
    turns = prod(statement.terms[0].loops) if statement.terms[0].loops else 1
    best, least = None, 0.0
    for tile in _tiles(loops, order[-2:]):
        outputs = Deal(loops, tile, order)
        passes = -(-outputs.count // block.threads)
        groups = _groups(statement, along, chunk, block.threads // outputs.count) if chunk and passes == 1 else 1
        loads = sum(tile[d] for d in order[-2:])
        cost = passes * (turns / groups * (prod(tile) + 2 * loads) + PRICE * prod(tile))
        if best is None or cost < least:
            best, least = SumDeal(outputs, groups, chunk if groups > 1 else 0, along, passes), cost
    assert best is not None
    return best


def _tiles(loops: Shape, chosen: Sequence[int]) -> Iterator[Shape]:
    """Tiles of the chosen loops, small ones first."""
    sizes = [_divisors(loops[d], TALLEST) for d in chosen]
    for turns in product(*sizes):
        tile = [1] * len(loops)
        for d, count in zip(chosen, turns, strict=True):
            tile[d] = count
        yield tuple(tile)


def _along(statement: Statement, block: Block, size: int) -> tuple[int, int]:
    """The loop of the terms' reductions that a team shares, the one with the most parts, and the turns of a part.

    A part is what a thread loads at once, where it can; there are no turns if the terms have no loop in common.
    """
    loops = statement.terms[0].loops
    if not all(term.loops and term.loops == loops for term in statement.terms):
        return 0, 0
    if block.owns and block.examples in loops:
        along = max(d for d, extent in enumerate(loops) if extent == block.examples)
        return along, block.abreast
    chunks = [1] * len(loops)
    chunks[-1] = next(chunk for chunk in (16 // size, 2, 1) if loops[-1] % chunk == 0)
    along = max(range(len(loops)), key=lambda d: (loops[d] // chunks[d], d))
    return along, chunks[along]


def _groups(statement: Statement, along: int, chunk: int, most: int) -> int:
    parts = statement.terms[0].loops[along] // chunk
    return max(g for g in range(1, max(1, min(most, parts)) + 1) if parts % g == 0)


@dataclass(frozen=True)
class Touch:
    """An access by threads: in which loops, and who has which turns of the fast one."""

    access: Access
    loops: Shape
    fast: int | None
    owner: tuple[int, int] | None

    def is_by_same_thread(self, other: Touch) -> bool:
        """Whether an element that both touch is touched by one thread alone.

        It is if both have the same turns of their fast loops, and whatever else moves the access moves it further.
        """
        if self.owner is None or self.owner != other.owner or self.stride != other.stride or not self.stride:
            return False
        apart = gcd(self.access.base - other.access.base, *self.steps, *other.steps)
        return apart == 0 or apart > abs(self.stride) * (self.owner[0] - 1)

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes it from other touches of its array."""
        access, table = self.access, id(self.access.table)
        return access.base, access.strides, access.repeat, table, self.loops, self.fast, self.owner

    @property
    def stride(self) -> int:
        """That of the fast loop; 0 if it is unknown where the access goes."""
        return 0 if self.fast is None or self.access.table is not None else self.access.strides[self.fast]

    @property
    def steps(self) -> list[int]:
        """Whatever else moves the access."""
        others = [s for d, s in enumerate(self.access.strides) if d != self.fast and self.loops[d] > 1]
        return [self.access.repeat, *others]


def touches(statement: Statement, given: Deal, threads: int) -> list[Touch]:
    """What a statement touches: its target first."""
    owner = given.owner(threads)
    return [Touch(access, loops, given.fast, owner) for access, loops in statement.accesses_in_loops()]


def touches_of_sum(statement: Statement, given: SumDeal, threads: int) -> list[Touch]:
    """What a sum reads."""
    found = []
    for term in statement.terms:
        loops = statement.loops + term.loops
        fast = len(statement.loops) + given.along
        alone = given.chunk and not given.outputs.order and given.groups == threads
        owner = (term.loops[given.along], given.chunk) if alone else None
        found += [Touch(access, loops, fast, owner) for access in term.expression.accesses()]
    return found

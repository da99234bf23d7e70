"""Dealing: which thread of a block computes which turns of a statement's loops.

A thread takes *tiles*: several turns of some loops, computed side by side, which share what they load. Where the
threads' numbers go along the examples, and every thread always has the same examples, it reads what it wrote itself,
and need not wait for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations, product
from math import gcd, prod

import numpy as np

from chainrule.compiler.backends.cuda.costs import cost, cost_of_sum
from chainrule.compiler.passes.program import Access, Shape, Statement, is_injective

BUSY = 0.7  # share of the threads that should have something to do
PERMUTED = 3  # loops, at most, of which all orders are tried
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

    A tile has neighbouring turns of the `fast` loop, so that they are loaded at once, and of others turns far apart;
    or, of each loop, as many neighbouring ones as `near` says. If loop `pair` is given, its tiles go to threads two by
    two: neighbouring threads then share what does not move with it.
    """

    loops: Shape
    tile: Shape
    order: Shape
    near: Shape = ()
    pair: int | None = None

    @property
    def fast(self) -> int | None:
        return self.order[-1] if self.order else None

    @cached_property
    def parts(self) -> Shape:
        """Tiles along each loop."""
        return tuple(n // t for n, t in zip(self.loops, self.tile, strict=True))

    @cached_property
    def count(self) -> int:
        """Tiles that are dealt."""
        return prod(self.parts[d] for d in self.order)

    def neighbours(self, d: int) -> int:
        """How many turns of loop d are neighbours in a tile."""
        if self.near:
            return self.near[d]
        return self.tile[d] if d == self.fast else 1

    def turn(self, d: int, k: int) -> int:
        """How far the k-th turn of loop d in a tile is from the first."""
        near = self.neighbours(d)
        return k // near * near * self.parts[d] + k % near

    @cached_property
    def digits(self) -> list[tuple[int, int, int]]:
        """What a tile's number is made of, the fastest last: a loop, how many parts, how far apart."""
        found = [(d, self.parts[d] // 2, 2) if d == self.pair else (d, self.parts[d], 1) for d in self.order]
        return found if self.pair is None else [*found, (self.pair, 2, 1)]

    def first(self, number: int) -> dict[int, int]:
        """The first turns of the tile with this number."""
        found = dict.fromkeys(self.order, 0)
        for d, extent, step in reversed(self.digits):
            found[d] += number % extent * step * self.neighbours(d)
            number //= extent
        return found

    def owner(self, threads: int) -> tuple[int, int] | None:
        """How the turns of the fast loop belong to threads, if each belongs to one: extent and turns of a tile."""
        if self.fast is None or self.pair is not None or self.parts[self.fast] % threads:
            return None
        return self.loops[self.fast], self.tile[self.fast]


def deal(statement: Statement, block: Block, size: int) -> Deal:
    """How the turns of a statement, of numbers of `size` bytes, are dealt."""
    loops = statement.loops
    tile = [1] * len(loops)
    order = sorted(_dealt(statement), key=lambda d: (-abs(statement.target.strides[d]), d))
    if not order:
        return Deal(loops, tuple(tile), ())
    if not block.owns:
        return _shared(statement, order, block, size)
    own = next((d for d in order if loops[d] == block.examples and _is_along_examples(statement, d)), None)
    if own is not None:
        others = [d for d in order if d != own] if block.abreast > 1 else []  # one example: a thread does all of it
        order = [*others, own]
        tile[own] = block.abreast
    other = _sharing(statement, order)
    if other is not None:
        tile[other] = max(_divisors(loops[other], TALLEST))
    return Deal(loops, tuple(tile), tuple(order))


def _shared(statement: Statement, order: list[int], block: Block, size: int) -> Deal:
    """The cheapest way to deal a statement to threads that share examples."""
    loops, fast = statement.loops, order[-1]
    tile = [1] * len(loops)
    if loops[fast] % (16 // size) == 0:
        tile[fast] = 16 // size
    while tile[fast] > 1 and BUSY * block.threads > Deal(loops, tuple(tile), tuple(order)).count:
        tile[fast] = max(_divisors(loops[fast], tile[fast] - 1))
    plain = Deal(loops, tuple(tile), tuple(order))
    if not any(term.loops for term in statement.terms):
        return plain
    found = [plain]
    for taller in _taller(plain, order[:-1], block):
        for others in _orders(order[:-1]):
            each = Deal(loops, taller, (*others, fast))
            found += [each, *(replace(each, pair=d) for d in others if each.parts[d] % 2 == 0)]
    return min(found, key=lambda each: cost(statement, each, size))


def _taller(given: Deal, others: Sequence[int], block: Block) -> Iterator[Shape]:
    """The tile, and those with more turns of other loops, as long as there are enough of them for the threads."""
    chosen = others[-PERMUTED:]
    for turns in product(*[_divisors(given.loops[d], TALLEST) for d in chosen]):
        tile = list(given.tile)
        for d, count in zip(chosen, turns, strict=True):
            tile[d] = count
        is_busy = replace(given, tile=tuple(tile)).count >= BUSY * block.threads
        if prod(turns) == 1 or (prod(turns) <= TALLEST and is_busy):
            yield tuple(tile)


def _orders(loops: Sequence[int]) -> Iterable[Sequence[int]]:
    """Orders in which loops may be dealt."""
    return permutations(loops) if len(loops) <= PERMUTED else [loops]


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
    `groups`; if `turned`, tile t // groups, and so on. A part is `chunk` turns of loop `along` of each term. Several
    `passes` have more tiles than threads.
    """

    outputs: Deal
    groups: int
    chunk: int
    along: int
    passes: int
    whole: bool = False  # every thread has an accumulator for each element of the target, whatever adds to it
    turned: bool = False

    def team(self, thread: int) -> tuple[int, int]:
        """The number of a thread's first tile, and its number in the team."""
        if self.turned:
            return thread // self.groups, thread % self.groups
        return thread % self.outputs.count, thread // self.outputs.count

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
    return min(_turned(best), key=lambda each: cost_of_sum(statement, each, size))


def _turned(given: SumDeal) -> Iterator[SumDeal]:
    """The deal, and others: tiles of the same size, of other turns, and for other threads of a warp."""
    outputs = given.outputs
    yield given
    nears = [_divisors(t, t) if outputs.parts[d] > 1 else [t] for d, t in enumerate(outputs.tile)]
    for order, near in product(_orders(outputs.order), product(*nears)):
        for pair in (None, *(d for d in order if outputs.parts[d] % 2 == 0)):
            for turned in (False, True) if given.groups > 1 else (False,):
                yield replace(given, outputs=replace(outputs, order=tuple(order), near=near, pair=pair), turned=turned)


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
    dealt: Deal | None = None

    def is_by_same_thread(self, other: Touch) -> bool:
        """Whether an element that both touch is touched by one thread alone.

        It is if both have the same turns of their fast loops, and whatever else moves the access moves it further.
        """
        if self.dealt is not None and self._is_in_the_same_turn(other):
            return True
        if self.owner is None or self.owner != other.owner or self.stride != other.stride or not self.stride:
            return False
        apart = gcd(self.access.base - other.access.base, *self.steps, *other.steps)
        return apart == 0 or apart > abs(self.stride) * (self.owner[0] - 1)

    def _is_in_the_same_turn(self, other: Touch) -> bool:
        """Whether both are of statements that are dealt alike, and touch the same at each turn."""
        mine, others = self.access, other.access
        alike = self.dealt == other.dealt and self.loops == other.loops == (self.dealt and self.dealt.loops)
        same = (mine.base, mine.strides) == (others.base, others.strides) and mine.table is others.table is None
        return alike and same and not mine.repeat and not others.repeat

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes it from other touches of its array."""
        access, table = self.access, id(self.access.table)
        return access.base, access.strides, access.repeat, table, self.loops, self.fast, self.owner, self.dealt

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
    return [Touch(access, loops, given.fast, owner, given) for access, loops in statement.accesses_in_loops()]


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

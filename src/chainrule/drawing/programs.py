"""An array program as a Picture: a card for each statement, with its formula, and an edge from everything it reads."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any, NamedTuple

from chainrule.compiler import CompiledFunction, Program
from chainrule.compiler.passes.naming import names_of_parameters
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Repeat, Shape, Statement
from chainrule.drawing.picture import Edge, Group, Node, Picture, TooLargeError
from chainrule.drawing.values import SYMBOLS
from chainrule.nn import Module

LEAVES = {"parameter": "parameter", "input": "leaf", "captured": "leaf", "constant": "constant"}

MOST_BESIDE = 60  # characters of cards beside each other
BADGE = 6  # characters that a card is wider than its text


def found_by(program: Program | CompiledFunction[..., Any], model: Module | None) -> ArrayProgram | None:
    """The array program that the compiler found, with the model's names for its parameters; None if it found none."""
    if isinstance(program, Program):
        found, leaves = program.code.whole, program.leaves
    else:
        traced, code = program._last_run
        found, leaves = code.whole, [(kind, nodes) for kind, nodes in traced.captured.items() if nodes]
    return found.named(names_of_parameters(found, leaves, model)) if isinstance(found, ArrayProgram) else None


def picture_of_program(program: ArrayProgram, limit: int, backward: bool = True) -> Picture:
    """The statements of a program, those of the backward pass only if `backward`."""
    return _Artist(program, limit, backward).picture()


class _Artist:
    def __init__(self, program: ArrayProgram, limit: int, backward: bool) -> None:
        self.program = program
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], Edge] = {}
        self.steps = [step for step in program.steps if backward or not _is_backward(_body(step)[0])]
        count = sum(len(_body(step)) for step in self.steps)
        if count > limit:
            raise TooLargeError(
                f"the program has {count:,} array statements, more than `limit` = {limit}: "
                "draw the forward half, with backward=False, or print program.describe()"
            )
        self.written: dict[Array, list[_Write]] = {}
        for k, step in enumerate(self.steps):
            for statement in _body(step):
                write = _Write(f"s{len(self.nodes)}", k, *_reach(statement.target, statement.loops, step))
                self.written.setdefault(statement.target.array, []).append(write)
                self.nodes[write.key] = self.card(statement, write.key)

    def picture(self) -> Picture:
        """Runs of statements one below the other, so that the drawing gets long rather than wide."""
        groups, levels = list[Group](), list[list[str]]()
        cards = iter(list(self.nodes))
        for (title, _), run in groupby(enumerate(self.steps), lambda step: _run(*step)):
            own = [(k, statement, next(cards)) for k, step in run for statement in _body(step)]
            for k, statement, key in own:
                self.connect(key, statement, k)
            keys = [key for _, _, key in own]
            if title:
                groups.append(Group(title, keys))
            levels += self.levels(keys)
        leaves_first = sorted(self.nodes.values(), key=lambda node: node.kind == "computed")
        return Picture(leaves_first, list(self.edges.values()), groups, direction="TB", order=_held(levels))

    def levels(self, keys: list[str]) -> list[list[str]]:
        """The cards from top to bottom, each below what it reads, and beside each other no more than fit."""
        levels: list[list[str]] = []
        level_of: dict[str, int] = {}
        for key in keys:
            level = 1 + max((level_of[source] for source in level_of if (source, key) in self.edges), default=-1)
            while level < len(levels) and self.width([key, *levels[level]]) > MOST_BESIDE:
                level += 1
            if level == len(levels):
                levels.append([])
            levels[level].append(key)
            level_of[key] = level
        return levels

    def width(self, keys: list[str]) -> int:
        """How many characters wide these cards are, beside each other."""
        cards = [self.nodes[key] for key in keys]
        return sum(BADGE + max(len(text) for text in [card.title, *(text for _, text in card.rows)]) for card in cards)

    def card(self, statement: Statement, key: str) -> Node:
        shape, array = " × ".join(f"{extent:,}" for extent in statement.loops), statement.target.array
        title = f"{array.name}{f' [{shape}]' if shape else ''}{' = result' if array is self.program.output else ''}"
        target = f"{statement.target.show(statement.loops)} {'+=' if statement.accumulate else '='}"
        rows = [("", line) for line in _wrapped([target, *statement.shown_terms()])]
        return Node(key, "computed", title, _badge(statement), rows, hint=repr(statement))

    def connect(self, key: str, statement: Statement, k: int) -> None:
        """Add the edges to statement `key`, in step k, from everything it reads."""
        for term in statement.terms:
            loops = statement.loops + term.loops
            for access in term.expression.accesses():
                array = access.array
                if array in self.written:
                    low, high = _reach(access, loops, self.steps[k])
                    for write in self.written[array]:
                        if write.step <= k and write.low <= high and low <= write.high:
                            self.link(write, key, k, pull=8 if array.kind == statement.target.array.kind else 1)
                elif array.kind in LEAVES:
                    text = access.show(loops)
                    leaf = f"{array.name} {text}"
                    self.nodes.setdefault(leaf, Node(leaf, LEAVES[array.kind], text, hint=f"{text}, of {array}"))
                    self.edges[leaf, key] = Edge(leaf, key)

    def link(self, write: _Write, key: str, k: int, pull: int) -> None:
        if int(write.key[1:]) < int(key[1:]):  # earlier in the program
            self.edges[write.key, key] = Edge(write.key, key, pull=pull)
        elif write.step == k and isinstance(self.steps[k], Repeat):
            self.edges[write.key, key] = Edge(write.key, key, passes=False, hint="from the previous step")


class _Write(NamedTuple):
    """A statement, its step, and the lowest and the highest element that it writes."""

    key: str
    step: int
    low: int
    high: int


def _reach(access: Access, loops: Shape, step: Statement | Repeat) -> tuple[int, int]:
    """The lowest and the highest element that is touched, in any iteration of a Repeat."""
    if access.table is not None:
        return 0, access.array.size
    moves = [*zip(access.strides, loops, strict=True), (access.repeat, step.count if isinstance(step, Repeat) else 1)]
    ends = [stride * (extent - 1) for stride, extent in moves]
    return access.base + sum(min(0, end) for end in ends), access.base + sum(max(0, end) for end in ends)


def _held(levels: list[list[str]]) -> list[tuple[str, str]]:
    """Pairs that hold cards on their levels: below the first card of the level above, and above that of the next."""
    pairs = []
    for upper, lower in pairwise(levels):
        pairs += [(upper[0], key) for key in lower] + [(key, lower[0]) for key in upper[1:]]
    return pairs


def _run(k: int, step: Statement | Repeat) -> tuple[str, int]:
    """What consecutive steps have in common that are framed together: a title, and the number of a Repeat."""
    if isinstance(step, Repeat):
        return f"{step.count:,} times, r = {step.times[0]}, {step.times[1]}, …", k
    return ("backward" if _is_backward(step) else ""), -1


def _body(step: Statement | Repeat) -> tuple[Statement, ...]:
    return step.body if isinstance(step, Repeat) else (step,)


def _is_backward(statement: Statement) -> bool:
    return statement.target.array.kind == "adjoint"


def _badge(statement: Statement) -> str:
    """What the statement mainly does: a sum, or an op on each element."""
    if any(term.loops for term in statement.terms):
        return "Σ"
    expression = statement.terms[0].expression
    if len(statement.terms) == 1 and isinstance(expression, Apply):
        return SYMBOLS.get(expression.op.symbol, expression.op.symbol)
    return "+" if len(statement.terms) > 1 else "="


def _wrapped(parts: list[str], width: int = 52) -> list[str]:
    """The parts of a formula, in lines of about `width` characters."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) < width:
            lines[-1] += f" {part}"
        else:
            lines.append(f"  {part}")
    return lines

"""An array program as a Picture: a card for each statement, with its formula, and an edge from everything it reads."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from chainrule.compiler import CompiledFunction, Program
from chainrule.compiler.passes.naming import names_of_parameters
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Repeat, Shape, Statement
from chainrule.drawing.picture import Edge, Group, Node, Picture, TooLargeError
from chainrule.drawing.values import SYMBOLS
from chainrule.nn import Module

LEAVES = {"parameter": "parameter", "input": "leaf", "captured": "leaf", "constant": "constant"}


def found_by(program: Program | CompiledFunction, model: Module | None) -> ArrayProgram | None:
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
        groups: list[Group] = []
        backward: list[str] = []
        keys = iter(list(self.nodes))
        for k, step in enumerate(self.steps):
            own = list(islice(keys, len(_body(step))))
            for key, statement in zip(own, _body(step), strict=True):
                self.connect(key, statement, k)
            if isinstance(step, Repeat):
                groups.append(Group(f"{step.count:,} times, r = {step.times[0]}, {step.times[1]}, …", own))
            elif _is_backward(step):
                backward += own
        if backward:
            groups.append(Group("backward", backward))
        leaves_first = sorted(self.nodes.values(), key=lambda node: node.kind == "computed")
        return Picture(leaves_first, list(self.edges.values()), groups, direction="TB")

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

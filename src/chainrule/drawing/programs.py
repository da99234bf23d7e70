"""An array program as a Picture: a card for each statement, with its formula, and edges from what it reads."""

from __future__ import annotations

from collections.abc import Iterator

from chainrule.compiler import CompiledFunction, Program, name_parameters
from chainrule.compiler.program import Access, Apply, Array, ArrayProgram, Repeat, Statement
from chainrule.drawing.picture import Edge, Group, Node, Picture, TooLargeError
from chainrule.drawing.values import SYMBOLS
from chainrule.nn import Module

LEAVES = {"parameter": "parameter", "input": "leaf", "captured": "leaf", "constant": "constant"}


def found_by(program: Program | CompiledFunction, model: Module | None) -> ArrayProgram | None:
    """The array program that the compiler found, with the model's names for its parameters; None if it found none."""
    if isinstance(program, Program):
        found, leaves = program.machine.found, program._leaves
    else:
        traced, machine = program._last_run
        found, leaves = machine.found, [(kind, nodes) for kind, nodes in traced.captured.items() if nodes]
    if not isinstance(found, ArrayProgram):
        return None
    if model is not None:
        name_parameters(found, leaves, model)
    return found


def picture_of_program(program: ArrayProgram, limit: int, backward: bool = True) -> Picture:
    """The statements of a program, without those of the backward pass if that is not wanted."""
    return _Artist(program, limit, backward).picture()


class _Artist:
    def __init__(self, program: ArrayProgram, limit: int, backward: bool) -> None:
        self.program = program
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], Edge] = {}
        self.steps = [step for step in program.steps if backward or not _is_backward(_body(step)[0])]
        statements = [statement for step in self.steps for statement in _body(step)]
        if len(statements) > limit:
            raise TooLargeError(
                f"the program has {len(statements):,} array statements, more than `limit` = {limit}: "
                "draw the forward half, with backward=False, or print program.describe()"
            )
        self.keys = {id(statement): f"s{k}" for k, statement in enumerate(statements)}
        self.written: dict[Array, list[str]] = {}
        for statement in statements:
            self.written.setdefault(statement.target.array, []).append(self.keys[id(statement)])

    def picture(self) -> Picture:
        groups, backward = [], []
        for step in self.steps:
            keys = [self.keys[id(statement)] for statement in _body(step)]
            for statement in _body(step):
                self.statement(statement)
            if isinstance(step, Repeat):
                groups.append(Group(f"{step.count:,} times, r = 0, 1, …", keys))
            elif _is_backward(step):
                backward += keys
        if backward:
            groups.append(Group("backward", backward))
        return Picture(list(self.nodes.values()), list(self.edges.values()), groups, direction="TB")

    def statement(self, statement: Statement) -> None:
        key = self.keys[id(statement)]
        shape = " × ".join(f"{extent:,}" for extent in statement.loops)
        array = statement.target.array
        result = " = result" if array is self.program.output else ""
        title = f"{array.name}{f' [{shape}]' if shape else ''}{result}"
        target = f"{statement.target.show(statement.loops)} {'+=' if statement.accumulate else '='}"
        rows = [("", line) for line in _wrapped([target, *statement.shown_terms()])]
        self.nodes[key] = Node(key, "computed", title, _badge(statement), rows, hint=repr(statement))
        order = list(self.keys.values())
        for access, text in _reads(statement):
            for source in self.sources(access, text):
                if source not in order:
                    self.edges[source, key] = Edge(source, key)
                elif order.index(source) < order.index(key):
                    self.edges[source, key] = Edge(source, key, pull=8 if array.kind == access.array.kind else 1)
                else:
                    self.edges[source, key] = Edge(source, key, passes=False, hint="from the time before")

    def sources(self, access: Access, text: str) -> list[str]:
        """The statements that fill what is read, or a card for the leaf that it is."""
        if access.array in self.written:
            return self.written[access.array]
        if access.array.kind not in LEAVES:
            return []
        key = f"{access.array.name} {text}"
        self.nodes.setdefault(key, Node(key, LEAVES[access.array.kind], text, hint=f"{text}, of {access.array}"))
        return [key]


def _body(step: Statement | Repeat) -> tuple[Statement, ...]:
    return step.body if isinstance(step, Repeat) else (step,)


def _is_backward(statement: Statement) -> bool:
    return statement.target.array.kind == "adjoint"


def _reads(statement: Statement) -> Iterator[tuple[Access, str]]:
    for term in statement.terms:
        for access in term.expression.accesses():
            yield access, access.show(statement.loops + term.loops)


def _badge(statement: Statement) -> str:
    """What the statement mainly does: a sum, or an op on each element."""
    if any(term.loops for term in statement.terms):
        return "Σ"
    expression = statement.terms[0].expression
    if len(statement.terms) == 1 and isinstance(expression, Apply):
        return SYMBOLS.get(expression.op.symbol, expression.op.symbol)
    return "+" if len(statement.terms) > 1 else "="


def _wrapped(parts: list[str], width: int = 52) -> list[str]:
    """The parts of a formula in lines of some width."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) < width:
            lines[-1] += f" {part}"
        else:
            lines.append(f"  {part}")
    return lines

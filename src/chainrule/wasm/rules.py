"""Rules of the op table as WebAssembly: a rule runs on `Piece`s, and a `Writer` writes the instructions down.

What is written for an op is a *template*: instructions with holes, for where its operands' numbers are. A graph has
thousands of nodes and few kinds of them, so a rule runs once per kind, and a node only fills in its template.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn

from chainrule import ops
from chainrule.core.powers import power
from chainrule.wasm import encoding as e
from chainrule.wasm.lanes import ONE, Lanes

Template = list[bytes | int]  # instructions, and numbers of holes

EXACT_POWERS = (-1.0, 0.0, 0.5, 1.0, 2.0)  # that are one operation, and rounded once


class Piece(ops.Carrier):
    """A number that code will compute: `op` of pieces and plain numbers; without an op, what fills a hole."""

    __slots__ = ("op", "operands", "writer")

    def __init__(self, writer: Writer, op: ops.Op | None, operands: tuple[Any, ...]) -> None:
        self.writer, self.op, self.operands = writer, op, operands

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        return self.writer.apply(op, operands)

    def _branch(self, *_: object) -> NoReturn:
        raise TypeError("a rule must not compare its operands, nor branch on them: use `where` and comparison ops")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _branch
    __hash__ = object.__hash__


class Writer:
    """Pieces, and instructions that compute some of them. Equal pieces are one, and are computed once.

    `function` gives the number of an elementary function. Numbers needed again wait in locals, from `local` on.
    """

    def __init__(self, function: Callable[[str], int], local: int, lanes: Lanes = ONE) -> None:
        self.function, self.first, self.lanes = function, local, lanes
        self.locals = 0  # how many there are
        self.code: Template = []
        self._pieces: dict[Hashable, Piece] = {}
        self._uses: dict[Piece, int] = {}
        self._known: dict[Piece, int] = {}  # the locals of those that were computed

    def hole(self, number: int) -> Piece:
        """What fills a hole: code that leaves a number on the stack."""
        return self._piece(None, (number,))

    def apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        """A piece; of an op that is composed of others, the piece that its rule ends in."""
        if op is ops.where and not isinstance(operands[0], Piece):
            return operands[1] if operands[0] != 0.0 else operands[2]
        if op is ops.pow_ and not isinstance(operands[1], Piece) and float(operands[1]) in EXACT_POWERS:
            return power(operands[0], float(operands[1]))
        return self._piece(op, operands) if op.c else op.forward(*operands)

    def _piece(self, op: ops.Op | None, operands: tuple[Any, ...]) -> Piece:
        key = op, *[id(o) if isinstance(o, Piece) else o if op is None else e.f64(o) for o in operands]
        if key not in self._pieces:
            self._pieces[key] = Piece(self, op, operands)
        return self._pieces[key]

    def expect(self, *pieces: Any) -> None:
        """Say which pieces will be written: those that several of them need are kept."""
        for piece in pieces:
            self._count(piece)

    def _count(self, piece: Any) -> None:
        if isinstance(piece, Piece):
            self._uses[piece] = self._uses.get(piece, 0) + 1
            if self._uses[piece] == 1 and piece.op:
                for operand in piece.operands:
                    self._count(operand)

    def number(self, piece: Any) -> None:
        """Write code that leaves the piece's number on the stack."""
        if not isinstance(piece, Piece):
            self.code.append(self.lanes.constant(float(piece)))
        elif piece in self._known:
            self.code.append(e.get(self._known[piece]))
        else:
            self._computed(piece)
            if self._uses[piece] > 1:
                self._known[piece] = self.first + self.locals
                self.locals += 1
                self.code.append(e.tee(self._known[piece]))

    def _computed(self, piece: Piece) -> None:
        op, operands = piece.op, piece.operands
        if op is None:
            self.code.append(operands[0])
        elif op is ops.where:
            self.number(operands[1])
            self.number(operands[2])
            self._condition(operands[0])
            self.code.append(self.lanes.select)
        elif op.name in self.lanes.comparisons:
            self._condition(piece)
            self.code.append(self.lanes.to_number)
        else:
            for operand in operands:
                self.number(operand)
            self.code.append(self.lanes.instructions.get(op.name) or e.call(self.function(op.name)))

    def _condition(self, piece: Piece) -> None:
        """Write code that leaves on the stack whether the piece is not 0."""
        comparisons = self.lanes.comparisons
        if piece not in self._known and piece.op and piece.op.name in comparisons:
            for operand in piece.operands:
                self.number(operand)
            self.code.append(comparisons[piece.op.name])
        else:
            self.number(piece)
            self.code += [self.lanes.constant(0.0), comparisons["ne"]]


def filled(template: Template, fills: Sequence[bytes]) -> bytes:
    """The instructions, with `fills[k]` in hole k."""
    return b"".join([part if isinstance(part, bytes) else fills[part] for part in template])
